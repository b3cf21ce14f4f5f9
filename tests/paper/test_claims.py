"""The claims: their rules on numbers that meet them and on numbers that do not, and verdicts on real runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xarray as xr

from surefoot.paper import claims

LRS = np.logspace(-2, 2, 9)
IDS = list(claims.SECTIONS["ResNet20 on CIFAR-10"])
# Final losses of ResNet20 over LRS in kind: SGD fails from α = 1 on, warmup buys it a decade, SPS and NGN hold to 10.
LOSSES = {
    "sgd": [1.65, 1.3, 0.9, 0.72, 1.4, 2.2, np.inf, 4.5, 48.0],
    "sps": [1.65, 1.3, 0.85, 0.65, 0.6, 0.62, 0.7, 1.9, 2.5],
    "ngn": [1.66, 1.3, 0.86, 0.66, 0.6, 0.61, 0.68, 1.4, 2.1],
    "log-ngn": [1.66, 1.3, 0.86, 0.66, 0.6, 0.61, 0.68, 1.4, 2.1],
    "sgd+warmup": [1.7, 1.3, 0.9, 0.7, 0.66, 0.75, 2.0, 3.0, np.inf],
}


@pytest.fixture
def sweep():
    """The numbers of a sweep that shows what the paper says, for two seeds."""
    losses = xr.DataArray(list(LOSSES.values()), {"algorithm": list(LOSSES), "lr": LRS}, ("algorithm", "lr"))
    losses = losses.expand_dims(seed=[0, 1]).copy()
    early = xr.where(losses.algorithm == "sgd", 50.0, 5.0) * xr.ones_like(losses)
    columns = dict.fromkeys(("loss", "half_loss", "end_loss", "valid_loss", "bound", "half_bound", "noise"), losses)
    columns |= {"early_delta": early, "polyak": 0.3 * xr.ones_like(early)}
    columns |= dict.fromkeys(("least_polyak", "first_polyak"), 0.1 * xr.ones_like(early))
    columns["travel"] = 10.0 * xr.ones_like(early)
    columns["travel"].loc[{"algorithm": "sps", "lr": LRS[5]}] = 40.0
    data = xr.Dataset({name: values.copy() for name, values in columns.items()})
    return data.assign_attrs(reference=float(np.log(10)), distance=10.0, epochs=5)


def verdict(name, **sweeps):
    (row,) = claims.check([name], sweeps=sweeps)
    return row


class TestRules:
    @pytest.mark.parametrize("name", [name for name in IDS if name != "cifar-sps-best-rates"])
    def test_the_papers_picture_holds(self, sweep, name):
        row = verdict(name, paper=sweep)
        assert row.verdict == "holds", row.measured

    @pytest.mark.parametrize(
        ("name", "column", "algorithm", "lrs", "value"),
        [
            ("cifar-sgd-degrades", "loss", "sgd", slice(None), 0.6),
            ("cifar-sps-ngn-hold", "loss", "sps", slice(1.1, None), 1.9),
            ("cifar-log-ngn", "loss", "log-ngn", slice(1.1, None), 1.9),
            ("cifar-advantage", "loss", "ngn", slice(3, 4), 3.0),
            ("cifar-warmup", "loss", "sgd+warmup", slice(0.5, None), 1.4),
            ("cifar-warmup-bound", "bound", "sgd+warmup", slice(0.5, None), 9.0),
            ("cifar-bound-best-rate", "bound", "sps", slice(9, 11), 0.1),
            ("cifar-sps-best-rates", "loss", "sps", slice(0.3, 0.4), 0.1),
            ("cifar-bound-mirrors-loss", "bound", "ngn", slice(0.9, None), 9.0),
            ("cifar-any-distance", "noise", "sgd", slice(None), 0.1),
            ("cifar-delta-explodes", "early_delta", "sgd", slice(None), 49.0),
            ("cifar-warmup-delta", "early_delta", "sgd+warmup", slice(None), 5.1),
            ("cifar-polyak-ratio", "least_polyak", "sps", slice(None), 0.11),
            ("cifar-half-the-epochs", "half_loss", "sps", slice(None), 3.0),
            ("cifar-validation", "valid_loss", "sps", slice(1.1, None), 1.9),
            ("cifar-distance", "travel", ["sgd", "sps", "ngn"], slice(None), 31.0),
            ("cifar-norms", "travel", "sps", slice(None), 10.0),
        ],
    )
    def test_numbers_that_break_a_rule_fail_it(self, sweep, name, column, algorithm, lrs, value):
        where = {"algorithm": algorithm, "lr": lrs}
        sweep[column].loc[where] = value
        assert verdict(name, paper=sweep).verdict == "fails"

    def test_a_method_that_never_trains_has_no_window_and_no_gain(self, sweep):
        sweep.loss.loc[{"algorithm": "sgd"}] = np.inf
        assert verdict("cifar-warmup", paper=sweep).verdict == "fails"

    def test_revised_rules_are_judged_on_other_seeds_than_the_first(self, sweep):
        sweep.half_loss.loc[{"algorithm": "sps", "seed": 0}] = 9.0
        assert verdict("cifar-half-the-epochs", paper=sweep).verdict == "holds"
        row = verdict("cifar-half-the-epochs", paper=sweep.sel(seed=[0]))
        assert row.verdict == "not-run"
        assert "no verdict, seed 0: " in row.sweeps["paper"]
        assert row.sweeps["before"].endswith("medium fails")

    def test_the_most_trusted_size_decides_and_the_others_stand_beside_it(self, sweep):
        bad = sweep.copy(deep=True)
        bad.loss.loc[{"algorithm": "sgd"}] = 0.6
        row = verdict("cifar-sgd-degrades", paper=sweep, small=bad)
        assert row.verdict == "holds"
        assert row.measured.endswith("(paper, seeds 0, 1)")
        assert row.sweeps["paper"].startswith("holds, seeds 0, 1: ")
        assert row.sweeps["small"].startswith("fails, seeds 0, 1: ")

    def test_a_seed_that_was_run_in_part_is_called_so(self, sweep):
        sweep.early_delta.loc[{"algorithm": "ngn", "seed": 1}] = np.nan
        assert verdict("cifar-delta-explodes", start=sweep).sweeps["start"].startswith("holds, seeds 0, 1 (in part): ")

    def test_what_a_size_lacks_is_named(self, sweep):
        without = sweep.drop_sel(algorithm="log-ngn")
        assert "of LogNGN" in verdict("cifar-log-ngn", medium=without).measured
        assert verdict("cifar-log-ngn", medium=without, small=sweep).verdict == "holds"
        assert "no runs of SGD at α = 10" in verdict("cifar-advantage", small=sweep.sel(lr=slice(2))).measured
        assert (
            "fewer than three rates of SGD" in verdict("cifar-sgd-degrades", small=sweep.sel(lr=slice(0.05))).measured
        )
        assert (
            "there is no training loss at the last"
            in verdict("cifar-advantage", start=sweep.drop_vars("loss")).measured
        )


QUICK = ("toy-function", "quadratics", "weakly-convex", "regression-stable-ranges", "level-repairs-v3", "orabona")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return {row.id: row for row in claims.check(QUICK, folder=tmp_path_factory.mktemp("studies"))}


class TestTable:
    def test_quick_claims_hold_and_say_what_was_measured(self, rows):
        assert tuple(rows) == QUICK
        for row in rows.values():
            assert set(dataclasses.asdict(row)) == {"id", "claim", "rule", "measured", "verdict", "sweeps"}
            assert row.verdict == "holds"
            assert row.rule
            assert row.measured

    def test_records_of_the_package_judge_what_is_not_revised(self):
        rows = {row.id: row for row in claims.check(IDS)}
        assert all("revised" in row.rule for row in rows.values() if row.verdict == "not-run")
        assert rows["cifar-sps-ngn-hold"].measured.endswith("(medium, seed 0)")
        assert rows["cifar-sps-best-rates"].verdict == "fails"
        assert all({"medium", "small"} <= set(row.sweeps) for row in rows.values())

    def test_without_any_sweep_nothing_is_judged(self):
        assert verdict("cifar-warmup").verdict == "not-run"

    def test_ids_are_unique_and_unknown_ones_are_named(self):
        assert len(claims.all_claims()) == sum(map(len, claims.SECTIONS.values()))
        with pytest.raises(ValueError, match=r"claim must be .*, got 'orabonna'; did you mean 'orabona'"):
            claims.check(["orabonna"])

    def test_progress_counts_claims(self):
        seen = []
        claims.check(["quadratics"], progress=lambda *state: seen.append(state))
        assert seen == [(1, 1)]

    @pytest.mark.slow
    def test_all_claims_can_be_checked(self, tmp_path):
        rows = claims.check(folder=tmp_path)
        assert all("revised" in row.rule for row in rows if row.verdict == "not-run")
        fail = {row.id for row in rows if row.verdict == "fails" and not row.sweeps}
        assert fail == {"ngn-lipschitz-rate", "regression-log-ngn", "vowel-reason"}  # as docs/reproduction.md says
