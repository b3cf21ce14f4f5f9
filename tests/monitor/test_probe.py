"""Looking ahead: forward passes on the line from the start, which change nothing and make the verdict better."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from surefoot.monitor import StabilityMonitor
from surefoot.monitor._evidence import Evidence
from surefoot.monitor._probe import AHEAD, MULTIPLES, along
from surefoot.monitor._weights import PLAIN, PROBED

WITH_START = ("loss", "grad_sq", "step", "distance")
FIELDS = set(Evidence._fields)


def watched(problem, lr, steps=20, horizon=200, track=WITH_START):
    """A monitor that has seen some steps of SGD."""
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=lr)
    with StabilityMonitor(optimizer, horizon=horizon, track=track) as monitor:
        problem.train(optimizer, steps, monitor)
    return monitor


def whole_loss(problem):
    return lambda: (problem.model(problem.inputs) - problem.targets).square().mean()


def test_the_places_are_multiples_of_the_way():
    x, seen = torch.tensor([3.0]), []

    def loss():
        seen.append(x.item())
        return x.sum()

    along([(x, torch.tensor([1.0]))], loss)
    assert seen == pytest.approx([1.0 + 2.0 * multiple for multiple in MULTIPLES])


def test_parameters_are_put_back_bit_for_bit_also_after_an_error(problem):
    monitor = watched(problem, 0.1)
    before = problem.point()
    monitor.probe(whole_loss(problem))
    assert torch.equal(problem.point(), before)
    with pytest.raises(ZeroDivisionError):
        monitor.probe(lambda: 1 / 0)
    assert torch.equal(problem.point(), before)


def test_a_probe_early_or_late_looks_at_the_same_places(problem):
    monitor = watched(problem, 0.1, steps=10)  # of the 20 that a tenth has
    start, here, seen = problem.point(), None, []
    monitor.probe(lambda: seen.append(problem.point()) or 0.0)
    start, here = seen[0], problem.point()
    torch.testing.assert_close(seen[MULTIPLES.index(1.0)], start + 2.0 * (here - start))


def test_what_is_not_finite_is_infinite():
    x = torch.tensor([1.0])
    found = along([(x, torch.tensor([0.0]))], lambda: math.nan if x.item() > 50 else x.item())
    assert np.isinf(found[-2:]).all()
    assert np.isfinite(found[:-2]).all()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_probed_numbers_have_no_units(problem, unit):
    monitor = watched(problem, 1e-4)
    plain = monitor.verdict().details
    assert plain["ahead"] == plain["room"] == 0.0
    loss = whole_loss(problem)
    monitor.probe(lambda: unit * loss())
    details = monitor.verdict().details
    assert 0 < details["ahead"] <= details["room"] <= 1
    assert details["ahead"] == pytest.approx(_gain(monitor, loss), rel=1e-4)


def _gain(monitor, loss):
    monitor.probe(loss)
    losses = monitor._probed
    return (losses[0] - losses[AHEAD]) / losses[0]


def test_short_steps_have_room_ahead_and_long_ones_have_none(another):
    found = {}
    for lr in (1e-4, 3.0):
        problem = another()
        monitor = watched(problem, lr)
        monitor.probe(whole_loss(problem))
        found[lr] = monitor.verdict()
    assert found[1e-4].state == "too small"
    assert found[3.0].state == "too large"


def test_a_start_where_the_loss_is_not_finite_says_nothing(problem):
    monitor = watched(problem, 0.1)
    monitor.probe(lambda: math.inf)
    assert monitor.verdict().details["ahead"] == 0.0


def test_a_probe_needs_the_start_and_a_step(problem):
    with pytest.raises(RuntimeError, match=r'"distance" in track.*track is'):
        watched(problem, 0.1, track=("loss", "step")).probe(whole_loss(problem))
    fresh = StabilityMonitor(torch.optim.SGD(problem.model.parameters(), lr=0.1), track=WITH_START)
    with pytest.raises(RuntimeError, match="no step was seen"):
        fresh.probe(whole_loss(problem))


@pytest.mark.parametrize("weights", [PLAIN, PROBED])
def test_weights_belong_to_numbers_of_the_evidence(weights):
    names = {name for total in weights[:3] for name in total[1]}
    assert names <= FIELDS - (set() if weights is PROBED else {"ahead", "room"})
    assert weights.edge < 0
