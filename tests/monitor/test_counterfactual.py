"""What other methods would have done is what they do at the same point."""

from __future__ import annotations

import pytest
import torch

import surefoot.optim as sfo
from surefoot.monitor import StabilityMonitor

OURS = {
    "sgd": sfo.SGD,
    "sps": sfo.SPS,
    "ngn": sfo.NGN,
    "log-ngn": sfo.LogNGN,
    "power(p=0.75)": sfo.PowerStep,
}


@pytest.mark.parametrize("lr", [1e-3, 0.3, 30.0])
@pytest.mark.parametrize("name", OURS)
def test_counterfactual_equals_a_real_step_of_that_optimizer_at_the_same_point(another, name, lr):
    watched = another()
    optimizer = torch.optim.SGD(watched.model.parameters(), lr=lr)
    monitor = StabilityMonitor(optimizer, models=[name]).attach()
    real = another()
    other = OURS[name](real.model.parameters(), lr=lr)
    real.train(other, 1, style="loss")
    watched.train(optimizer, 1, monitor)
    found = monitor.trace().sel(algorithm=name, step=0)
    assert float(found.counterfactual_size) == pytest.approx(other.last_step.size.item(), rel=1e-9)
    assert float(found.counterfactual_delta) == pytest.approx(other.last_step.delta.item(), rel=1e-9)


def test_counterfactual_with_groups_of_their_own_rates(another):
    def grouped(kind, problem):
        first, last = problem.model[0], problem.model[2]
        return kind([{"params": first.parameters(), "lr": 3.0}, {"params": last.parameters(), "lr": 0.5}], lr=1.0)

    watched, real = another(), another()
    optimizer, other = grouped(torch.optim.SGD, watched), grouped(sfo.SPS, real)
    monitor = StabilityMonitor(optimizer).attach()
    watched.train(optimizer, 1, monitor)
    real.train(other, 1, style="loss")
    found = monitor.trace().sel(algorithm="sps", step=0)
    assert float(found.counterfactual_size) == pytest.approx(other.last_step.size[0].item(), rel=1e-9)
    assert float(found.counterfactual_delta) == pytest.approx(other.last_step.delta.item(), rel=1e-9)
