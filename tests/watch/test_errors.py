"""What is asked for and cannot be: a sentence and exit code 2, before anything runs."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from surefoot.cli._main import app


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nothing.py"], "SCRIPT must be a Python file, 'nothing.py' does not exist"),
        (["."], "is a folder; -m runs a package"),
        (["notes.txt"], "SCRIPT must be a Python file (.py, or one that begins with #!…python), got 'notes.txt'"),
        (["binary.py"], "SCRIPT must be a Python file"),
        (["-m", "no.such"], "MODULE after -m must be one that can be imported, got 'no.such'"),
        (["--horizon", "0", "train.py"], "--horizon must be a whole number of at least 1, got 0"),
        (["--horizon", "many", "train.py"], "Invalid value for '--horizon'"),
        (["--out", "notes.txt", "train.py"], "--out must be a folder, 'notes.txt' is a file"),
        (["--unknown", "train.py"], "--unknown"),
        ([], "SCRIPT.py"),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('it runs')")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "binary.py").write_bytes(b"\0\1\2")
    found = CliRunner().invoke(app, ["watch", *arguments], env={"COLUMNS": "200"})
    assert found.exit_code == (1 if "--out" in arguments else 2)
    assert word in found.stderr
    assert found.stdout == ""
    assert "Traceback" not in found.stderr


def test_what_python_says_of_a_broken_script(watch):
    found = watch("def broken(:\n    pass\n")
    assert found.code == 1
    assert "SyntaxError" in found.stderr
    assert "surefoot/" not in found.stderr.replace(str(found.folder.parent), "")
