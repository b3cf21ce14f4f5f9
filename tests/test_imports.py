"""What takes long to import is imported where it is used: a fresh process does more and more, and tells what came."""

import json
import subprocess
import sys

import pytest

HEAVY = ("jax", "matplotlib", "pandas", "plotly", "pydantic", "rich", "scipy", "scipy.stats", "torch", "xarray")
STAGES = {
    "package and command": ("import surefoot, surefoot.cli", set(HEAVY) - {"rich", "scipy.stats"}),
    "studies": ("import surefoot.study", {"torch", "matplotlib", "pandas", "xarray", "scipy.stats", "rich", "jax"}),
    "stop rules": ("from surefoot.monitor import NonFinite", {"torch"}),
    "data and problems": ("import surefoot.data, surefoot.problems; surefoot.data.digits()", {"torch"}),
    "a convex study": (
        "from surefoot.study import Study\n"
        "study = Study('linear-regression', methods=['sgd', 'spp'], lrs=[0.1], seeds=1, epochs=1, batch_size=5)\n"
        "result = study.run()\n"
        "result.bound(1.0), result.sensitivity(1.0)",
        {"torch"},
    ),
    "a convex search": (
        "from surefoot.search import ProblemRun, tune\n"
        "tune(ProblemRun(surefoot.problems.LinearRegression(), 'sgd', batch_size=5), [0.01, 0.1], 20)",
        {"torch"},
    ),
}
"""What is done, in this order, and what must not have been imported by it."""


@pytest.fixture(scope="module")
def loaded():
    """The heavy modules that each stage has brought in."""
    program = [
        "import json, sys",
        "def heavy():",
        f"    return {{name for name in {HEAVY!r} if name in sys.modules}}",
        "found = []",
    ]
    for code, _ in STAGES.values():
        program += ["before = heavy()", code, "found.append(sorted(heavy() - before))"]
    program.append("print(json.dumps(found))")
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return dict(zip(STAGES, json.loads(ended.stdout), strict=True))


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_heavy_is_imported_before_it_is_needed(loaded, stage):
    assert STAGES[stage][1].isdisjoint(loaded[stage])
