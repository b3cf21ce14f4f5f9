"""A sweep that is killed, or shares its file with another process, ends with the same bits."""

import random
import re
import signal
import time

import numpy as np
import pytest
from tests.processes import Program, wait_until

from surefoot.study import Result, Study

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
    """The result of the sweep that nobody interrupted, and the seconds it took."""
    start = time.perf_counter()
    found = Study("linear-regression", **SWEEP).run()
    return found.dataset, time.perf_counter() - start


def launch(path):
    process = Program(PROGRAM, path)
    assert process.stdout.readline() == "ready\n"
    return process


def kill_and_resume(path, delay, whole, assert_same_bits):
    """Kill a sweep after some seconds, resume it here; the runs that had been committed by then."""
    with launch(path) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    study = Study("linear-regression", **SWEEP)
    plan = study.plan(path)
    computed = []
    resumed = study.run(path, progress=lambda done, total: computed.append(done))
    assert max(computed, default=0) == plan.todo == plan.total - plan.done
    assert_same_bits(resumed.dataset, whole)
    assert_same_bits(Result.load(path).dataset, whole)
    return plan.done


@pytest.mark.parametrize("moment", range(3))
def test_a_killed_sweep_resumes_to_the_same_bits(tmp_path, whole, assert_same_bits, moment):
    dataset, seconds = whole
    delay = random.Random(moment).uniform(moment / 3, (moment + 1) / 3) * seconds
    kill_and_resume(tmp_path / "s.db", delay, dataset, assert_same_bits)


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
    assert_same_bits(study.run(path).dataset, whole[0])


def test_a_full_disk_keeps_the_finished_runs(tmp_path, whole, assert_same_bits):
    path = tmp_path / "s.db"
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
    with Program(limit + PROGRAM, path) as process:
        _, message = process.communicate(timeout=60)
    assert re.search(r"StoreError: .*s\.db: .*disk.*; finished runs that were committed are kept", message)
    study = Study("linear-regression", **SWEEP)
    assert 0 < study.plan(path).done < 640
    assert_same_bits(study.run(path).dataset, whole[0])


def test_worker_processes_change_no_bit(tmp_path, whole, assert_same_bits):
    study = Study("linear-regression", **SWEEP)
    assert_same_bits(study.run(tmp_path / "s.db", processes=2).dataset, whole[0])
