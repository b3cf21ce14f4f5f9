"""The executor: workers that die, errors, Ctrl-C, what cannot be sent, and how many tasks are under way."""

import logging
import os
import resource
import signal
import threading
import time

import numpy as np
import psutil
import pytest
from tests.processes import Program, wait_until

from surefoot.problems import LinearRegression
from surefoot.runs import Executor, Key, Progress, Record, Run, RunError, RunWork, States
from surefoot.study import Result, RunFailed, Study


class Line(Run):
    """Losses 0, 1, 2, …; what happens at a rate is told by its function."""

    def __init__(self, lr, seed, happens=lambda lr, x: None):
        self.lr, self.x, self.happens = lr, 0.0, happens

    def advance(self, k):
        self.happens(self.lr, self.x)
        losses = self.x + np.arange(k)
        self.x += k
        return Progress(losses, np.ones(k))

    def state_dict(self):
        return {"x": self.x}

    def load_state_dict(self, state):
        self.x = state["x"]


def advance(folder, happens, lrs, processes=2, steps=(10,)):
    work = RunWork({"": lambda lr, seed: Line(lr, seed, happens)}, 20, States(str(folder)), 8)
    records = [Record(Key("", lr, 0), 20) for lr in lrs]
    with Executor(processes=processes) as executor:
        for step in steps:
            executor.advance(work, records, step)
    return records


def test_two_processes_give_the_numbers_of_one(tmp_path):
    for processes in (1, 2):
        for record in advance(tmp_path / str(processes), lambda lr, x: None, [0.1, 0.2, 0.3], processes, (5, 12, 20)):
            np.testing.assert_array_equal(record.losses, np.arange(20.0))
            assert record.complete


def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def fill_memory():
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
    np.ones(2**27)


@pytest.mark.parametrize("end", [be_killed, fill_memory])
def test_a_worker_that_dies_costs_its_task_alone(tmp_path, end):
    def die(lr, x):
        with open(tmp_path / f"{lr}", "a") as file:
            file.write("x")
        if lr == 0.2:
            end()

    records = [Record(Key("", lr, 0), 20) for lr in (0.1, 0.2, 0.3, 0.4, 0.5)]
    work = RunWork({"": lambda lr, seed: Line(lr, seed, die)}, 20, States(str(tmp_path / "states")), 8)
    with (
        Executor(processes=2) as executor,
        pytest.raises(RunError, match=r"ended twice .* lr=0\.2, seed 0\. All"),
    ):
        executor.advance(work, records, 20)
    assert [record.taken for record in records] == [20, 0, 20, 20, 20]
    assert {lr: len((tmp_path / f"{lr}").read_text()) for lr in (0.1, 0.2)} == {0.1: 1, 0.2: 2}


def test_a_worker_that_dies_once_is_forgiven(tmp_path):
    def die(lr, x):
        if lr == 0.2 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    assert all(record.taken == 10 for record in advance(tmp_path / "states", die, [0.1, 0.2, 0.3]))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_raises_is_named_with_its_cause(tmp_path, processes):
    def fail(lr, x):
        if lr == 0.2:
            raise ZeroDivisionError("by zero")

    with pytest.raises(RunError, match=r"the run at lr=0\.2, seed 0, after 0 steps raised ZeroDivisionError") as raised:
        advance(tmp_path, fail, [0.1, 0.2], processes)
    assert "by zero" in str(raised.value)
    assert isinstance(raised.value.__cause__, ZeroDivisionError) or "in fail" in str(raised.value.__cause__)


def test_what_cannot_be_sent_stays_in_this_process(tmp_path, caplog):
    lock = threading.Lock()
    with caplog.at_level(logging.WARNING, "surefoot"):
        records = advance(tmp_path, lambda lr, x: lock.locked(), [0.1, 0.2])
    assert all(record.taken == 10 for record in records)
    assert "all runs stay in one process: what makes the runs cannot be sent to others" in caplog.text


def test_a_run_found_is_where_its_record_stands(tmp_path):
    """Its file may be of an earlier step."""
    states = States(str(tmp_path))
    work = RunWork({"": Line}, 20, states, 1)
    record = Record(Key("", 0.1, 0), 20)
    with Executor(processes=1) as executor:
        executor.advance(work, [record], 5)
        work.leave()
        executor.advance(work, [record], 20)
    work._live.clear()
    assert work.run_of(record).x == 20.0


PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from surefoot.study import Study
study = Study("linear-regression", methods=["sgd", "sps", "ngn"], lrs={"from": 1e-4, "to": 1, "count": 1000}, seeds=20,
              epochs=10, batch_size=5, every=100, problem_options={"d": 5})
def tell(done, total):
    print(done, flush=True)
study.run(sys.argv[1], processes=2, progress=tell)
"""


def test_ctrl_c_ends_within_two_seconds_and_keeps_what_is_done(tmp_path):
    with Program(PROGRAM, tmp_path / "s.db", session=True) as process:
        process.stdout.readline()
        done = int(process.stdout.readline())
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
        seconds = time.monotonic() - begin
    assert "of 60000 runs; finished runs are kept" in message
    assert seconds < 2.0
    assert (Result.load(tmp_path / "s.db").dataset.status == "finished").sum() >= done
    assert not [other for other in psutil.process_iter() if is_of(other, process.pid)]


def test_workers_end_with_a_killed_parent(tmp_path):
    with Program(PROGRAM, tmp_path / "s.db", session=True) as process:
        process.stdout.readline()
        process.kill()
    wait_until(lambda: not [other for other in psutil.process_iter() if is_of(other, process.pid)], seconds=20)


def is_of(process, session):
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.Error):
        return False


@pytest.mark.slow
def test_a_hundred_and_twenty_thousand_runs_finish():
    """More tasks than a pipe holds: the number under way is bounded."""
    study = Study(
        "linear-regression", methods=["sgd", "sps", "ngn"], lrs={"from": 1e-4, "to": 1, "count": 1000}, seeds=40,
        epochs=10, batch_size=5, every=100, problem_options={"d": 5},
    )  # fmt: skip
    assert (study.run().dataset.status == "finished").all()


def test_a_study_whose_worker_dies_has_the_other_runs():
    class Fatal(LinearRegression):
        def prox(self, points, rows, lr):
            os.kill(os.getpid(), signal.SIGKILL)

    study = Study(Fatal(), methods=["sgd", "spp"], lrs=[0.1], seeds=2, epochs=1, batch_size=5)
    with pytest.raises(RunFailed, match=r"ended twice .* spp lr=0\.1") as raised:
        study.run(processes=2)
    assert (raised.value.result.dataset.status.sel(algorithm="sgd") == "finished").all()
    assert (raised.value.result.dataset.status.sel(algorithm="spp") == "missing").all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "ray"}, "engine must be one of auto, dask, got 'ray'"),
        ({"processes": 0}, "processes must be"),
        ({"address": "tcp://a:1"}, "address is for engine='dask', got 'tcp://a:1' with engine='auto'"),
        ({"engine": "dask", "gpus": 1}, "gpus is for an existing cluster"),
        ({"engine": "dask", "processes": 2, "address": "tcp://a:1"}, "processes is for a cluster that is started here"),
        ({"engine": "dask", "address": ""}, "address must be that of a Dask scheduler"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Executor(**options)
