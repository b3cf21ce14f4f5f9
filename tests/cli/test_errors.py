"""How the command fails: exit codes, one sentence, no traceback unless it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
from typer.testing import CliRunner

from surefoot.cli._errors import reported
from surefoot.cli._main import app


def code_of(raise_it, debug=False):
    with pytest.raises(SystemExit) as stopped, reported(lambda: debug):
        raise_it()
    return stopped.value.code


def failing(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError("disk full"), 1),
        (ImportError("no package"), 1),
        (RuntimeError("solver"), 1),
        (KeyError("a fault of ours"), 1),
        (ValueError("lr must be positive"), 2),
        (TypeError("methods must be names"), 2),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_code_and_one_line(error, code, capsys):
    assert code_of(failing(error)) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("surefoot: ")
    assert (str(error) or "interrupted") in line


def test_a_fault_of_ours_says_how_to_see_more(capsys):
    code_of(failing(ZeroDivisionError("by zero")))
    assert "unexpected ZeroDivisionError: by zero; `surefoot --debug" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError("lr"), KeyError("lr")], ids=["expected", "ours"])
def test_debug_lets_it_through(error):
    with pytest.raises(type(error)), reported(lambda: True):
        raise error


def test_warnings_are_one_line_without_a_place_in_our_code(capsys):
    with reported(lambda: False), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("the loss was below its lower bound", stacklevel=1)
    assert capsys.readouterr().err == "surefoot: warning: the loss was below its lower bound\n"


@pytest.mark.parametrize("arguments", [["study"], ["studdy"], ["doctor", "--jason"], ["tune", "a.toml", "b.toml"]])
def test_wrong_usage_is_2_and_says_where_help_is(arguments):
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 2
    assert "-h' for help" in found.stderr
    assert "Traceback" not in found.stderr


def test_help_of_a_command_is_no_error():
    found = CliRunner().invoke(app, ["study", "--help"])
    assert (found.exit_code, found.stderr) == (0, "")


def test_debug_may_stand_behind_the_command(tmp_path):
    arguments = [sys.executable, "-m", "surefoot", "study", str(tmp_path / "none.toml"), "--debug"]
    found = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    assert "Traceback" in found.stderr
    assert "none.toml" in found.stderr


def test_a_terminal_without_greek_still_gets_the_answer():
    arguments = [sys.executable, "-m", "surefoot", "init", "--help"]
    found = subprocess.run(arguments, capture_output=True, timeout=600, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert found.returncode == 0, found.stderr
    assert b"SPEC.toml" in found.stdout


def test_a_reader_that_has_seen_enough_is_no_error_message():
    command = f"{sys.executable} -m surefoot data list --json | true"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=600)
    assert found.stderr == ""
