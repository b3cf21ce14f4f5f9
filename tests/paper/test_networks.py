"""Sweeps on networks: their settings, their runs, what is measured of them, and what is recorded."""

from __future__ import annotations

import math
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from surefoot.paper import figures, networks
from surefoot.study import Study

LRS = [0.01, 1.0, 100.0]


def tiny(preset, device="cpu", data=None):
    """The parts of the sweep on CIFAR-10 with a perceptron that trains in milliseconds."""
    common = {
        "problem": "digits-mlp",
        "problem_options": {"hidden": [16]},
        "lrs": LRS,
        "seeds": 2,
        "epochs": 2,
        "batch_size": 128,
        "distance": 5.0,
    }
    return {
        "constant": {**common, "methods": ["sgd", "sps", "ngn", "log-ngn"]},
        "warmup": {**common, "methods": ["sgd"], "schedule": "warmup(steps=5)"},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(networks.SWEEPS, "cifar10", tiny)
        patch.setattr(networks, "TRAINED", {**networks.TRAINED, "digits-mlp": "A perceptron"})
        yield tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def counted():
    return []


@pytest.fixture(scope="module")
def results(folder, counted):
    return networks.run("cifar10", "smoke", folder, progress=lambda *state: counted.append(state), processes=1)


@pytest.fixture(scope="module")
def data(results):
    return networks.measure("cifar10", "smoke", results)


def test_preset_paper_has_the_papers_settings():
    constant, warmup = networks.sweep("cifar10", "paper").values()
    assert (constant["batch_size"], constant["epochs"], constant["seeds"], constant["distance"]) == (128, 20, 3, 50.0)
    np.testing.assert_allclose(constant["lrs"], np.logspace(-2, 2, 9))
    assert constant["methods"] == ["sgd", "sps", "ngn", "log-ngn"]
    assert warmup == {**constant, "methods": ["sgd"], "schedule": "warmup(steps=100)"}


@pytest.mark.parametrize(("device", "expected"), [("cpu", None), ("cuda", "bfloat16")])
def test_preset_small_uses_bfloat16_on_other_devices_than_processors(device, expected):
    options = networks.sweep("cifar10", "small", device=device, data="x")["constant"]["problem_options"]
    assert (options["autocast"], options["rows"], options["data"]) == (expected, 10_000, "x")


@pytest.mark.parametrize(("name", "count"), [("cifar10", 25), ("cifar10-geometries", 19), ("characters", 13)])
def test_preset_smoke_can_be_planned_with_what_is_bundled(name, count):
    assert sum(Study(**part).plan().total for part in networks.sweep(name, "smoke").values()) == count


@pytest.mark.parametrize(
    ("name", "preset", "message"),
    [("cifar10", "smal", "preset must be .*, got 'smal'"), ("cifar", "small", "sweep must be .*, got 'cifar'")],
)
def test_unknown_names_are_refused(name, preset, message):
    with pytest.raises(ValueError, match=message):
        networks.sweep(name, preset)


def test_progress_counts_the_runs_of_all_parts_and_nothing_is_computed_twice(results, folder, counted):
    assert counted == [(done, 30) for done in range(1, 31)]
    again = []
    networks.run("cifar10", "smoke", folder, progress=lambda *state: again.append(state))
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
        # Ω is linear in δ: the mean over the seeds of the bound is the bound of the mean.
        bound = results[part].bound(5.0).sel(algorithm=method)
        np.testing.assert_allclose(ours.bound.mean("seed"), bound.total)
        np.testing.assert_allclose(ours.noise.mean("seed"), bound.noise)
        half = results[part].bound(5.0, horizon=12).sel(algorithm=method)  # x_12 is where half the epochs end
        np.testing.assert_allclose(ours.half_bound.mean("seed"), half.total)


def test_polyaks_ratio_is_that_of_the_first_steps(data, results):
    run = results["constant"].dataset.sel(algorithm="sps", lr=1.0, seed=0)
    ratio = (run.loss / run.grad_sq).values[:100]
    found = data.sel(algorithm="sps", lr=1.0, seed=0)
    expected = (np.median(ratio), ratio.min(), ratio[0])
    assert (found.polyak, found.least_polyak, found.first_polyak) == pytest.approx(expected)


def test_what_was_written_is_found_in_the_folder(data, tmp_path):
    assert networks.recorded("cifar10", tmp_path, ["smoke"]) == {}
    networks.write(data, tmp_path / "cifar10-smoke.csv")
    found = networks.recorded("cifar10", tmp_path, ["smoke"])["smoke"]
    assert found.algorithm.values.tolist() == data.algorithm.values.tolist()
    for column in networks.COLUMNS:
        np.testing.assert_allclose(found[column], data[column].transpose(*found[column].dims), rtol=1e-5)


def test_runs_of_several_machines_become_one_record(folder, results, tmp_path, monkeypatch, capsys):
    record, script = tmp_path / "record.csv", Path(__file__).parents[2] / "scripts" / "record.py"
    for name in ("sps", "sgd"):
        options = {**networks.sweep("cifar10", "smoke")["constant"], "methods": [name], "lrs": [1.0]}
        Study(**options).run(tmp_path / f"{name}.db", progress=False, processes=1)
        arguments = [str(tmp_path / f"{name}.db"), "cifar10", "smoke", "-o", str(record)]
        monkeypatch.setattr(sys, "argv", [str(script), *arguments])
        runpy.run_path(str(script), run_name="__main__")
    assert "4 runs" in capsys.readouterr().out
    found = networks.read(record, "cifar10", "smoke")
    assert sorted(found.algorithm.values) == ["sgd", "sps"]
    expected = results["constant"].dataset.last_loss.sel(algorithm="sgd", lr=1.0)
    np.testing.assert_allclose(found.loss.sel(algorithm="sgd", lr=1.0), expected, rtol=1e-5)


def test_records_of_the_package_have_runs_of_two_sizes():
    found = networks.recorded("cifar10")
    assert list(found) == ["medium", "small"]
    assert not found["medium"].loss.sel(algorithm="sps").isnull().any()
    assert networks.recorded("characters") == {}


class TestFigures:
    CIFAR10 = figures.GROUPS["cifar10"]

    @pytest.mark.parametrize("name", CIFAR10)
    @pytest.mark.parametrize("source", ["trained", "recorded"])
    def test_figure_is_drawn_from_runs_and_from_records(self, data, name, source, monkeypatch):
        shown = figures.data(name, sweep=data if source == "trained" else None)
        for ax in figures.FIGURES[name].draw(shown).axes:
            assert ax.get_title()
            assert any(len(line.get_xdata()) for line in ax.lines)

    def test_traces_are_means_over_the_seeds(self, data, results):
        traces = figures.data("cifar10-delta", sweep=data).delta
        expected = results["constant"].dataset.delta.sel(algorithm="sgd", lr=1.0).mean("seed")
        np.testing.assert_array_equal(traces.sel(algorithm="sgd", rate=1.0), expected)

    def test_bounds_for_several_distances_differ_by_their_bias(self, data):
        bound = figures.data("cifar10-distances", sweep=data).bound.sel(algorithm="sps")
        difference = (bound.sel(D=100.0) - bound.sel(D=1.0)).mean("seed")
        np.testing.assert_allclose(difference, (100**2 - 1) / (2 * 22 * np.array(LRS)))

    def test_what_has_no_record_is_refused_without_a_preset(self):
        with pytest.raises(ValueError, match="name a preset"):
            figures.data("characters")

    @pytest.mark.parametrize("name", ["characters", "cifar10-geometries"])
    @pytest.mark.slow
    def test_sweeps_without_a_record_are_trained_and_drawn(self, name, tmp_path):
        trained = networks.measure(name, "smoke", networks.run(name, "smoke", tmp_path))
        assert len(figures.save(name, figures.data(name, sweep=trained), tmp_path)) == 3
