"""Claims about networks: verdicts on numbers that are known, and on a sweep that really ran."""

from __future__ import annotations

import runpy
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.paper import tiny_sweeps

from surefoot.paper import claims, presets, summary
from surefoot.paper.claims._claim import Swept
from surefoot.paper.summary import summarise
from surefoot.study import Result

LRS = np.logspace(-2, 2, 9).tolist()
IDS = list(claims.SECTIONS["ResNet20 on CIFAR-10"])

# Final losses of ResNet20 over LRS in kind: SGD fails from α = 1 on, warmup buys it a decade, SPS and NGN hold to 10.
LOSSES = {
    "sgd": [1.65, 1.3, 0.9, 0.72, 1.4, 2.2, np.inf, 4.5, 48.0],
    "sps": [1.65, 1.3, 0.85, 0.65, 0.6, 0.62, 0.7, 1.9, 2.5],
    "ngn": [1.66, 1.3, 0.86, 0.66, 0.6, 0.61, 0.68, 1.4, 2.1],
    "sgd+warmup": [1.7, 1.3, 0.9, 0.7, 0.66, 0.75, 2.0, 3.0, np.inf],
}


class Known(claims.Evidence):
    """Evidence of a sweep whose summaries are given."""

    def __init__(self, runs):
        super().__init__()
        self.runs = runs

    def sweeps(self, name):
        return [Swept("known", presets.sweep(name, "smoke"), self.runs())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny sweep with the paper's rates."""
    with pytest.MonkeyPatch.context() as patch:
        tiny_sweeps.install(patch, lrs=LRS, seeds=1, batch_size=512)
        path = tmp_path_factory.mktemp("studies")
        presets.run("cifar10", "smoke", path, processes=1)
        yield path


@pytest.fixture(scope="module")
def results(folder):
    return presets.stored("cifar10", "smoke", folder)


@pytest.fixture
def known(results):
    """Evidence with the traces of the tiny sweep, but the losses of this file; more can be changed."""
    changed = {part: Result(result.settings, result._archive) for part, result in results.items()}
    for part, result in changed.items():
        result.dataset = results[part].dataset.copy(deep=True)
        for position, algorithm in enumerate(result.algorithms):
            label = f"{algorithm}+warmup" if part == "warmup" else algorithm
            if label in LOSSES:
                result.dataset.last_loss.values[position] = np.array(LOSSES[label])[:, None]

    return changed, Known(lambda: summarise(changed))


def verdict(evidence, name):
    return claims.judge(claims.all_claims()[name], evidence)


class TestRules:
    """Each rule on numbers that meet it and on numbers that do not."""

    @pytest.mark.parametrize("name", ["cifar-sgd-degrades", "cifar-sps-ngn-hold", "cifar-advantage", "cifar-warmup"])
    def test_the_papers_picture_holds(self, known, name):
        row = verdict(known[1], name)
        assert row.verdict == "holds", row.measured

    def test_sgd_that_does_not_degrade_contradicts(self, known):
        known[0]["constant"].dataset.last_loss.values[0] = 0.6
        assert verdict(known[1], "cifar-sgd-degrades").verdict == "fails"

    def test_windows_that_end_at_one_contradict(self, known):
        known[0]["constant"].dataset.last_loss.values[1, 5:] = 1.9
        row = verdict(known[1], "cifar-sps-ngn-hold")
        assert row.verdict == "fails"
        assert "SPS 0.316–1" in row.measured

    def test_warmup_without_gain_contradicts(self, known):
        known[0]["warmup"].dataset.last_loss.values[0] = np.array(LOSSES["sgd"])[:, None]
        row = verdict(known[1], "cifar-warmup")
        assert row.verdict == "fails"
        assert "+0.00 decades" in row.measured

    def test_a_method_that_never_trains_has_no_window_and_no_gain(self, known):
        known[0]["constant"].dataset.last_loss.values[0] = np.inf
        assert verdict(known[1], "cifar-warmup").verdict == "fails"

    def test_explosion_compares_the_first_steps(self, known):
        delta = known[0]["constant"].dataset.delta
        position = LRS.index(10.0)
        delta.values[0, position], delta.values[1:3, position] = 50.0, 5.0
        assert verdict(known[1], "cifar-delta-explodes").verdict == "holds"
        delta.values[0, position] = 49.0
        assert verdict(known[1], "cifar-delta-explodes").verdict == "fails"

    def test_warmup_slows_the_index_down(self, known):
        position = LRS.index(10.0)
        known[0]["constant"].dataset.delta.values[0, position] = 50.0
        known[0]["warmup"].dataset.delta.values[0, position] = 5.0
        assert verdict(known[1], "cifar-warmup-delta").verdict == "holds"
        known[0]["warmup"].dataset.delta.values[0, position] = 5.1
        assert verdict(known[1], "cifar-warmup-delta").verdict == "fails"

    @pytest.mark.parametrize(("ratio", "expected"), [(0.1, "holds"), (0.02, "fails"), (1.0, "fails")])
    def test_polyak_ratio_is_that_of_sps_at_one(self, known, ratio, expected):
        data = known[0]["constant"].dataset
        data.loss.values[1, LRS.index(1.0)] = 2.0
        data.grad_sq.values[1, LRS.index(1.0)] = 2.0 / ratio
        assert verdict(known[1], "cifar-polyak-ratio").verdict == expected

    @pytest.mark.parametrize(("shift", "expected"), [(0, "holds"), (1, "holds"), (2, "fails")])
    def test_validation_may_move_by_one_rate(self, known, shift, expected):
        data = known[0]["constant"].dataset
        for position, label in enumerate(("sgd", "sps", "ngn")):
            data.valid_loss.values[position, :, :, -1] = np.roll(LOSSES[label], -shift)[:, None]
        assert verdict(known[1], "cifar-validation").verdict == expected

    @pytest.mark.parametrize(("distance", "expected"), [(5.0, "holds"), (1.6, "fails"), (16.0, "fails")])
    def test_distance_is_within_a_factor_of_three(self, known, distance, expected):
        known[0]["constant"].dataset.distance.values[..., -1] = distance  # the guess is 5
        assert verdict(known[1], "cifar-distance").verdict == expected


@pytest.fixture(scope="module")
def ran(folder):
    return claims.Evidence(folder, sizes=("smoke",))


@pytest.fixture(scope="module")
def summaries(results, tmp_path_factory):
    """As made, and as written and read."""
    path = tmp_path_factory.mktemp("summary") / "sweep.csv"
    made = summarise(results)
    summary.write(made, path)
    return made, summary.read(path)


class TestEvidence:
    @pytest.mark.parametrize("name", IDS)
    def test_every_claim_is_judged_on_a_sweep_that_ran(self, ran, name):
        row = verdict(ran, name)
        assert row.verdict in ("holds", "fails")
        assert row.measured.endswith("(preset smoke)")

    @pytest.mark.parametrize("folder_exists", [True, False])
    def test_without_the_sweep_the_verdict_is_not_run(self, tmp_path, folder_exists):
        row = verdict(claims.Evidence(tmp_path if folder_exists else None, sizes=("smoke",)), "cifar-warmup")
        assert row.verdict == "not-run"
        assert "surefoot reproduce cifar10 --preset smoke" in row.measured

    @pytest.mark.parametrize("folder_exists", [True, False])
    def test_without_runs_of_ones_own_those_of_the_package_count(self, tmp_path, folder_exists):
        row = verdict(claims.Evidence(tmp_path if folder_exists else None), "cifar-advantage")
        assert row.verdict == "holds"
        assert row.measured.endswith("as recorded in the package)")

    def test_what_a_record_does_not_hold_is_named(self):
        row = verdict(claims.Evidence(sizes=("small",)), "cifar-half-the-epochs")
        assert row.verdict == "not-run"
        assert "no runs of sgd that tell the loss after half the epochs" in row.measured

    @pytest.mark.parametrize("name", IDS)
    def test_a_summary_that_was_written_gives_the_same_verdict(self, summaries, name):
        made, read = (verdict(Known(lambda runs=runs: runs), name) for runs in summaries)
        assert made == read

    @pytest.mark.parametrize(
        ("deleted", "verdicts", "reason"),
        [
            ("method LIKE 'log-ngn%'", ("holds", "fails"), "not finished: no runs of log-ngn)"),
            ("lr > 50", ("holds", "fails"), "not finished: 8 of 9 rates)"),
            ("lr > 1", ("not-run",), "surefoot reproduce cifar10"),
        ],
    )
    def test_of_an_unfinished_sweep_only_what_is_complete_counts(self, tmp_path, folder, deleted, verdicts, reason):
        path = presets.store_of("cifar10", "smoke", tmp_path)
        shutil.copy(presets.store_of("cifar10", "smoke", folder), path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"DELETE FROM runs WHERE {deleted}")
        row = verdict(claims.Evidence(tmp_path, sizes=("smoke",)), "cifar-sps-ngn-hold")
        assert row.verdict in verdicts
        assert reason in row.measured

    def test_a_claim_whose_runs_are_missing_is_not_judged(self, tmp_path, folder):
        path = presets.store_of("cifar10", "smoke", tmp_path)
        shutil.copy(presets.store_of("cifar10", "smoke", folder), path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM runs WHERE lr BETWEEN 5 AND 20")
        row = verdict(claims.Evidence(tmp_path, sizes=("smoke",)), "cifar-delta-explodes")
        assert row.verdict == "not-run"
        assert "no runs of sgd at α = 10" in row.measured

    def test_the_first_size_that_is_there_counts(self, folder):
        evidence = claims.Evidence(folder, sizes=("paper", "smoke"))
        assert [sweep.preset for sweep in evidence.sweeps("cifar10")] == ["smoke"]

    def test_every_size_is_judged_and_the_first_one_decides(self, folder):
        """Those of the folder, then those of the package; what a size lacks is left out."""
        both = claims.Evidence(folder, sizes=("smoke", "small"))
        alone = {
            size: claims.Evidence(folder if size == "smoke" else None, sizes=(size,)) for size in ("smoke", "small")
        }
        row = verdict(both, "cifar-advantage")
        smoke, small = (verdict(alone[size], "cifar-advantage") for size in ("smoke", "small"))
        assert row.verdict == smoke.verdict
        assert row.measured == f"smoke {smoke.verdict}: {smoke.measured}; small {small.verdict}: {small.measured}"
        assert verdict(both, "cifar-half-the-epochs") == verdict(alone["smoke"], "cifar-half-the-epochs")

    def test_a_finished_size_decides_before_an_unfinished_one(self, tmp_path, folder):
        path = presets.store_of("cifar10", "smoke", tmp_path)
        shutil.copy(presets.store_of("cifar10", "smoke", folder), path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM runs WHERE lr > 50")
        alone = verdict(claims.Evidence(sizes=("small",)), "cifar-sps-ngn-hold")
        row = verdict(claims.Evidence(tmp_path, sizes=("smoke", "small")), "cifar-sps-ngn-hold")
        assert row.measured.startswith("smoke ")
        assert "not finished: 8 of 9 rates" in row.measured
        assert row.verdict == alone.verdict == "fails"

    def test_sizes_stand_beside_each_other(self, folder):
        table = {claim.id: found for claim, found in claims.compared(claims.Evidence(folder, sizes=("smoke", "small")))}
        assert list(table) == IDS
        assert all(list(found) == ["smoke", "small"] for found in table.values())
        assert table["cifar-half-the-epochs"]["small"].startswith("there are no runs of sgd that tell")
        assert table["cifar-warmup"]["small"].verdict == "holds"

    def test_the_script_prints_one_row_a_claim_and_one_column_a_size(self, monkeypatch, capsys):
        script = Path(__file__).parents[3] / "scripts" / "claims_table.py"
        monkeypatch.setattr(sys, "argv", [str(script), "small", "smoke"])
        runpy.run_path(str(script), run_name="__main__")
        header, _, *rows = capsys.readouterr().out.splitlines()
        assert header == "| claim | small | smoke | the paper, and the rule that decides |"
        assert [row.split("`")[1] for row in rows] == IDS
        assert all(row.split(" | ")[2] == "–" for row in rows)
        assert rows[0].startswith("| `cifar-sgd-degrades` | holds: window 0.0316–0.316, best rate 0.316 | ")

    def test_methods_with_fewer_rates_are_named(self, results):
        runs = summarise(results)
        for label, count in (("sps", 8), ("ngn", 6), ("sgd+warmup", 8)):
            kept = {name: values[:count] for name, values in runs[label].columns.items()}
            runs[label] = summary.Summary(label, runs[label].lrs[:count], kept)
        row = verdict(Known(lambda: runs), "cifar-sgd-degrades")
        assert row.measured.endswith("not finished: 6 of 9 rates of ngn; 8 of 9 rates of sps, sgd+warmup)")

    def test_rates_that_only_some_methods_have_are_not_compared(self, results):
        runs = summarise(results)
        few = runs["sgd"].lrs < 0.5
        runs["sgd"] = summary.Summary("sgd", runs["sgd"].lrs[few], {k: v[few] for k, v in runs["sgd"].columns.items()})
        row = verdict(Known(lambda: runs), "cifar-any-distance")
        assert row.verdict == "not-run"
        assert "no runs of SGD, SPS and NGN at the same rate from 1 on" in row.measured
