"""Figures of networks: presets with the paper's settings, sweeps that resume, and tables that say what the runs say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.paper import tiny_sweeps

from surefoot.paper import figures, presets, summary
from surefoot.paper.curves import MissingRuns, curves, polyak_ratio, pool
from surefoot.study import Result, Study

SLOW = [name for name in figures.NETWORKS if name != "cifar10-travel"]


@pytest.fixture(scope="module", autouse=True)
def tiny():
    with pytest.MonkeyPatch.context() as patch:
        real = dict(presets._SWEEPS)
        tiny_sweeps.install(patch)
        yield real


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def results(folder, told):
    return presets.run("cifar10", "smoke", folder, progress=lambda *state: told.append(state), processes=1)


@pytest.fixture(scope="module")
def sweeps(results):
    others = {name: presets.run(name, "smoke", processes=1) for name in ("cifar10-geometries", "characters")}
    return {"cifar10": results, **others}


@pytest.fixture(scope="module")
def tables(sweeps):
    recipes = {name: figures.load(name) for name in figures.NETWORKS}
    return {name: each.data(presets.sweep(each.sweep), sweeps[each.sweep]) for name, each in recipes.items()}


def values(columns, kind, method, lr=None):
    chosen = (columns["kind"] == kind) & (columns["method"] == method)
    if lr is not None:
        chosen &= columns["lr"] == lr
    return columns["value"][chosen]


class TestPresets:
    def test_paper_has_the_papers_settings(self, tiny):
        sweep = tiny["cifar10"]("paper", "cpu", None)
        constant, warmup = sweep.parts["constant"], sweep.parts["warmup"]
        assert constant["problem"] == "resnet20"
        assert constant["problem_options"] == {"device": "cpu", "data": None}
        assert {key: constant[key] for key in ("batch_size", "epochs", "seeds", "distance")} == {
            "batch_size": 128,
            "epochs": 20,
            "seeds": 3,
            "distance": 50.0,
        }
        np.testing.assert_allclose(constant["lrs"], np.logspace(-2, 2, 9))
        assert constant["methods"] == ["sgd", "sps", "ngn", "log-ngn"]
        assert warmup == {**constant, "methods": ["sgd"], "schedule": "warmup(steps=100)"}

    def test_small_is_five_epochs_of_the_first_images(self, tiny):
        settings = tiny["cifar10"]("small", "cpu", "somewhere").parts["constant"]
        assert settings["epochs"] == 5
        assert settings["seeds"] == 1
        options = settings["problem_options"]
        assert (options["rows"], options["channels_last"], options["data"]) == (10_000, True, "somewhere")

    @pytest.mark.parametrize(("device", "expected"), [("cpu", None), ("cuda", "bfloat16")])
    def test_small_uses_bfloat16_on_other_devices_than_processors(self, tiny, device, expected):
        assert tiny["cifar10"]("small", device, None).parts["constant"]["problem_options"]["autocast"] == expected

    def test_medium_is_twenty_runs_on_all_images(self, tiny):
        parts = tiny["cifar10"]("medium", "cpu", None).parts
        assert {name: len(part["methods"]) * len(part["lrs"]) for name, part in parts.items()} == {
            "constant": 15,
            "warmup": 3,
            "level": 2,
        }
        assert all("rows" not in part["problem_options"] for part in parts.values())

    @pytest.mark.parametrize("name", presets._SWEEPS)
    @pytest.mark.parametrize("preset", presets.PRESETS)
    def test_every_sweep_has_every_preset(self, tiny, name, preset):
        assert tiny[name](preset, "cpu", None).parts

    @pytest.mark.parametrize(("name", "count"), [("cifar10", 25), ("cifar10-geometries", 24), ("characters", 18)])
    def test_smoke_can_be_planned_with_what_is_bundled(self, tiny, monkeypatch, name, count):
        monkeypatch.setitem(presets._SWEEPS, name, tiny[name])
        studies = presets.studies(name, "smoke")
        assert sum(study.plan().total for study in studies.values()) == count

    def test_unknown_preset_is_named(self):
        with pytest.raises(ValueError, match=r"preset must be .*, got 'smal'; did you mean 'small'"):
            presets.sweep("cifar10", "smal")

    def test_unknown_sweep_is_named(self):
        with pytest.raises(ValueError, match=r"sweep must be .*, got 'cifar'; did you mean 'cifar10'"):
            presets.sweep("cifar")


class TestSweep:
    def test_progress_counts_the_runs_of_all_parts(self, results, told):
        assert told == [(done, 30) for done in range(1, 31)]

    def test_nothing_is_computed_twice(self, results, folder):
        told = []
        again = presets.run("cifar10", "smoke", folder, progress=lambda *state: told.append(state))
        assert told == []
        for part, result in results.items():
            assert result.dataset.identical(again[part].dataset)

    def test_results_are_found_without_the_problem(self, results, folder):
        found = presets.stored("cifar10", "smoke", folder)
        assert list(found) == ["constant", "warmup"]
        for part, result in found.items():
            np.testing.assert_array_equal(result.dataset.delta, results[part].dataset.delta)

    def test_a_folder_without_the_sweep_has_none(self, tmp_path):
        assert presets.stored("cifar10", "smoke", tmp_path) is None

    def test_smaller_studies_of_the_file_add_up(self, results, tmp_path, monkeypatch, capsys):
        """SGD at two rates and SPS at one, one study a run; then all that there is becomes a record."""
        settings = presets.sweep("cifar10", "smoke").parts["constant"]
        store = presets.store_of("cifar10", "smoke", tmp_path)
        for method, lr in (("sps", 1.0), ("sgd", 0.01), ("sgd", 1.0)):
            Study(**{**settings, "methods": [method], "lrs": [lr]}).run(store, progress=False, processes=1)
        (found,) = presets.stored("cifar10", "smoke", tmp_path).values()
        assert (found.algorithms, found.lrs.tolist()) == (["sgd", "sps"], tiny_sweeps.LRS)
        assert (found.dataset.status == "missing").all("seed").values.tolist() == [
            [False, False, True],
            [True, False, True],
        ]
        whole = results["constant"].dataset
        np.testing.assert_array_equal(
            found.dataset.delta.sel(algorithm="sgd", lr=1.0), whole.delta.sel(algorithm="sgd", lr=1.0)
        )

        script = Path(__file__).parents[3] / "scripts" / "record.py"
        monkeypatch.setattr(sys, "argv", [str(script), str(store), "-o", str(tmp_path / "record.csv")])
        runpy.run_path(str(script), run_name="__main__")
        assert "sgd at 2 rates, sps at 1 rates" in capsys.readouterr().out
        recorded = summary.read(tmp_path / "record.csv")
        assert {label: runs.lrs.tolist() for label, runs in recorded.items()} == {"sgd": [0.01, 1.0], "sps": [1.0]}
        assert recorded["sgd"]["loss"][1] == pytest.approx(
            float(whole.last_loss.sel(algorithm="sgd", lr=1.0).mean()), rel=1e-5
        )

    def test_a_record_keeps_what_another_machine_has_run(self):
        def runs(label, lrs, loss):
            columns = {name: np.full(len(lrs), loss) for name in summary.COLUMNS}
            return {label: summary.Summary(label, np.array(lrs), columns)}

        known = runs("sgd", [0.1, 1.0], 5.0) | runs("sps", [1.0], 6.0)
        found = summary.joined(known, runs("sgd", [0.3, 1.0], 7.0) | runs("ngn", [1.0], 8.0))
        assert {label: (part.lrs.tolist(), part["loss"].tolist()) for label, part in found.items()} == {
            "sgd": ([0.1, 0.3, 1.0], [5.0, 7.0, 7.0]),
            "sps": ([1.0], [6.0]),
            "ngn": ([1.0], [8.0]),
        }

    def test_a_file_with_other_settings_is_not_the_sweep(self, results, folder, monkeypatch):
        tiny_sweeps.install(monkeypatch, lrs=[0.1, 1.0])
        assert presets.stored("cifar10", "smoke", folder) is None


class TestRegistry:
    def test_networks_are_made_only_by_name(self):
        assert not set(figures.available()) & set(figures.NETWORKS)

    def test_cifar10_stands_for_all_figures_of_its_sweep(self):
        assert tuple(figures.expanded(["cifar10", "cifar10-delta"])) == figures.CIFAR10
        assert {figures.load(name).sweep for name in figures.CIFAR10} == {"cifar10"}

    def test_unknown_name_is_refused(self):
        with pytest.raises(ValueError, match=r"figure must be .*, got 'cifar100'"):
            figures.expanded(["cifar100"])

    @pytest.mark.parametrize("name", figures.NETWORKS)
    def test_every_panel_has_a_title_and_lines(self, tables, name):
        for ax in figures.load(name).draw(tables[name]).axes:
            assert ax.get_title()
            assert any(len(line.get_xdata()) for line in ax.lines)

    @pytest.mark.parametrize("name", ["cifar10-travel", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
    def test_figure_is_written_from_its_table(self, tables, name, tmp_path):
        written = figures.save(name, tables[name], tmp_path)
        assert [path.name for path in written] == [f"{name}.png", f"{name}.pdf", f"{name}.csv"]

    @pytest.mark.parametrize("name", figures.CIFAR10)
    def test_a_sweep_without_sgd_has_no_figure_yet(self, results, name):
        with pytest.raises(MissingRuns, match="sgd"):
            figures.load(name).data(presets.sweep("cifar10"), {"warmup": results["warmup"]})

    def test_heading_says_what_is_shown(self):
        assert figures.load("cifar10-delta").heading == "Figure 5: stability index over time, without and with warmup"


class TestTables:
    def test_losses_and_bounds_are_those_of_the_studies(self, tables, results):
        columns = tables["cifar10-loss-and-bound"]
        for label, part, method in (("ngn", "constant", "ngn"), ("sgd+warmup", "warmup", "sgd")):
            data = results[part].dataset.sel(algorithm=method)
            np.testing.assert_array_equal(values(columns, "loss", label), data.last_loss.mean("seed"))
            np.testing.assert_array_equal(values(columns, "loss-high", label), data.last_loss.max("seed"))
            bound = results[part].bound(5.0).total.sel(algorithm=method)
            np.testing.assert_array_equal(values(columns, "bound", label), bound)

    def test_half_the_epochs_are_half_the_horizon(self, tables, results):
        columns, result = tables["cifar10-half"], results["constant"]
        expected = result.bound(5.0, horizon=result.steps // 2).total.sel(algorithm="sps")
        np.testing.assert_array_equal(values(columns, "bound", "sps"), expected)
        losses = result.dataset.train_loss.sel(algorithm="sps", epoch=1).mean("seed")
        np.testing.assert_array_equal(values(columns, "loss", "sps"), losses)

    def test_validation_loss_is_that_of_the_last_epoch(self, tables, results):
        losses = results["constant"].dataset.valid_loss.sel(algorithm="sps", epoch=2).mean("seed")
        np.testing.assert_array_equal(values(tables["cifar10-validation"], "loss", "sps"), losses)

    def test_indices_count_steps_from_one(self, tables, results):
        columns = tables["cifar10-delta"]
        chosen = (columns["kind"] == "delta") & (columns["method"] == "sgd") & (columns["lr"] == 1.0)
        assert columns["step"][chosen].tolist() == list(range(1, 23))
        expected = results["constant"].dataset.delta.sel(algorithm="sgd", lr=1.0).mean("seed")
        np.testing.assert_array_equal(columns["value"][chosen], expected)

    def test_bounds_for_several_distances_differ_by_their_bias(self, tables, results):
        columns = tables["cifar10-distances"]
        near, far = (values(columns, f"bound D={name}", "sps") for name in ("1", "100"))
        np.testing.assert_allclose(far - near, (100**2 - 1) / (2 * results["constant"].rates.sum(axis=1)))

    def test_travel_is_the_distance_at_the_last_step(self, tables, results):
        expected = results["warmup"].dataset.distance.sel(algorithm="sgd").isel(step=-1).mean("seed")
        np.testing.assert_allclose(values(tables["cifar10-travel"], "travel", "sgd+warmup"), expected)

    def test_pool_bias_is_the_best_of_all_visited_points(self, tables, results):
        """Point by point and in plain loops: the start, and of every run the end of an epoch and x_T."""
        points = []
        for result in results.values():
            data = result.dataset
            points += [(result.initial_loss, 0.0)]
            for run in np.ndindex(*data.status.shape):
                points += [(data.train_loss.values[run][1], data.distance.values[run][11])]
                points += [(data.last_loss.values[run], data.distance.values[run][21])]
        for position, lr in enumerate(results["constant"].lrs):
            horizon = lr * 22
            expected = min(loss + far**2 / (2 * horizon) for loss, far in points if np.isfinite(loss + far))
            assert values(tables["cifar10-pool-bias"], "bias-pool", "sgd")[position] == pytest.approx(expected)

    def test_pool_bias_is_at_most_the_loss_at_the_start(self, tables, results):
        assert (values(tables["cifar10-pool-bias"], "bias-pool", "sps") <= results["constant"].initial_loss).all()

    def test_steps_in_units_of_polyaks_have_their_limits(self, tables):
        columns = tables["cifar10-log-ngn"]
        assert (values(columns, "polyak-units", "sps") <= 1 + 1e-6).all()
        assert (values(columns, "polyak-units", "ngn") <= 2 + 1e-6).all()

    def test_geometries_have_a_panel_for_each_part(self, tables):
        columns = tables["cifar10-geometries"]
        assert columns["method"][columns["kind"] == "part averaged"].tolist() == tiny_sweeps.METHODS["averaged"]

    def test_reference_of_the_character_model_is_its_first_loss(self, tables, sweeps):
        assert values(tables["characters"], "constant", "reference") == [sweeps["characters"]["adam"].initial_loss]

    def test_reference_of_images_is_the_loss_of_guessing(self, tables):
        assert values(tables["cifar10-delta"], "constant", "reference") == [np.log(10)]

    @pytest.mark.parametrize("name", figures.NETWORKS)
    def test_nothing_is_nan(self, tables, name):
        assert not np.isnan(tables[name]["value"]).any()


class TestCurves:
    def test_a_sweep_without_a_distance_has_a_summary_without_bounds(self, sweeps):
        sgd = summary.summarise(sweeps["characters"])["sgd"]
        losses = sweeps["characters"]["plain"].dataset.last_loss.sel(algorithm="sgd").mean("seed")
        np.testing.assert_array_equal(sgd["loss"], losses)
        assert (sgd["noise"] > 0).all()
        with pytest.raises(MissingRuns, match="sgd that tell the bound"):
            sgd["bound"]

    def test_labels_tell_warmup_apart(self, results):
        assert list(curves(results)) == ["sgd", "sps", "ngn", "log-ngn", "sgd+warmup"]

    def test_polyak_ratio_is_loss_over_squared_norm(self, results):
        data = results["constant"].dataset.sel(algorithm="sps", lr=1.0).isel(step=slice(3))
        found = polyak_ratio(curves(results)["sps"], 3)[tiny_sweeps.LRS.index(1.0)]
        np.testing.assert_allclose(found, (data.loss / data.grad_sq).values)

    def test_pool_leaves_out_what_was_not_kept(self, results):
        """Every seventh step: the start, which all runs share, and the last iterates (step 21), no ends of epochs."""
        thinned = Result({**results["warmup"].settings, "every": 7}, results["warmup"]._archive)
        thinned.dataset = results["warmup"].dataset.isel(step=slice(None, None, 7))
        assert len(pool([thinned]).losses) == 1 + thinned.dataset.status.size
