"""The trace: the optimizer's own index, its partial bound, and the steps of other models at the same point."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

import surefoot.optim as sfo
from surefoot.monitor import NonFinite, StabilityMonitor
from surefoot.theory import bounds, models


@pytest.mark.parametrize(("make", "source"), [(torch.optim.SGD, "linear"), (torch.optim.AdamW, "linear stand-in")])
def test_a_foreign_optimizer_has_the_index_of_the_linear_model(problem, make, source):
    optimizer = make(problem.model.parameters(), lr=0.1)
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 10, monitor)
    trace = monitor.trace()
    expected = models.Linear().step(trace.loss.values, trace.grad_sq.values, trace.rate.values).delta
    np.testing.assert_allclose(trace.delta, expected, rtol=1e-12)
    assert trace.attrs["delta_source"] == source


@pytest.mark.parametrize("start", [0, 3, -1, -2, 20])
def test_scalars_are_the_trace_from_a_step_on(problem, start):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    with StabilityMonitor(optimizer, flush_every=4) as monitor:
        problem.train(optimizer, 13, monitor)
    shown, trace = monitor.scalars(start), monitor.trace().isel(step=slice(start, None))
    assert shown["step"].tolist() == trace.step.values.tolist()
    for name in ("loss", "rate", "delta"):
        np.testing.assert_array_equal(shown[name], trace[name].values)
    np.testing.assert_array_equal(shown["size/ngn"], trace.counterfactual_size.sel(algorithm="ngn").values)


def test_the_partial_bound_grows_into_the_bound(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    partial = []
    with StabilityMonitor(optimizer, horizon=30, distance=2.0) as monitor:
        for _ in range(30):
            problem.train(optimizer, 1, monitor)
            partial.append(monitor.bound())
    trace = monitor.trace()
    whole = bounds.last_iterate(trace.rate.values, trace.delta.values, 2.0)
    assert partial[-1].noise == pytest.approx(whole.noise, rel=1e-12)
    assert partial[-1].bias == pytest.approx(whole.bias, rel=1e-12)
    assert all(a.noise <= b.noise for a, b in pairwise(partial))
    np.testing.assert_allclose(trace.noise, [b.noise for b in partial], rtol=1e-12)


@pytest.mark.parametrize("first", [0.0, 1e-8])
def test_a_schedule_goes_on_from_its_largest_factor(problem, first):
    factors = np.concatenate([[first, 0.25, 0.5, 0.75, 0.75, 0.75], np.ones(14)])
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.0)
    with StabilityMonitor(optimizer, schedule=factors) as monitor:
        for rate in (0.0, 0.05, 0.1, 0.15, 0.15, 0.15):
            optimizer.param_groups[0]["lr"] = rate  # the first rate is another one than the schedule's
            problem.train(optimizer, 1, monitor)
    assert monitor.verdict().lr == pytest.approx(0.2)


def test_a_schedule_that_has_only_rested_is_not_known(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.0)
    with StabilityMonitor(optimizer, schedule=[0.0, 0.0, 0.5, 1.0]) as monitor:
        problem.train(optimizer, 2, monitor)
    assert monitor.bound().noise == 0.0


def test_divergence_is_infinite_and_never_nan(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=1e8)
    with StabilityMonitor(optimizer, stop=[NonFinite()], flush_every=4) as monitor:
        problem.train(optimizer, 12, monitor)
    trace = monitor.trace()
    assert monitor.stopped.step == int(np.flatnonzero(np.isinf(trace.loss + trace.grad_sq + trace.delta))[0])
    for name in ("loss", "grad_sq", "delta", "noise", "counterfactual_delta"):
        assert not np.isnan(trace[name]).any(), name
    assert monitor.verdict().state == "too large"


OURS = {
    "sgd": sfo.SGD,
    "sps": sfo.SPS,
    "ngn": sfo.NGN,
    "log-ngn": sfo.LogNGN,
}


@pytest.mark.parametrize(("name", "lr"), [("sgd", 1e-3), ("sps", 30.0), ("ngn", 0.3), ("log-ngn", 30.0)])
def test_counterfactual_equals_a_real_step_of_that_optimizer_at_the_same_point(another, name, lr):
    watched = another()
    optimizer = torch.optim.SGD(watched.model.parameters(), lr=lr)
    monitor = StabilityMonitor(optimizer, models=[name]).attach()
    real = another()
    other = OURS[name](real.model.parameters(), lr=lr)
    real.train(other, 1, style="loss")
    watched.train(optimizer, 1, monitor)
    found = monitor.trace().sel(algorithm=name, step=0)
    assert float(found.counterfactual_size) == pytest.approx(other.last_step.size.item(), rel=1e-5)
    assert float(found.counterfactual_delta) == pytest.approx(other.last_step.delta.item(), rel=1e-5)


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
    assert float(found.counterfactual_size) == pytest.approx(other.last_step.size[0].item(), rel=1e-5)
    assert float(found.counterfactual_delta) == pytest.approx(other.last_step.delta.item(), rel=1e-5)
