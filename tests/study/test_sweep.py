"""A sweep that is interrupted, or meets a full disk, ends with the same bits; kills are in ``test_many_kills.py``."""

import re
import signal

import numpy as np
import pytest
from tests.processes import Program, wait_until

from surefoot.study import Study

# So many parameters that the engine hands over small chunks, ten of them within about a second.
SWEEP = {
    "problem_options": {"d": 1000},
    "methods": ["sps", "ngn"],
    "lrs": np.geomspace(1e-3, 1e2, 40).tolist(),
    "seeds": 8,
    "epochs": 25,
    "batch_size": 5,
    "every": 10,
}
PROGRAM = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its background jobs to ignore it
from surefoot.study import Study
study = Study("linear-regression", **{SWEEP!r})
print("ready", flush=True)
study.run(sys.argv[1])
"""


@pytest.fixture(scope="module")
def whole():
    """The result of the sweep that nobody interrupted."""
    return Study("linear-regression", **SWEEP).run().dataset


def launch(path):
    process = Program(PROGRAM, path)
    assert process.stdout.readline() == "ready\n"
    return process


def test_ctrl_c_leaves_a_store_that_can_be_resumed(tmp_path, whole, assert_same_bits):
    path = tmp_path / "s.db"
    study = Study("linear-regression", **SWEEP)
    with launch(path) as process:
        wait_until(lambda: study.plan(path).done, process)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    told = re.search(r"interrupted after (\d+) of 640 runs; finished runs are kept", message)
    assert 0 < int(told[1]) <= study.plan(path).done
    assert f"with the store {str(path)!r} to resume" in message
    assert_same_bits(study.run(path).dataset, whole)


def test_a_full_disk_keeps_the_finished_runs(tmp_path, whole, assert_same_bits):
    path = tmp_path / "s.db"
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
    with Program(limit + PROGRAM, path) as process:
        _, message = process.communicate(timeout=60)
    assert re.search(r"StoreError: .*s\.db: .*disk.*; finished runs that were committed are kept", message)
    study = Study("linear-regression", **SWEEP)
    assert 0 < study.plan(path).done < 640
    assert_same_bits(study.run(path).dataset, whole)


def test_worker_processes_change_no_bit(tmp_path, whole, assert_same_bits):
    study = Study("linear-regression", **SWEEP)
    assert_same_bits(study.run(tmp_path / "s.db", processes=2).dataset, whole)
