"""Searches on studies of networks: the study's numbers to the last bit, shared with its store in both directions."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import surefoot.optim as sfo
from surefoot.cli import app
from surefoot.problems import NetworkProblem
from surefoot.runs import Key, Record, States, _work, factory_of
from surefoot.search import RunError, TorchRun, tune
from surefoot.study import Result, Study

INPUTS = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
TARGETS = INPUTS[:, :3].argmax(dim=1)
LRS = np.geomspace(1e-3, 1e2, 6)


class Noisy(nn.Sequential):
    """Batch norm has buffers, dropout draws random numbers."""

    def __init__(self):
        super().__init__(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))


def steep():
    """A network that a large rate leads to infinity."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def squared(outputs, targets):
    return (outputs - nn.functional.one_hot(targets, 3)).square().mean()


def make_study(model=Noisy, loss=None, **changes):
    """Twelve steps an epoch, three epochs."""
    problem = NetworkProblem(model, (INPUTS, TARGETS), loss, validation=(INPUTS[:12], TARGETS[:12]))
    settings = {"methods": ["sgd", "ngn"], "lrs": LRS, "seeds": 1, "epochs": 3, "batch_size": 4}
    return Study(problem, **(settings | changes))


def runs_of(study, position=0):
    return factory_of(study.problem, study.methods[position], study.shared)


def assert_equal_where_known(store, study):
    """Finished runs of the store are those that the study computes."""
    there, fresh = Result.load(store).dataset, study.run(processes=1).dataset
    known = (there.status != "missing").values
    assert known.any()
    for name in there.data_vars:
        np.testing.assert_array_equal(there[name].values[known], fresh[name].values[known], err_msg=name)


def test_a_run_tells_what_the_study_s_does():
    study = make_study(methods=["ngn"], lrs=[0.1])
    run, data = runs_of(study)(0.1, 0), study.run(processes=1).dataset.squeeze()
    parts = [run.advance(k) for k in (5, 20, 11)]
    np.testing.assert_array_equal(np.concatenate([part.losses for part in parts]), data.loss)
    np.testing.assert_array_equal(np.concatenate([part.deltas for part in parts]), data.delta)
    assert run.evaluate() == float(data.last_loss)
    assert run.step == 36
    assert run.distance() > 0


def test_a_run_that_diverges_says_where():
    study = make_study(steep, squared, methods=["sgd"], lrs=[1e10])
    run, data = runs_of(study)(1e10, 0), study.run(processes=1).dataset.squeeze()
    losses, deltas = run.advance(36)
    step = int(data.diverged_at)
    assert len(losses) == len(deltas) < 36
    np.testing.assert_array_equal(losses[:step], data.loss[:step])
    assert np.isinf(losses[step:]).all()


def test_it_finds_a_rate_that_learns():
    study = make_study(seeds=2)
    found = tune(study)
    first = study.problem.initial_losses[0]
    assert found.loss < 0.8 * first
    assert found.run.step == study.steps
    assert study.problem.full_loss(found.run.model) < 0.8 * first
    assert isinstance(found.run.optimizer, sfo.LossOptimizer)


def test_finished_runs_are_those_of_the_study(tmp_path):
    study = make_study(steep, squared, lrs=np.geomspace(1e-3, 1e12, 7))
    found = tune(study, store=tmp_path / "s.db")
    assert "diverged" in {row.outcome for row in found.table}
    assert_equal_where_known(tmp_path / "s.db", study)


def test_networks_with_random_numbers_and_buffers_too(tmp_path):
    study = make_study(methods=["ngn", "adamw"], schedule="cosine")
    tune(study, store=tmp_path / "s.db", max_states=1)  # every switch goes over the disk
    assert_equal_where_known(tmp_path / "s.db", study)


def test_rules_of_the_study_are_refused():
    from surefoot.monitor import NonFinite

    with pytest.raises(ValueError, match="stop must be empty for a search, which ends runs by its own rules"):
        tune(make_study(stop=NonFinite()))


def test_the_command_tunes_a_network_of_the_user_s(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(Path(__file__).parent)  # the module lies beside the spec, not here
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from surefoot.problems import NetworkProblem\n\n"
        "def problem(width=8):\n"
        "    inputs = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))\n"
        "    layers = torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, 3)\n"
        "    return NetworkProblem(lambda: torch.nn.Sequential(*layers), (inputs, inputs[:, :3].argmax(dim=1)))\n"
    )
    (tmp_path / "study.toml").write_text(
        'problem = "mine:problem"\nmethods = ["sgd", "adamw"]\nlrs = { from = 1e-3, to = 1e1, count = 5 }\n'
        "epochs = 3\nbatch_size = 4\nseeds = 1\n\n[problem_options]\nwidth = 16\n"
    )
    ended = CliRunner().invoke(app, ["tune", str(tmp_path / "study.toml"), "--quiet"], catch_exceptions=False)
    sys.modules.pop("mine", None)
    assert ended.exit_code == 0
    assert "of the grid's steps" in ended.stdout
    assert (tmp_path / "study.db").exists()


class Stop(Exception):
    """Ends a sweep or a search in the middle."""


@pytest.fixture
def taken(monkeypatch):
    """Steps that were taken, by rate."""
    steps = {}
    take = TorchRun._step

    def counting(self):
        steps[self.lr] = steps.get(self.lr, 0) + 1
        return take(self)

    monkeypatch.setattr(TorchRun, "_step", counting)
    return steps


def test_what_a_study_has_begun_serves_a_search(tmp_path, monkeypatch, taken):
    study = make_study(methods=["ngn"], seeds=1)
    whole = tune(study, processes=1)
    straight = dict(taken)
    monkeypatch.setattr(_work, "_SAVE_SECONDS", 0.0)
    monkeypatch.setattr(_work, "_SAVE_SHARE", 1e9)
    monkeypatch.setattr(_work, "_LOOK_SECONDS", 0.0)
    take, lr = TorchRun._step, whole.lr

    def stopping(self):
        if self.lr == lr and self.step >= 20:
            raise Stop
        return take(self)

    with monkeypatch.context() as patch:
        patch.setattr(TorchRun, "_step", stopping)
        with pytest.raises(RunError, match="Stop"):
            study.run(tmp_path / "s.db", processes=1)
    states = States(str(tmp_path / "s.db.states"), study._context(), study._seen.identities)
    record = Record(Key("ngn", lr, 0), study.steps)
    states.load(record)
    done = record.taken
    assert 0 < done < study.steps
    taken.clear()
    found = tune(study, processes=1, store=tmp_path / "s.db")
    assert (found.lr, found.loss) == (whole.lr, whole.loss)  # smaller rates are finished in the store, and count
    assert taken[lr] == straight[lr] - done
    for one, other in zip(found.run.model.parameters(), whole.run.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_a_search_has_begun_serves_the_study(tmp_path, taken):
    study = make_study(methods=["ngn"], seeds=1)
    whole = study.run(processes=1).dataset
    total = sum(taken.values())
    taken.clear()

    def stop(steps, total):
        if steps > 60:
            raise Stop

    with pytest.raises(Stop):
        tune(study, processes=1, store=tmp_path / "s.db", progress=stop)
    searched = sum(taken.values())
    assert searched > 60
    taken.clear()
    assert study.run(tmp_path / "s.db", processes=1).dataset.identical(whole)
    assert sum(taken.values()) == total - searched


def test_a_state_that_is_gone_is_computed_anew(tmp_path):
    """As when a study finishes the run at the same time."""
    study = make_study(methods=["ngn"], seeds=1)
    whole = tune(study, processes=1)

    def forget(steps, total):
        for path in tmp_path.glob("s.db.states/*.state"):
            path.unlink()

    found = tune(study, processes=1, store=tmp_path / "s.db", max_states=1, progress=forget)
    assert found.table == whole.table
