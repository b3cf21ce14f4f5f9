"""One word means and accepts the same wherever it is an argument: lrs, schedule, distance, progress."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import surefoot as sf
import surefoot.optim as sfo
from surefoot.search import ProblemRun, TorchRun
from surefoot.theory import schedules

PROBLEM = "linear-regression"
RATES = [0.001, 0.01, 0.1]


def study(**options):
    return sf.Study(PROBLEM, methods="sgd", seeds=1, epochs=2, batch_size=5, **{"lrs": RATES, **options})


def runs():
    return ProblemRun(study().problem, "sgd", batch_size=5)


def recipe(**options):
    inputs, targets = torch.eye(4), torch.arange(4.0)
    return TorchRun(
        lambda: torch.nn.Linear(4, 1),
        lambda seed: [(inputs, targets)],
        lambda model, batch: (model(batch[0]).squeeze(-1) - batch[1]).square().mean(),
        lambda parameters, lr: sfo.SGD(parameters, lr=lr),
        **options,
    )


def monitor(**options):
    return sf.StabilityMonitor(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1), **options)


@pytest.mark.parametrize(
    "lrs", [RATES[::-1], tuple(RATES), np.array(RATES), {"from": 0.001, "to": 0.1, "count": 3}, torch.tensor(RATES)]
)
def test_rates_come_in_any_form_and_order(lrs):
    np.testing.assert_allclose(study(lrs=lrs).lrs, RATES, rtol=1e-6)
    np.testing.assert_allclose([row.lr for row in sf.tune(runs(), lrs, 20).table], RATES, rtol=1e-6)


def test_a_schedule_has_a_name_or_factors():
    factors = schedules.cosine(20)
    for schedule in ("cosine", factors, factors.tolist()):
        np.testing.assert_array_equal(study(schedule=schedule).factors, factors)
        assert sf.tune(runs(), RATES, 20, schedule=schedule).table == sf.tune(runs(), RATES, 20, schedule=factors).table
        found = sf.tune(recipe(schedule=schedule), RATES, 20, processes=1)
        assert found.table == sf.tune(recipe(schedule=factors), RATES, 20, processes=1).table
        watching = monitor(schedule=schedule, horizon=20)
        assert watching.horizon == 20
    with pytest.raises(ValueError, match="schedule='cosine' needs the horizon"):
        monitor(schedule="cosine")
    with pytest.raises(ValueError, match="schedule='cosine' needs the horizon"):
        recipe(schedule="cosine")(0.1)


def test_a_distance_is_a_number_above_zero():
    assert study(distance=2.0).distance == monitor(distance=2.0).distance == 2.0
    for make in (study, monitor):
        with pytest.raises(ValueError, match="distance must be"):
            make(distance=-2.0)


@pytest.mark.parametrize("run", [lambda tell: study().run(progress=tell), lambda tell: sf.tune(study(), progress=tell)])
def test_progress_is_told_how_much_is_done_and_of_how_much(run):
    told = []
    run(lambda done, total: told.append((done, total)))
    assert len({total for _, total in told}) == 1
