"""The help is a guide: what to do first, examples that parse, exit codes."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from surefoot.cli import app
from surefoot.study import Study

GROUP = typer.main.get_command(app)
COMMANDS = {name: command for name, command in GROUP.commands.items() if name not in ("data", "store")}
for group in ("data", "store"):
    COMMANDS |= {f"{group} {name}": command for name, command in GROUP.commands[group].commands.items()}
QUIET = set(COMMANDS) - {"data list", "store ls", "doctor", "forecast"}
"""Commands that show more than their result."""
MACHINE_READ = {"claims", "forecast", "study", "tune", "pep", "doctor", "data list", "store ls"}


def shown(*arguments):
    found = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "120", "TERM": "dumb"})
    assert found.exit_code == 0
    assert found.stderr == ""
    return found.stdout


def test_guide_begins_with_what_to_do_first():
    text = shown()
    first = [text.index(f"surefoot {name} ") for name in ("watch train.py", "study SPEC.toml", "report SPEC.db")]
    assert first == sorted(first)
    assert first[-1] < text.index("Options")
    assert "Exit codes: 0 done, 1 failed on the way, 2 wrong usage, 130 interrupted" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_complete_command_lines(name):
    lines = re.findall(rf"^ +(surefoot {name}\b.*?) *$", shown(*name.split()), re.MULTILINE)
    assert lines
    for line in lines:
        COMMANDS[name].make_context(name, shlex.split(line)[1 + len(name.split()) :])


@pytest.mark.parametrize("name", COMMANDS)
def test_options_for_machines_and_for_silence(name):
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert ("--json" in options) == (name in MACHINE_READ)
    assert ("--quiet" in options) == (name in QUIET)


def test_spec_in_the_help_of_study_is_one(tmp_path):
    lines = re.findall(r"^   (\w+ = .*)", shown("study"), re.MULTILINE)
    (tmp_path / "spec.toml").write_text("\n".join(lines))
    assert Study.from_spec(tmp_path / "spec.toml").plan().total == 81
