"""Output is strict JSON for machines; what others have written is shown in the terminal, not obeyed."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from surefoot._base.text import aligned, visible
from surefoot.cli import app
from surefoot.cli._app import print_json, print_table, say
from surefoot.study import Method, Study
from surefoot.theory import models

ESCAPE = "\x1b]0;owned\x07\x1b[2J"

SPEC = """
problem = "{problem}"
methods = ["sgd"]
lrs = [0.01]
seeds = 1
epochs = 1
batch_size = 5
"""

MODULE = """
from surefoot.problems import create

def make():
    return create("linear-regression")
"""


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def test_json_has_no_infinity_and_no_nan(capsys):
    values = {"a": (1.0, math.inf), "b": [np.float32(-math.inf)], "c": {"d": np.array([math.nan, 2.0])}, "e": {1, 2}}
    print_json({**values, "f": [True, None, 3, np.int64(4)]})

    def refuse(word):
        raise AssertionError(word)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {
        "a": [1.0, "inf"], "b": ["-inf"], "c": {"d": ["nan", 2.0]}, "e": "{1, 2}", "f": [True, None, 3, 4],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\rb", "\x9b2J", "\u202eabc", "\x07", "\x7f"])
def test_control_characters_are_written_out(name, capsys):
    say(name)
    shown = capsys.readouterr().out
    assert shown == f"{visible(name)}\n"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    assert "\\" in shown
    assert visible("SPS (λ = 0.1)\n\tnext") == "SPS (λ = 0.1)\n\tnext"


def test_results_and_tables_with_hostile_names_are_printed_harmless():
    assert "\x1b" not in aligned([["method"], [ESCAPE]])
    methods = [Method(ESCAPE, models.Linear())]
    result = Study("linear-regression", methods=methods, lrs=[0.01], seeds=1, epochs=1, batch_size=5).run()
    assert "\x1b" not in str(result) + str(result.sensitivity())
    assert "\\x1b]0;owned" in str(result)


def test_paths_are_neither_markup_nor_commands(tmp_path, monkeypatch):
    folder = tmp_path / "[red]x\x1b[2J"
    folder.mkdir()
    spec = folder / "spec.toml"
    spec.write_text(SPEC.format(problem="line\\u001b[2Jar"))
    found = run("study", spec)
    assert (found.exit_code, "\x1b" in found.stderr, "line\\x1b[2Jar" in found.stderr) == (2, False, True)
    spec.write_text(SPEC.format(problem="linear-regression"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    for arguments in (["study", spec], ["tune", spec, "--processes", 1], ["doctor"],
                      ["report", folder / "spec.db", "-o", folder / "page.html"]):  # fmt: skip
        found = run(*arguments)
        assert found.exit_code == 0, found.stderr
        assert "\x1b" not in found.output
        assert arguments[0] == "tune" or "[red]x\\x1b[2J" in "".join(found.output.split())


def test_long_cells_are_folded_not_cut(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["method", "rates"], [["sps(lower_bound=-2.123456789)", "from 0.0123456789 to 0.123456789"]])
    shown = capsys.readouterr().out
    assert "…" not in shown
    cells = [line.split("│")[1].strip() for line in shown.splitlines() if "│" in line]
    assert "lower_bound=-2.123456789" in "".join(cells)


@pytest.mark.parametrize("name", ["spec_module_of_this_test", "spec_package_of_this_test.part"])
def test_modules_that_a_spec_imports_are_named_before_their_code_runs(tmp_path, name):
    package, _, part = name.partition(".")
    loud = 'import sys\nsys.stderr.write("running\\n")\n'
    if part:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(loud)
        (tmp_path / package / f"{part}.py").write_text(MODULE)
    else:
        (tmp_path / f"{package}.py").write_text(loud + MODULE)
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(problem=f"{name}:make"))
    found = run("study", spec)
    assert found.exit_code == 0, found.stderr
    assert f"the spec imports the module {name} from {tmp_path}" in found.stderr.partition("running")[0]
    assert "spec imports" not in found.stdout


def test_spec_of_a_known_problem_imports_nothing(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(problem="linear-regression"))
    assert "imports" not in run("study", spec).stderr
