"""Scripts as a user has them, run as a user runs them: real processes, their output and their exit codes."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


class Run:
    """What a watched script has left behind."""

    def __init__(self, result, folder):
        self.stdout, self.stderr, self.code = result.stdout, result.stderr, result.returncode
        self.folder = folder

    @property
    def trace(self):
        with open(self.folder / "trace.csv", newline="") as file:
            return list(csv.DictReader(file))

    @property
    def page(self):
        return (self.folder / "page.html").read_text(encoding="utf-8")


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "OMP_NUM_THREADS": "1", "HERE": str(tmp_path)}


@pytest.fixture
def command():
    return [sys.executable, "-m", "surefoot", "watch"]


@pytest.fixture
def watch(tmp_path, command, environment):
    """Write a script, watch it, and wait for its end."""

    def run(source, *arguments, options=(), file="train.py", name="train.py", **kwargs):
        (tmp_path / file).write_text(textwrap.dedent(source), encoding="utf-8")
        line = [*command, *options, name, *arguments]
        result = subprocess.run(
            line, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600, **kwargs
        )
        return Run(result, tmp_path / "surefoot-watch" / "train-1")

    return run
