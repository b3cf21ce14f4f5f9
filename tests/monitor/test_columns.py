"""The numbers that are kept of every step, and the trace that is made of them."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch

import surefoot.optim as sfo
from surefoot.monitor import NonFinite, StabilityMonitor
from surefoot.monitor._columns import planned_rates
from surefoot.theory import bounds, models, schedules

EVERYTHING = ("loss", "grad_sq", "step", "interval", "update_norm", "distance")


def test_plain_sgd_has_the_index_of_the_linear_model(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        problem.train(optimizer, 10, monitor)
    trace = monitor.trace()
    expected = models.Linear().step(trace.loss.values, trace.grad_sq.values, trace.rate.values).delta
    np.testing.assert_allclose(trace.delta, expected, rtol=1e-12)
    # the interval around the step that was taken shrinks to the same number
    np.testing.assert_allclose(trace.delta_low, expected, rtol=1e-4)
    np.testing.assert_allclose(trace.delta_high, expected, rtol=1e-4)
    assert trace.attrs["delta_source"] == "linear"


@pytest.mark.parametrize("kind", [sfo.SPS, sfo.NGN, sfo.LogNGN])
def test_the_interval_of_a_step_holds_the_index_of_its_model(problem, kind):
    """Our optimizer, taken for a foreign one, knows the answer."""
    optimizer = kind(problem.model.double().parameters(), lr=5.0)
    problem.inputs, problem.targets = problem.inputs.double(), problem.targets.double()
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        problem.train(optimizer, 10, monitor, "loss")
    trace = monitor.trace()
    assert (trace.delta >= trace.delta_low * (1 - 1e-9)).all()
    assert (trace.delta <= trace.delta_high * (1 + 1e-9)).all()


def test_a_foreign_index_is_the_midpoint_and_called_a_heuristic(problem):
    optimizer = torch.optim.AdamW(problem.model.parameters(), lr=1e-2)
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        problem.train(optimizer, 1, monitor)
        before = problem.point()
        fresh = copy.deepcopy(problem)
        fresh.loss().backward()
        gradient = torch.cat([p.grad.reshape(-1) for p in fresh.model.parameters()])
        problem.train(optimizer, 1, monitor)
    promised = float(gradient @ (before - problem.point()))
    assert promised > 0
    assert monitor.trace().delta.values[1] == pytest.approx(0.5 * promised, rel=1e-4)
    assert "heuristic" in monitor.trace().attrs["delta_note"]


def test_without_the_interval_a_foreign_index_is_a_named_stand_in(problem):
    optimizer = torch.optim.AdamW(problem.model.parameters(), lr=1e-2)
    with StabilityMonitor(optimizer) as monitor:
        problem.train(optimizer, 5, monitor)
    assert monitor.trace().attrs["delta_source"] == "linear stand-in"


def test_update_norm_and_distance(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1, momentum=0.9)
    points = [problem.point()]
    with StabilityMonitor(optimizer, track=EVERYTHING) as monitor:
        for _ in range(5):
            problem.train(optimizer, 1, monitor)
            points.append(problem.point())
    trace = monitor.trace()
    expected = [float((b - a).norm()) for a, b in pairwise(points)]
    np.testing.assert_allclose(trace.update_norm, expected, rtol=1e-4)
    np.testing.assert_allclose(trace.distance, [float((p - points[0]).norm()) for p in points[:-1]], rtol=1e-4)


def test_every_looks_at_every_kth_step(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.1)
    with StabilityMonitor(optimizer, every=3, horizon=12) as monitor:
        losses = problem.train(optimizer, 10, monitor)
    trace = monitor.trace()
    assert trace.step.values.tolist() == [0, 3, 6, 9]
    assert trace.loss.values == pytest.approx(losses[::3], rel=1e-6)
    assert trace.attrs["horizon"] == 12


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


def test_a_known_schedule_makes_partial_sums_those_of_the_whole_run(problem):
    factors = schedules.cosine(20)
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=0.2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: float(factors[min(t, 19)]))
    partial = []
    with StabilityMonitor(optimizer, schedule=factors) as monitor:
        for _ in range(20):
            problem.train(optimizer, 1, monitor)
            scheduler.step()
            partial.append(monitor.bound().noise)
    np.testing.assert_allclose(monitor.trace().noise, partial, rtol=1e-9)


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("first", [0.0, 1e-8])
def test_a_schedule_goes_on_from_its_largest_factor(first, every):
    factors = np.concatenate([[first, 0.25, 0.5, 0.75], np.ones(16)])
    seen = np.array([0.0, 0.05, 0.1, 0.15, 0.2, 0.2, 0.2, 0.2])[::every]  # the first rate is another one
    planned = planned_rates(seen, every, 20, factors)
    np.testing.assert_allclose(planned[8:], 0.2)


def test_a_schedule_that_has_only_rested_is_not_known():
    assert planned_rates(np.zeros(2), 1, 4, np.array([0.0, 0.0, 0.5, 1.0])).tolist() == [0.0] * 4


def test_divergence_is_infinite_and_never_nan(problem):
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=1e8)
    with StabilityMonitor(optimizer, stop=[NonFinite()], flush_every=4) as monitor:
        problem.train(optimizer, 12, monitor)
    trace = monitor.trace()
    assert monitor.stopped.step == int(np.flatnonzero(np.isinf(trace.loss + trace.grad_sq + trace.delta))[0])
    for name in ("loss", "grad_sq", "delta", "noise", "counterfactual_delta"):
        assert not np.isnan(trace[name]).any(), name
    assert monitor.verdict().state == "too large"
