"""``surefoot watch`` on real scripts of each framework: the loss is the whole step's, the length the trainer's."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.watch.watch_scripts import ACCELERATE, LIGHTNING, RANKS, TRANSFORMERS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "script", "length", "error"),
    [
        ("lightning", LIGHTNING, "128 (Lightning's trainer)", 1e-5),
        ("transformers", TRANSFORMERS, "128 (Transformers' trainer)", 1e-3),
        ("accelerate", ACCELERATE, None, 1e-5),
    ],
)
def test_scripts_of_frameworks(watch, package, script, length, error):
    pytest.importorskip(package)
    found = watch(script)
    assert found.code == 0, found.stderr
    assert ("step 50. " if length is None else f"step 12 of {length}. ") in found.stderr
    assert len(found.trace) == 128
    printed = float(found.stdout.split()[-1])
    assert float(found.trace[0]["loss"]) == pytest.approx(printed, rel=error)
    assert float(found.trace[-1]["loss"]) < printed
    assert " 128 steps. Holds" in found.stderr


@pytest.mark.slow
def test_ranks_of_torchrun_have_one_voice(tmp_path, environment):
    (tmp_path / "train.py").write_text(RANKS)
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    found = subprocess.run(
        [*line, "surefoot", "watch", "train.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    assert sorted(found.stdout.split("\n")) == ["", "rank 0", "rank 1"]
    assert found.stderr.count("watching") == 1
    assert found.stderr.count("40 steps.") == 1
