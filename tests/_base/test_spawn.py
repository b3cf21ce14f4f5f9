"""A plain script, with no guard around its work, may use several processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
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

print("started")
result = sf.Study(Median(), methods="sgd", lrs=[0.1, 1.0], seeds=40, epochs=2, batch_size=5).run(processes=2)
print(int((result.dataset.status == "finished").sum()))
"""


def test_a_script_without_a_guard_runs_once_and_its_own_problem_goes_to_its_processes(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    result = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["started", "80"]


ALLOCATING = """
import resource, sys
from surefoot._base.spawn import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
import numpy as np
begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    np.ones(8_000_000)  # 64 MB, more than malloc keeps by itself
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc of other systems has no such options")
def test_memory_that_is_kept_costs_its_pages_once(tmp_path):
    def faults(how):
        return int(subprocess.check_output([sys.executable, "-c", ALLOCATING, how], text=True, timeout=120))

    assert 10 * faults("keep") < faults("leave")
