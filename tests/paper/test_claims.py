"""The claims table: its shape, its rules on quick studies, and its verdicts on evidence that is known."""

from __future__ import annotations

import dataclasses

import pytest

from surefoot.paper import claims

QUICK = [
    "toy-function",
    "quadratics",
    "regression-stable-ranges",
    "spp-overtakes-sps",
    "v3-lower-bound",
    "v3-lower-bound-strictly",
    "orabona",
    "cifar-warmup",
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    return {row.id: row for row in claims.check(QUICK, folder=folder)}


def test_every_row_says_what_was_measured(rows):
    assert list(rows) == QUICK
    for row in rows.values():
        assert set(dataclasses.asdict(row)) == {"id", "claim", "rule", "measured", "verdict"}
        assert row.rule
        assert row.measured or row.verdict == "not-run"


def test_verdicts_are_those_of_the_runs(rows):
    assert rows["regression-stable-ranges"].verdict == "holds"
    assert rows["orabona"].verdict == "holds"
    # SPS with a bad lower bound stays finite where SGD diverges: the strict reading of V3 is not what happens.
    assert rows["v3-lower-bound-strictly"].verdict == "fails"
    assert rows["cifar-warmup"].verdict == "fails"  # in the medium sweep, as recorded in the package


def test_what_comes_with_the_package_judges_every_claim_about_networks():
    evidence = claims.Evidence()
    rows = [claims.judge(claim, evidence) for claim in claims.SECTIONS["ResNet20 on CIFAR-10"].values()]
    assert [row.id for row in rows if row.verdict == "not-run"] == []
    assert [sweep.preset for sweep in evidence.sweeps("cifar10")] == ["medium", "small"]
    assert next(row for row in rows if row.id == "cifar-sps-ngn-hold").measured.startswith("medium holds: ")


def test_a_rule_that_is_not_met_is_reported_as_failing():
    claim = claims.Claim("x", "the moon is cheese", "its density is below 1", lambda _: claims.Finding(False, "3.34"))
    assert claims.judge(claim, claims.Evidence()).verdict == "fails"


def test_ids_are_unique_and_unknown_ones_are_named():
    assert len(claims.all_claims()) >= 20
    with pytest.raises(ValueError, match=r"claim must be .*, got 'orabonna'; did you mean 'orabona'"):
        claims.check(["orabonna"])


def test_progress_is_told():
    told = []
    claims.check(["quadratics"], progress=lambda *state: told.append(state))
    assert told == [(1, 1)]


@pytest.mark.slow
def test_all_claims_can_be_checked(tmp_path):
    rows = claims.check(folder=tmp_path)
    assert {row.verdict for row in rows} <= {"holds", "fails", "not-run"}
    assert all(row.id.startswith("cifar-") for row in rows if row.verdict == "not-run")
