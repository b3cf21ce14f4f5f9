"""Several processes give the answer of one, bit for bit, and leave nothing behind."""

import subprocess
import sys
import textwrap

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import surefoot.optim as sfo
from surefoot.problems import NetworkProblem
from surefoot.search import TorchRun, tune
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


SCRIPT = """
    import surefoot as sf
    from surefoot.search import Progress, Run

    class Slow(Run):
        def __init__(self, lr, seed):
            self.lr, self.step = lr, 0
        def advance(self, k):
            assert started  # a name of the script
            self.step += k
            return Progress([1.0 + self.lr] * k, [0.1] * k)
        def state_dict(self):
            return {"step": self.step}
        def load_state_dict(self, state):
            self.step = state["step"]

    started = True
    print("started", flush=True)
    found = sf.tune(Slow, [0.1, 1.0, 10.0], 64, processes=2, progress=lambda steps, total: print(steps, flush=True))
    print(found.lr)
"""


def test_runs_of_a_script_without_a_guard_travel(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert not ended.stderr
    assert ended.stdout.split()[0] == "started"
    assert ended.stdout.split().count("started") == 1
    assert ended.stdout.split()[-1] == "0.1"


def test_a_search_killed_in_several_processes_goes_on(tmp_path):
    class Stop(Exception):
        pass

    def stop(steps, total):
        if steps > 100:
            raise Stop

    with pytest.raises(Stop):
        tune(recipe(), LRS, 64, processes=2, store=tmp_path / "search", progress=stop)
    again = tune(recipe(), LRS, 64, processes=2, store=tmp_path / "search")
    assert_same(again, tune(recipe(), LRS, 64, processes=1))


def test_short_searches_start_no_process():
    before, started = set(psutil.Process().children()), set()
    tune(recipe(), LRS, 64, progress=lambda steps, total: started.update(psutil.Process().children()))
    assert started <= before
