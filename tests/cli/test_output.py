"""What others have written is shown in the terminal, not obeyed; a spec that is code says so."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from surefoot._base.text import aligned, visible
from surefoot.cli._main import app
from surefoot.cli._output import print_table
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


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\rb", "\x9b2J", "\u202eabc", "\x07", "\x7f"])
def test_control_characters_are_written_out(name):
    shown = visible(name)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    assert "\\" in shown


def test_plain_text_stays_as_it_is():
    assert visible("SPS (λ = 0.1)\n\tnext") == "SPS (λ = 0.1)\n\tnext"


def test_table_keeps_its_columns_with_hostile_names():
    assert "\x1b" not in aligned([["method"], [ESCAPE]])


def test_result_with_a_hostile_name_is_printed_harmless():
    methods = [Method(ESCAPE, models.Linear())]
    result = Study("linear-regression", methods=methods, lrs=[0.01], seeds=1, epochs=1, batch_size=5).run()
    assert "\x1b" not in str(result)
    assert "\\x1b]0;owned" in str(result)
    assert "\x1b" not in str(result.sensitivity())


def test_error_of_the_command_shows_escapes(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(problem="line\\u001b[2Jar"))
    found = run("study", spec)
    assert found.exit_code == 2
    assert "\x1b" not in found.stderr
    assert "\\x1b[2J" in found.stderr


def test_path_with_brackets_is_no_markup(tmp_path, monkeypatch):
    folder = tmp_path / "[red]x"
    folder.mkdir()
    (folder / "spec.toml").write_text(SPEC.format(problem="linear-regression"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    assert "[red]x" in "".join(run("study", folder / "spec.toml").stderr.split())
    assert "[red]x" in "".join(run("doctor").stdout.split())


def test_long_cells_are_folded_not_cut(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["method", "rates"], [["sps(lower_bound=-2.123456789)", "from 0.0123456789 to 0.123456789"]])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "lower_bound=-2.123456789" in "".join(
        line.split("│")[1].strip() for line in shown.splitlines() if "│" in line
    )


def test_data_files_with_escapes_in_their_names_are_listed_harmless(tmp_path, monkeypatch):
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "red\x1b[31m").write_text("1 1:1\n")
    monkeypatch.setenv("SUREFOOT_DATA", str(tmp_path))
    found = run("data", "list")
    assert found.exit_code == 0
    assert "red\\x1b[31m" in found.stdout
    assert "\x1b" not in found.stdout


def test_study_says_which_module_its_spec_imports(tmp_path):
    (tmp_path / "spec_module_of_this_test.py").write_text(MODULE)
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(problem="spec_module_of_this_test:make"))
    found = run("study", spec)
    assert found.exit_code == 0, found.stderr
    expected = f"the spec imports the module spec_module_of_this_test from {tmp_path / 'spec_module_of_this_test.py'}"
    assert expected in found.stderr
    assert "spec imports" not in found.stdout


def test_packages_are_named_before_any_of_their_code_runs(tmp_path):
    package = tmp_path / "spec_package_of_this_test"
    package.mkdir()
    (package / "__init__.py").write_text('import sys\nsys.stderr.write("running\\n")\n')
    (package / "part.py").write_text(MODULE)
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(problem="spec_package_of_this_test.part:make"))
    found = run("study", spec)
    assert found.exit_code == 0, found.stderr
    assert "imports the module spec_package_of_this_test.part" in found.stderr.partition("running")[0]


def test_spec_of_a_known_problem_imports_nothing(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(problem="linear-regression"))
    assert "imports" not in run("study", spec).stderr


@pytest.mark.parametrize("command", ["study", "tune", "report", "init", "data list", "doctor"])
def test_flags_look_like_flags(command):
    text = run(*command.split(), "--help").stdout
    assert "--help" in text
    assert "bool" not in text.lower()
