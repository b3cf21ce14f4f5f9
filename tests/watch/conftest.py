"""Scripts as a user has them, run as a user runs them: real processes, their output and their exit codes."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import textwrap

import pytest


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


@pytest.fixture(scope="module")
def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def watch(tmp_path_factory, environment):
    """Write a script into a folder of its own, watch it, and wait for its end."""

    def run(source, *arguments, options=(), file="train.py", name="train.py", **kwargs):
        folder = tmp_path_factory.mktemp("watched")
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        line = [sys.executable, "-m", "surefoot", "watch", *options, name, *arguments]
        result = subprocess.run(
            line, capture_output=True, text=True, cwd=folder, env=environment, timeout=600, **kwargs
        )
        return Run(result, folder / "surefoot-watch" / "train-1")

    return run
