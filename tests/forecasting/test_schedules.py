"""A schedule's name means the same wherever one is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.forecasting.forecast_cases import make

import surefoot as sf
from surefoot.theory import schedules

STEPS = 40
NAMES = (
    "constant", "constant(warmup=3)", "warmup(steps=3)", "linear(end=0.1)", "cos", "cosine(warmup=2, end=0.2)",
    "wsd(cooldown=0.4)", "wsd(warmup=5, cooldown=0.5, shape='sqrt')", "inverse_sqrt(warmup=4)",
    "inverse-sqrt(offset=2)",
)  # fmt: skip


@pytest.fixture(scope="module")
def fit():
    return sf.forecast([{**row, "warmup": 0} for row in make()])


def study(schedule):
    return sf.Study("linear-regression", methods=["sgd"], lrs=[0.1], epochs=2, batch_size=5, schedule=schedule)


@pytest.mark.parametrize("name", NAMES)
def test_a_study_and_a_forecast_take_the_name(fit, name):
    steps = study("constant").steps
    np.testing.assert_array_equal(study(name).factors, schedules.from_name(name, steps))
    assert fit.predict(0.01, name, 400) == fit.predict(0.01, schedules.from_name(name, 400))


@pytest.mark.parametrize("name", NAMES)
def test_a_training_and_its_search_take_the_name(name):
    run = sf.TorchRun(
        lambda: torch.nn.Linear(1, 1),
        lambda seed: [torch.ones(1, 1)],
        lambda model, batch: model(batch).square().mean(),
        torch.optim.SGD,
        schedule=name,
    )
    found = sf.tune(run, lrs=[0.1], horizon=STEPS, schedule=name)  # it refuses factors that are not those of the run
    np.testing.assert_array_equal(run.factors(STEPS), schedules.from_name(name, STEPS))
    assert found.lr == 0.1


@pytest.mark.parametrize("name", NAMES)
def test_a_monitor_takes_the_name(name):
    def noise(schedule):
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.no_grad():
            model.weight.fill_(1.0), model.bias.fill_(0.0)
        with sf.StabilityMonitor(optimizer, horizon=STEPS, schedule=schedule) as monitor:
            loss = model(torch.ones(1, 1)).square().sum()
            loss.backward()
            optimizer.step()
            monitor.record(loss)
        return monitor.bound().noise  # weighs the first index by the rates to come

    assert noise(name) == noise(schedules.from_name(name, STEPS)) > 0


@pytest.mark.parametrize("warmup", [0, 20])
def test_every_schedule_that_a_forecast_offers_is_one_for_a_study(warmup):
    fit = sf.forecast([{**row, "warmup": warmup} for row in make()])
    total = study("constant").steps
    for option in fit.best(steps=1200).table:
        expected = schedules.from_name(option.schedule, 1200)
        assert fit.predict(option.lr, expected).loss == pytest.approx(option.loss)
        if warmup < total:
            assert study(option.schedule).factors.shape == (total,)
    plan = fit.best_schedule(steps=total + warmup)
    assert study(plan.factors[warmup:]).factors.shape == (total,)
