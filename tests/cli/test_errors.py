"""How the command fails: exit codes, one sentence, no traceback unless it is asked for; Ctrl-C says what is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings

import pytest
from tests.processes import Program, wait_until
from typer.testing import CliRunner

from surefoot.cli import app
from surefoot.cli._app import reported, resumable


def code_of(raise_it, debug=False):
    with pytest.raises(SystemExit) as stopped, reported(lambda: debug):
        raise_it()
    return stopped.value.code


def failing(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError("disk full"), 1, "error: disk full"),
        (ImportError("no package"), 1, "error: no package"),
        (RuntimeError("solver"), 1, "error: solver"),
        (ZeroDivisionError("by zero"), 1, "unexpected ZeroDivisionError: by zero; `surefoot --debug"),
        (ValueError("lr must be positive"), 2, "error: lr must be positive"),
        (TypeError("methods must be names"), 2, "error: methods must be names"),
        (KeyboardInterrupt(), 130, "interrupted; nothing was begun"),
        (KeyboardInterrupt("3 runs are kept"), 130, "3 runs are kept"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_code_and_one_line(error, code, message, capsys):
    assert code_of(failing(error)) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"surefoot: {message}")


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


def test_debug_shows_the_traceback(tmp_path):
    arguments = [sys.executable, "-m", "surefoot", "--debug", "study", str(tmp_path / "none.toml")]
    found = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    assert "Traceback" in found.stderr
    assert "none.toml" in found.stderr


def test_a_terminal_without_greek_still_gets_the_answer():
    arguments = [sys.executable, "-m", "surefoot", "study", "--help"]
    found = subprocess.run(arguments, capture_output=True, timeout=600, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert found.returncode == 0, found.stderr
    assert b"SPEC.toml" in found.stdout


def test_a_reader_that_has_seen_enough_is_no_error_message():
    command = f"{sys.executable} -m surefoot data list --json | true"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=600)
    assert found.stderr == ""


def test_the_library_has_the_first_word_on_what_is_kept():
    with (
        pytest.raises(KeyboardInterrupt, match=r"runs are in a\.db. The same"),
        resumable("runs are in a.db"),
    ):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt, match=r"^after 3 of 9 runs$"), resumable("runs are in a.db"):
        raise KeyboardInterrupt("after 3 of 9 runs")


LONG = """
problem = "digits-mlp"
methods = ["sgd"]
lrs = [0.01, 0.1, 1.0]
seeds = 50
epochs = 50
batch_size = 16
"""


@pytest.mark.parametrize(("command", "options"), [("study", []), ("tune", ["--processes", "1"])])
def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tmp_path, command, options):
    spec = tmp_path / "spec.toml"
    spec.write_text(LONG)
    # A shell may have told its background jobs, and so these tests, to ignore Ctrl-C.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import surefoot.__main__"
    with Program(code, command, spec, *options) as running:
        wait_until(spec.with_suffix(".db").exists, running)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=300)
    assert running.returncode == 130, errors
    last = errors.strip().splitlines()[-1]
    assert "interrupted" in last
    assert "spec.db" in last
    assert "resume" in last or "goes on" in last
    assert "Traceback" not in errors
