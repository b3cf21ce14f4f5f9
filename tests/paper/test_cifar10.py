"""The sweep on CIFAR-10: its settings, its runs, what is measured of them, what is recorded, and its figures."""

from __future__ import annotations

import math
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from surefoot.paper import cifar10, figures
from surefoot.paper.cifar10 import sweep
from surefoot.study import Study
from surefoot.theory import bounds

LRS = [0.01, 1.0, 100.0]
COMMON = {
    "problem": "digits-mlp",
    "problem_options": {"hidden": [16]},
    "lrs": LRS,
    "seeds": 2,
    "epochs": 2,
    "batch_size": 128,
    "distance": 5.0,
}


def tiny(preset, device="cpu", data=None):
    """The parts of the sweep with a perceptron that trains in milliseconds."""
    return {
        "constant": {**COMMON, "methods": ["sgd", "sps", "ngn", "log-ngn"]},
        "warmup": {**COMMON, "methods": ["sgd"], "schedule": "warmup(steps=5)"},
    }


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar10, "sweep", tiny)
        yield


@pytest.fixture(scope="module")
def counted():
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def results(folder, counted):
    return cifar10.run("smoke", folder, progress=lambda *state: counted.append(state), processes=1)


@pytest.fixture(scope="module")
def data(results):
    return cifar10.measure("smoke", results)


@pytest.mark.parametrize(
    ("preset", "count"), [("smoke", 25), ("start", 36), ("small", 45), ("medium", 21), ("paper", 135)]
)
def test_sizes_have_as_many_runs_as_the_docs_say(preset, count):
    parts = sweep(preset, data="x")
    assert sum(len(part["methods"]) * len(part["lrs"]) * part["seeds"] for part in parts.values()) == count
    for part in parts.values():
        assert preset == "smoke" or part["problem_options"]["data"] == "x"


def test_preset_paper_has_the_papers_settings():
    constant, warmup = sweep("paper").values()
    assert (constant["batch_size"], constant["epochs"], constant["seeds"], constant["distance"]) == (128, 20, 3, 50.0)
    np.testing.assert_allclose(constant["lrs"], np.logspace(-2, 2, 9))
    assert constant["methods"] == ["sgd", "sps", "ngn", "log-ngn"]
    assert warmup == {**constant, "methods": ["sgd"], "schedule": "warmup(steps=100)"}


def test_preset_smoke_can_be_planned_with_what_is_bundled():
    assert sum(Study(**part).plan().total for part in sweep("smoke").values()) == 25


def test_unknown_presets_are_refused():
    with pytest.raises(ValueError, match=r"preset must be .*, got 'smal'"):
        sweep("smal")


def test_progress_counts_the_runs_of_all_parts_and_nothing_is_computed_twice(results, folder, counted):
    assert counted == [(done, 30) for done in range(1, 31)]
    again = []
    cifar10.run("smoke", folder, progress=lambda *state: again.append(state))
    assert again == []


def test_numbers_are_those_of_the_results(data, results):
    assert data.algorithm.values.tolist() == ["sgd", "sps", "ngn", "log-ngn", "sgd+warmup"]
    assert (data.distance, data.epochs, data.reference) == (5.0, 2, math.log(10))
    for label, part, method in (("ngn", "constant", "ngn"), ("sgd+warmup", "warmup", "sgd")):
        ours, theirs = data.sel(algorithm=label), results[part].dataset.sel(algorithm=method)
        np.testing.assert_array_equal(ours.loss, theirs.last_loss)
        np.testing.assert_array_equal(ours.end_loss, theirs.train_loss.isel(epoch=-1))
        np.testing.assert_array_equal(ours.valid_loss, theirs.valid_loss.isel(epoch=-1))
        np.testing.assert_array_equal(ours.half_loss, theirs.train_loss.isel(epoch=1))
        np.testing.assert_array_equal(ours.travel, theirs.distance.isel(step=-1))
        np.testing.assert_array_equal(ours.delta.sel(rate=1.0), theirs.delta.sel(lr=1.0))
        # Ω is linear in δ: the mean over the seeds of the bound is the bound of the mean.
        bound = results[part].bound(5.0).sel(algorithm=method)
        np.testing.assert_allclose(ours.bound.mean("seed"), bound.total)
        np.testing.assert_allclose(ours.noise.mean("seed"), bound.noise)
        half = results[part].rates[:, :12], theirs.delta.values.mean(axis=1)[:, :12]  # x_12: half the epochs end there
        np.testing.assert_allclose(ours.half_bound.mean("seed"), bounds.last_iterate(*half, 5.0).total)


def test_polyaks_ratio_is_that_of_the_first_steps(data, results):
    run = results["constant"].dataset.sel(algorithm="sps", lr=1.0, seed=0)
    ratio = (run.loss / run.grad_sq).values[:100]
    found = data.sel(algorithm="sps", lr=1.0, seed=0)
    expected = (np.median(ratio), ratio.min(), ratio[0])
    assert (found.polyak, found.least_polyak, found.first_polyak) == pytest.approx(expected)


def test_what_was_written_is_found_in_the_folder_with_all_that_is_known(data, tmp_path):
    assert cifar10.recorded(tmp_path, ["smoke"]) == {}
    cifar10.write(data, tmp_path / "cifar10-smoke.nc")
    assert cifar10.recorded(tmp_path, ["smoke"])["smoke"].identical(data)


def test_runs_of_several_machines_become_one_record(results, tmp_path, monkeypatch, capsys):
    record, script = tmp_path / "record.nc", Path(__file__).parents[2] / "scripts" / "record.py"
    for name in ("sps", "sgd"):
        options = {**COMMON, "methods": [name], "lrs": [1.0]}
        Study(**options).run(tmp_path / f"{name}.db", progress=False, processes=1)
        monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / f"{name}.db"), "smoke", "-o", str(record)])
        runpy.run_path(str(script), run_name="__main__")
    assert "4 runs" in capsys.readouterr().out
    found = cifar10.read(record)
    assert sorted(found.algorithm.values) == ["sgd", "sps"]
    expected = results["constant"].dataset.last_loss.sel(algorithm="sgd", lr=1.0)
    np.testing.assert_array_equal(found.loss.sel(algorithm="sgd", lr=1.0), expected)


def test_records_of_the_package_have_the_runs_that_the_docs_speak_of():
    found = cifar10.recorded()
    assert list(found) == ["start", "medium", "small"]
    assert not found["medium"].loss.sel(algorithm="sps", seed=0).isnull().any()
    assert found["small"].loss.notnull().sum() == 45
    assert "loss" not in found["start"]  # what is said of the end is not judged by the first steps


class TestFigures:
    @pytest.mark.parametrize("name", figures.GROUPS["cifar10"])
    @pytest.mark.parametrize("source", ["trained", "recorded"])
    def test_figure_is_drawn_from_runs_and_from_records(self, data, name, source, tmp_path):
        cifar10.write(data, tmp_path / "cifar10-smoke.nc")
        shown = figures.data(name, tmp_path, ["smoke"]) if source == "trained" else figures.data(name)
        axes = figures.FIGURES[name].draw(shown).axes
        assert len(axes) == 2 * shown.sizes["preset"]
        for ax in axes:
            assert ax.get_title()
            assert any(len(line.get_xdata()) for line in ax.lines)

    def test_sizes_that_lack_the_numbers_of_a_figure_are_left_out(self):
        assert figures.data("cifar10-loss-and-bound").preset.values.tolist() == ["medium", "small"]
        assert figures.data("cifar10-delta").preset.values.tolist() == ["start"]
        with pytest.raises(ValueError, match=r"no size of the sweep has the half_loss and half_bound .* of small"):
            figures.data("cifar10-half", presets=["small"])

    def test_bounds_for_several_distances_differ_by_their_bias(self, data):
        bound = figures.FIGURES["cifar10-distances"].data({"smoke": data}).bound.sel(algorithm="sps", preset="smoke")
        difference = (bound.sel(D=100.0) - bound.sel(D=1.0)).mean("seed")
        np.testing.assert_allclose(difference, (100**2 - 1) / (2 * 22 * np.array(LRS)))
