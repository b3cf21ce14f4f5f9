"""Estimated lower bounds: where they lie, whatever the losses do."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optim.optim_problem import Problem, make

import surefoot.optim as sfo


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


def scalars(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def observed(estimate: sfo.Estimate, value: float, memory: dict[str, torch.Tensor]) -> sfo.Bounded:
    value_, decrease = scalars(value=value, decrease=1.0).values()
    return estimate.observe(value_, value_, decrease, memory)


@given(st.lists(st.floats(-10.0, 1e6), min_size=1, max_size=30), st.floats(-20.0, -10.0), st.floats(0.0, 0.99))
@settings(max_examples=100, deadline=None)
def test_a_capped_estimate_stays_between_the_floor_and_the_best(values: list[float], floor: float, cap: float) -> None:
    estimate = sfo.Estimate(floor, cap)
    memory = scalars(**estimate.start())
    for value in values:
        bounded = observed(estimate, value, memory)
        assert bounded.bound <= value
        memory |= bounded.memory
        memory |= estimate.after(*scalars(value=value, decrease=1.0, scale=0.5).values(), memory)
        assert memory["best"] <= value
        assert floor - 1e-9 <= memory["estimate"] <= floor + cap * (memory["best"] - floor) + 1e-9


@pytest.mark.parametrize(("bound", "value", "expected"), [(1.0, 2.0, 1.0), (1.0, 0.5, 0.25), (1.0, -3.0, 0.0)])
def test_an_estimate_falls_below_the_models_value(bound: float, value: float, expected: float) -> None:
    assert observed(sfo.Estimate(), value, scalars(estimate=bound, best=2.0)).bound == expected


@pytest.mark.parametrize(("decrease", "scale", "expected"), [(2.0, 0.5, 1.5), (9.0, 1.0, 0.0)])
def test_an_estimate_rises_to_half_of_the_promised_decrease(decrease: float, scale: float, expected: float) -> None:
    estimate = sfo.Estimate(cap=None)
    step = scalars(value=2.0, decrease=decrease, scale=scale)
    assert estimate.after(*step.values(), scalars(**estimate.start()))["estimate"] == expected
