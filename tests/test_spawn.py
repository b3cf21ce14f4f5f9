"""A plain script, with no guard around its work, may use several processes."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import surefoot as sf
print("started")
study = sf.Study("linear-regression", methods=["sgd", "sps"], lrs=[0.01, 0.1], seeds=40, epochs=2, batch_size=5)
result = study.run(processes=2)
print(int((result.dataset.status == "finished").sum()))
"""

OWN = """
import numpy as np
import surefoot as sf
from surefoot.problems import SimpleProblem

class Median(SimpleProblem):
    name, features, n_rows = "median", 1, 20

    def describe(self):
        return {}

    def evaluate(self, points, rows):
        gap = points - np.arange(20.0)[rows]
        return abs(gap).mean(axis=1), np.sign(gap).mean(axis=1, keepdims=True)

result = sf.Study(Median(), methods="sgd", lrs=[0.1, 1.0], seeds=40, epochs=2, batch_size=5).run(processes=2)
print(int((result.dataset.status == "finished").sum()))
"""


def run(script, folder):
    path = folder / "script.py"
    path.write_text(script)
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)


def test_script_without_a_guard(tmp_path):
    result = run(SCRIPT, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["started", "160"]


def test_problem_of_the_script_itself_goes_to_its_processes(tmp_path):
    result = run(OWN, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["80"]
