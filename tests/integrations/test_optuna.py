"""The pruner in a real Optuna study over learning rates."""

from __future__ import annotations

import pytest
import torch

from surefoot.monitor import DeltaExplosion, StabilityMonitor

optuna = pytest.importorskip("optuna")
from surefoot.integrations.optuna import PartialBoundPruner, report  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)
STEPS = 60


def train(trial, lr, **options):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 4, generator=generator)
    targets = inputs.sum(1, keepdim=True)
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=lr)
    with StabilityMonitor(optimizer, horizon=STEPS, distance=2.0, **options) as monitor:
        for step in range(STEPS):
            rows = slice(6 * (step % 10), 6 * (step % 10) + 6)
            optimizer.zero_grad()
            loss = (layer(inputs[rows]) - targets[rows]).square().mean()
            loss.backward()
            monitor.record(loss)
            optimizer.step()
            if step % 5 == 4:
                report(trial, monitor)
                if trial.should_prune():
                    raise optuna.TrialPruned
    report(trial, monitor)  # the last step was reported already: Optuna would warn of a second time
    return loss.item()


def run(rates, pruner, **options):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), pruner=pruner)
    for rate in rates:
        study.enqueue_trial({"lr": rate})
    study.optimize(lambda trial: train(trial, trial.suggest_float("lr", 1e-4, 1e4), **options), n_trials=len(rates))
    return {trial.params["lr"]: trial for trial in study.trials}


def test_unstable_rates_are_pruned_early_and_good_ones_are_not():
    trials = run([0.1, 3.0, 0.01, 30.0, 0.2], PartialBoundPruner())
    states = {rate: trial.state.name for rate, trial in trials.items()}
    assert states == {0.1: "COMPLETE", 3.0: "PRUNED", 0.01: "COMPLETE", 30.0: "PRUNED", 0.2: "COMPLETE"}
    assert max(trials[30.0].intermediate_values) == 5


def test_what_a_monitor_has_stopped_is_pruned():
    trials = run([3.0], PartialBoundPruner(), stop=[DeltaExplosion()], flush_every=5)
    assert trials[3.0].state.name == "PRUNED"


def test_without_a_finished_trial_nothing_is_pruned_that_is_finite():
    assert run([0.2], PartialBoundPruner())[0.2].state.name == "COMPLETE"


def test_a_bound_without_distance_is_refused():
    with pytest.raises(ValueError, match="distance"):
        report(None, StabilityMonitor(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), horizon=3))


def test_bad_slack_is_named():
    with pytest.raises(ValueError, match="slack"):
        PartialBoundPruner(slack=0.0)
