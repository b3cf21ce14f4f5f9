"""Several processes give the answer of one, bit for bit, and leave nothing behind."""

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import surefoot as sf
import surefoot.optim as sfo
from surefoot.problems import LinearRegression, NetworkProblem
from surefoot.search import ProblemRun, Progress, Run, RunError, TorchRun, tune
from surefoot.study import Study

X = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(dim=1)
LRS = np.geomspace(1e-3, 1e2, 7)


def batches(seed):
    order = torch.randperm(96, generator=torch.Generator().manual_seed(seed))
    return [(X[rows], Y[rows]) for rows in order.split(8)]


def recipe(**options):
    """Batch norm has buffers, dropout draws random numbers."""
    layers = lambda: nn.Sequential(  # noqa: E731
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)
    )
    loss = lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1])  # noqa: E731
    return TorchRun(layers, batches, loss, lambda parameters, lr: sfo.SGD(parameters, lr=lr), **options)


def assert_same(one, other):
    assert one.table == other.table
    assert (one.lr, one.loss, one.steps, one.cost, one.confidence, one.warnings) == (
        other.lr, other.loss, other.steps, other.cost, other.confidence, other.warnings,
    )  # fmt: skip
    for p, q in zip(one.run.model.parameters(), other.run.model.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_answer_does_not_depend_on_the_number_of_processes(tmp_path):
    alone = tune(recipe(), LRS, 64, processes=1, seeds=2)
    assert_same(tune(recipe(), LRS, 64, processes=3, store=tmp_path / "search", seeds=2), alone)


def test_a_study_s_networks_run_side_by_side(tmp_path):
    problem = NetworkProblem(lambda: nn.Linear(6, 3), (X, Y), validation=(X[:12], Y[:12]))
    study = Study(problem, methods=["sgd", "ngn"], lrs=LRS, epochs=4, batch_size=8, seeds=1)
    assert_same(tune(study, processes=2, store=tmp_path / "s.db"), tune(study, processes=1))
    done = study.plan(tmp_path / "s.db").done
    assert done > 0
    before = study.run(tmp_path / "s.db", processes=1).dataset
    assert before.identical(study.run(processes=1).dataset)


@pytest.mark.parametrize("processes", [0, -1, 1.5, True, "two"])
def test_bad_numbers_of_processes(processes):
    with pytest.raises(ValueError, match="processes must be a whole number of at least 1, got"):
        tune(recipe(), LRS, 64, processes=processes)


def test_what_cannot_be_sent_stays_and_says_so(caplog):
    lock = threading.Lock()
    runs = recipe(evaluate=lambda model: 1.0 if lock else 0.0)
    with caplog.at_level(logging.WARNING, "surefoot"):
        found = tune(runs, LRS, 64, processes=2)
    (line,) = caplog.messages
    assert line.startswith("all runs stay in one process: what makes the runs cannot be sent to others (TypeError")
    assert found.lr == tune(runs, LRS, 64, processes=1).lr


def test_runs_that_are_one_computation_stay_and_say_so(caplog):
    runs = ProblemRun(LinearRegression(), "ngn", batch_size=5)
    with caplog.at_level(logging.WARNING, "surefoot"):
        found = tune(runs, LRS, 64, processes=2)
    assert caplog.messages == ["runs that are advanced together as one computation stay in this process"]
    assert found.table == tune(runs, LRS, 64).table


class Doomed(Run):
    """Ends its process, if that is not the one given, or raises."""

    def __init__(self, lr, seed, how):
        self.lr, self.how, self.step = lr, how, 0

    def advance(self, k):
        if isinstance(self.how, int) and self.lr > 1 and os.getpid() != self.how:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.lr > 1 and self.how == "raises":
            raise OSError("disk gone")
        self.step += k
        return Progress([1.0 + abs(np.log10(self.lr) + 1)] * k, [0.1] * k)

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def test_runs_whose_workers_die_are_named():
    parent = os.getpid()
    with pytest.raises(RunError, match=r"the worker process ended twice .* while it computed lr=[1-9]"):
        tune(lambda lr, seed: Doomed(lr, seed, parent), LRS, 64, processes=2)


def test_a_run_that_raises_elsewhere_is_named():
    with pytest.raises(RunError, match=r"the run at lr=.*, seed 0, after 0 steps raised OSError: disk gone") as caught:
        tune(lambda lr, seed: Doomed(lr, seed, "raises"), LRS, 64, processes=2)
    assert isinstance(caught.value.__cause__, OSError)
    assert not multiprocessing.active_children()


SCRIPT = """
    import sys, time
    import surefoot as sf
    from surefoot.search import Progress, Run

    class Slow(Run):
        def __init__(self, lr, seed):
            self.lr, self.step = lr, 0
        def advance(self, k):
            time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else pause)
            self.step += k
            return Progress([1.0 + self.lr] * k, [0.1] * k)
        def state_dict(self):
            return {"step": self.step}
        def load_state_dict(self, state):
            self.step = state["step"]

    pause = 0.0
    print("started", flush=True)
    found = sf.tune(Slow, [0.1, 1.0, 10.0], 64, processes=2, progress=lambda steps: print(steps, flush=True))
    print(found.lr)
"""


def started(tmp_path, *arguments):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(path), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_runs_of_a_script_without_a_guard_travel(tmp_path):
    output, errors = started(tmp_path).communicate(timeout=120)
    assert not errors
    assert output.split()[0] == "started"
    assert output.split().count("started") == 1
    assert output.split()[-1] == "0.1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_no_process_is_left_behind(tmp_path, number):
    process = started(tmp_path, "0.1")
    assert process.stdout.readline() == "started\n"
    process.stdout.readline()  # it is under way
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: the workers get it too
    else:
        os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert not psutil.wait_procs(children, timeout=30)[1]


def test_a_search_killed_in_several_processes_goes_on(tmp_path):
    class Stop(Exception):
        pass

    def stop(steps):
        if steps > 100:
            raise Stop

    with pytest.raises(Stop):
        tune(recipe(), LRS, 64, processes=2, store=tmp_path / "search", progress=stop)
    again = tune(recipe(), LRS, 64, processes=2, store=tmp_path / "search")
    assert_same(again, tune(recipe(), LRS, 64, processes=1))


def test_short_searches_start_no_process(monkeypatch):
    monkeypatch.setattr(multiprocessing.get_context("spawn"), "Process", lambda *_, **__: pytest.fail("started"))
    assert sf.tune(lambda lr: Doomed(lr, 0, "lives"), LRS, 64).lr in LRS
