"""What `surefoot reproduce` tells: a line a figure, a line a section of claims, what is left out, what to do next."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from surefoot.cli import app
from surefoot.cli._reproduce import summary
from surefoot.paper import claims, figures
from surefoot.paper.claims import Checked


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def rows(verdicts):
    return [Checked(name, f"claim {name}", "a rule", "some numbers", verdict) for name, verdict in verdicts.items()]


def test_the_papers_numbers_are_understood(tmp_path):
    result = command("reproduce", "fig. 3", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert [path.name for path in tmp_path.glob("*.png")] == ["stability-index.png"]
    lines = [line.split() for line in result.stdout.splitlines() if "Figure" in line]
    assert [line[0] for line in lines[1:]] == ["stability-index"]


def test_a_section_of_claims_is_one_line_and_a_failure_a_sentence():
    ids = list(claims.SECTIONS["logistic regression"])
    found = list(summary(rows({name: "fails" if name == ids[2] else "holds" for name in ids})))
    assert found[0] == f"logistic regression: {len(ids) - 1} hold, 1 fail"
    assert found[1:] == [f"  [red]fails[/] claim {ids[2]}. Measured: some numbers. ({ids[2]})"]


def test_claims_that_were_not_checked_are_named():
    ids = claims.SECTIONS["ResNet20 on CIFAR-10"]
    (line,) = summary(rows(dict.fromkeys(ids, "not-run")))
    assert f"{len(ids)} not checked; some numbers" in line
    assert all(name in line for name in ids)


def test_every_claim_is_in_a_section():
    assert [name for ids in claims.SECTIONS.values() for name in ids] == list(claims.all_claims())


@pytest.mark.slow
def test_without_names_nothing_is_left_out_in_silence(tmp_path):
    result = command("reproduce", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    for name in figures.FIGURES:
        assert name in result.stdout
    for section, ids in claims.SECTIONS.items():
        assert len(re.findall(rf"^  {section}: ", result.stdout, re.MULTILINE)) == 1, ids
    assert "Three things to do next" in result.stdout
    assert (tmp_path / "out" / "report.html").exists()
    assert {path.stem for path in (tmp_path / "out").glob("*.pdf")} == set(figures.available())
