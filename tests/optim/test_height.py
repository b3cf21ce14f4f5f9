"""Estimated lower bounds: where they lie, whatever the losses do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optim.optim_problem import Problem, make

import surefoot.optim as sfo


def sight(value: float, decrease: float = 1.0) -> sfo.Sight:
    return sfo.Sight(value, value, value, decrease, decrease, None, 1.0, {})


def test_an_estimate_does_not_end_at_the_loss_nor_rise_after_divergence() -> None:
    problem = Problem()
    optimizer = make("MoMo", problem.params, lr=1e-4, lower_bound="estimate")
    losses = []
    for index in range(200):
        losses.append(float(problem.backward(index)))
        optimizer.step(loss=losses[-1])
    assert 0 < optimizer.lower_bound <= 0.5 * max(losses)
    before = optimizer.lower_bound.item()
    for _ in range(20):
        problem.backward(0)
        optimizer.step(loss=1e35)
    assert optimizer.lower_bound <= max(before, 0.5 * max(losses))


@given(st.lists(st.floats(-10.0, 1e6), min_size=1, max_size=30), st.floats(-20.0, -10.0), st.floats(0.0, 0.99))
@settings(max_examples=200, deadline=None)
def test_a_capped_estimate_stays_between_the_floor_and_the_best(values: list[float], floor: float, cap: float) -> None:
    estimate = sfo.Estimate(floor, cap)
    past = estimate.start()
    for value in values:
        bound = estimate.bound(sight(value), past)
        assert bound <= value
        past |= estimate.after(sight(value), past, bound, 0.5)
        assert past["best"] <= value
        assert floor - 1e-9 <= past["bound"] <= floor + cap * (past["best"] - floor) + 1e-9


@pytest.mark.parametrize(("bound", "reach", "expected"), [(1.0, 2.0, 1.0), (1.0, 0.5, 0.25), (1.0, -3.0, 0.0)])
def test_an_estimated_bound_falls_below_what_the_model_reaches(bound: float, reach: float, expected: float) -> None:
    assert sfo.Estimate().bound(sight(reach), {"bound": bound}) == expected


def test_an_estimated_bound_rises_to_half_of_the_promised_decrease() -> None:
    estimate = sfo.Estimate(cap=None)
    assert estimate.after(sight(2.0, 2.0), estimate.start(), 0.0, 0.5)["bound"] == 1.5
    assert estimate.after(sight(2.0, 9.0), estimate.start(), 0.0, 1.0)["bound"] == 0.0
