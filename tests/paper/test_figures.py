"""The table of figures, the paper's convex studies, and what their figures show."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from surefoot.paper import experiments, figures
from surefoot.paper.figures import convex
from surefoot.theory import models


@pytest.mark.parametrize("name", ["toy-function", "stability-index", "power-law", "universal-curves"])
def test_figure_is_written_whole_with_its_numbers(name, tmp_path):
    data = figures.data(name)
    written = figures.save(name, data, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    for key, values in data.data_vars.items():
        found = [float(row["value"]) for row in rows if row["variable"] == key]
        np.testing.assert_array_equal(found, values.values.ravel())


def test_names_groups_and_the_papers_numbers_are_understood():
    assert tuple(figures.expanded(["cifar10", "cifar10-delta"])) == figures.GROUPS["cifar10"]
    for number in range(1, figures.LAST + 1):
        assert set(figures.expanded([f"figure{number}"])) <= set(figures.FIGURES)
    for name in ("figure0", "figure13", "toy", "cifar100", "1"):
        with pytest.raises(ValueError, match=f"figure must be .*, got '{name}'"):
            figures.expanded([name])


def test_heading_says_what_is_shown():
    assert figures.FIGURES["cifar10-delta"].heading == "Figure 5. ResNet20, stability index over time"


class TestToyFunction:
    """The caption of Fig. 1 in numbers."""

    data = figures.data("toy-function")

    def test_only_sgd_overshoots_at_large_rates(self):
        last = self.data.next_loss.isel(lr=-1)
        assert last.sel(algorithm="sgd") > 10
        assert (last.sel(algorithm=["sps", "ngn", "spp"]) < 3.05).all()

    def test_only_the_index_of_sgd_goes_on_growing(self):
        sgd = self.data.delta.sel(algorithm="sgd").values
        assert sgd[-1] / sgd[0] == pytest.approx(1000)
        assert (self.data.delta.drop_sel(algorithm="sgd") <= 3.05).all()

    def test_spp_is_below_sps(self):
        spp, sps = (self.data.delta.sel(algorithm=name) for name in ("spp", "sps"))
        assert (spp <= sps * (1 + 1e-9)).all()


def test_gap_in_the_stability_index_figure_is_delta():
    data = figures.data("stability-index")
    slope_sq = float(np.gradient(data.loss, data.y)[abs(data.y.values + 3).argmin()] ** 2)
    for method, model in (("sgd", models.Linear()), ("ngn", models.SquareRoot())):
        gap = data.loss_at_x - data.objective.sel(algorithm=method).min("y")
        expected = model.step(float(data.loss_at_x), slope_sq, data.lr.values).delta
        np.testing.assert_allclose(gap, expected, rtol=5e-3)


@pytest.mark.parametrize(
    ("name", "steps", "runs"),
    [
        ("linear-regression", 100, 400),
        ("v1", 100, 4800),
        ("v2", 100, 4800),
        ("v3", 100, 4800),
        ("vowel", 520, 135),
        ("dna", 1000, 135),
    ],
)
def test_settings_are_the_papers(name, steps, runs):
    study = experiments.study(name)
    assert (study.steps, study.plan().total) == (steps, runs)


def test_unknown_experiment_is_named():
    with pytest.raises(ValueError, match=r"experiment must be .*, got 'vowels'; did you mean 'vowel'"):
        experiments.study("vowels")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    data = figures.data("linear-regression", folder)
    assert (folder / "linear-regression.db").exists()
    return data


class TestRegression:
    def test_it_is_in_kind_what_the_paper_shows(self, base):
        sgd, sps, spp = (base.loss.mean("seed").sel(algorithm=name).values for name in ("sgd", "sps", "spp"))
        assert sgd[6] < 1e-4  # α = 0.1
        assert (sgd[7:] > 1e6).all()  # from α = 0.215 on
        assert (sps[7:] < 1e-5).all()
        assert (spp[9:] < 1e-12).all()

    def test_bound_is_above_the_loss_where_it_is_finite(self, base):
        assert (base.loss.mean("seed") <= base.bound).where(np.isfinite(base.bound), True).all()

    def test_divergence_is_infinite_never_nan(self, base):
        assert not base.loss.isnull().any()
        assert np.isinf(base.loss.sel(algorithm="sgd").isel(lr=-1)).all()

    def test_figure_has_a_panel_of_losses_of_indices_and_of_all_methods(self, base):
        left, middle, right = figures.FIGURES["linear-regression"].draw(base).axes
        assert "its bound" in left.get_title()
        assert middle.get_ylabel().startswith("stability index")
        assert "all methods" in right.get_title()
        assert middle.get_ylim()[1] > 1e6 * base.delta.sel(algorithm="sps").max()  # an explosion is seen


def test_variants_are_one_figure_with_two_panels_each(monkeypatch):
    few = {"seeds": 3, "lrs": [0.01, 0.1, 0.46, 10.0]}
    data = convex.variants_data(*(experiments.run(name, **few) for name in convex.VARIANTS))
    assert data.algorithm.values.tolist() == ["sgd", "sps", "spp"]
    assert data.lower_bound_error.values == pytest.approx([0.0, 0.25, 2.0], abs=0.05)
    assert len(convex.variants(data).axes) == 6


@pytest.fixture(scope="module")
def indices():
    """Every sixth rate."""
    pep = pytest.importorskip("surefoot.pep")
    pytest.importorskip("PEPit", reason="needs the extra surefoot[pep]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(pep.CACHE_VARIABLE, "off")
        statement = pep.STATEMENTS["spp"]
        cases = [case for place, case in enumerate(statement.cases) if place % 25 % 6 == 0]
        patch.setitem(pep.STATEMENTS, "spp", statement._replace(cases=cases))
        return figures.data("pep")


class TestWorstCases:
    def test_program_and_formula_agree_below_both_bounds(self, indices):
        np.testing.assert_allclose(indices.worst, indices.exact, rtol=1e-6)
        assert (indices.worst <= np.minimum(indices.delta_sgd, 1.0) * (1 + 1e-6)).all()

    def test_there_is_a_panel_for_each_constant(self, indices):
        titles = [ax.get_title() for ax in figures.FIGURES["pep"].draw(indices).axes]
        assert titles == [f"gradients up to G = {G}" for G in ("0.5", "1", "2")]
