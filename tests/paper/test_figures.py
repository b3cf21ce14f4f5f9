from __future__ import annotations

import csv

import numpy as np
import pytest

from surefoot.paper import figures
from surefoot.theory import models

QUICK = ["toy-function", "stability-index", "power-law", "universal-curves"]


@pytest.mark.parametrize("name", QUICK)
def test_figure_is_written_whole_with_its_numbers(name, tmp_path):
    columns = figures.load(name).columns()
    written = figures.save(name, columns, tmp_path)
    assert sorted(path.suffix for path in written) == [".csv", ".pdf", ".png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    for key, values in columns.items():
        if values.dtype.kind == "f":
            np.testing.assert_array_equal([float(row[key]) for row in rows], values)
        else:
            assert [row[key] for row in rows] == values.astype(str).tolist()


def test_unknown_figure_is_named():
    with pytest.raises(ValueError, match=r"figure must be .*, got 'toy'; did you mean"):
        figures.load("toy")


class TestToyFunction:
    """The caption of Fig. 1 in numbers."""

    columns = figures.load("toy-function").columns()

    def of(self, method, column):
        return self.columns[column][self.columns["method"] == method]

    def test_only_sgd_overshoots_at_large_rates(self):
        assert self.of("sgd", "next_loss")[-1] > 10
        for method in ("sps", "ngn", "spp"):
            assert self.of(method, "next_loss")[-1] < 3.05

    def test_only_the_index_of_sgd_goes_on_growing(self):
        assert self.of("sgd", "delta")[-1] / self.of("sgd", "delta")[0] == pytest.approx(
            self.of("sgd", "lr")[-1] / self.of("sgd", "lr")[0]
        )
        for method in ("sps", "ngn", "spp", "log-ngn"):
            assert self.of(method, "delta").max() <= 3.05

    def test_spp_is_below_sps(self):
        assert (self.of("spp", "delta") <= self.of("sps", "delta") * (1 + 1e-9)).all()


def test_gap_in_the_stability_index_figure_is_delta():
    columns = figures.load("stability-index").columns()
    for method, model in (("sgd", models.Linear()), ("ngn", models.SquareRoot())):
        for lr in np.unique(columns["lr"]):
            chosen = (columns["method"] == method) & (columns["lr"] == lr)
            gap = columns["loss_at_x"][chosen][0] - columns["objective"][chosen].min()
            grad_sq = columns["grad_sq"][chosen][0]
            expected = model.step(float(columns["loss_at_x"][chosen][0]), float(grad_sq), float(lr)).delta
            assert gap == pytest.approx(expected, rel=2e-3)
