"""The stochastic proximal point: its steps are the minimisers, its gap holds, and failures leave everything alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optim.optim_problem import Problem, equal

import surefoot.optim as sfo


def closure_of(optimizer: Any, loss: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    return closure


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.01, 10.0), min_size=1, max_size=5),
    st.lists(st.floats(-3.0, 3.0), min_size=5, max_size=5),
    st.floats(1e-3, 1e3),
)
def test_on_a_quadratic_it_is_the_resolvent(curvatures: list[float], start: list[float], lr: float) -> None:
    a = torch.tensor(curvatures, dtype=torch.float64)
    x = torch.nn.Parameter(torch.tensor(start[: len(curvatures)], dtype=torch.float64))
    before = x.detach().clone()
    optimizer = sfo.SPP([x], lr=lr, tolerance=1e-12)
    optimizer.step(closure_of(optimizer, lambda: 0.5 * (a * x.square()).sum()))
    exact = before / (1 + lr * a)
    value = float(0.5 * (a * before.square()).sum())
    envelope = float(0.5 * (a * exact.square()).sum() + (exact - before).square().sum() / (2 * lr))
    delta = optimizer.last_step.delta.item()
    assert float((x.detach() - exact).norm()) <= 1e-4 * float(before.norm()) + 1e-9
    assert delta <= value - envelope + 1e-9 * (1 + value)
    assert delta >= value - envelope - 1e-9 * (1 + value)


@pytest.mark.parametrize("lr", [0.05, 1.0])
def test_on_a_network_the_proximal_problem_is_solved(lr: float) -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, lr, tolerance=1e-10, max_calls=1000)
    start = problem.values()
    before = float(optimizer.step(closure_of(optimizer, lambda: problem.loss(0))))
    after = float(problem.backward(0))
    moves = [p.detach() - x for p, x in zip(problem.params, start, strict=True)]
    slopes = [p.grad + move / lr for p, move in zip(problem.params, moves, strict=True) if p.grad is not None]
    fall = before - after - sum(float(move.square().sum()) for move in moves) / (2 * lr)
    assert optimizer.last_step.delta.item() == pytest.approx(fall, rel=1e-9)
    assert 0.5 * lr * sum(float(slope.square().sum()) for slope in slopes) <= 1e-9 * fall


def test_groups_have_their_own_rates() -> None:
    x, y = (torch.nn.Parameter(torch.tensor(2.0, dtype=torch.float64)) for _ in range(2))
    optimizer = sfo.SPP([{"params": [x], "lr": 1.0}, {"params": [y], "lr": 3.0}], tolerance=1e-10)
    optimizer.step(closure_of(optimizer, lambda: 0.5 * x**2 + 0.5 * y**2))
    assert (x.item(), y.item()) == pytest.approx((1.0, 0.5), rel=1e-4)
    assert optimizer.last_step.size.tolist() == [1.0, 3.0]


def test_at_rate_zero_nothing_moves() -> None:
    x = torch.nn.Parameter(torch.tensor(2.0))
    optimizer = sfo.SPP([x], lr=0.0)
    assert optimizer.step() is None
    optimizer.step(closure_of(optimizer, lambda: x**2))
    assert x.item() == 2.0


def test_a_loss_that_is_not_finite_is_skipped_and_counted() -> None:
    problem = Problem()
    before = problem.values()
    optimizer = sfo.SPP(problem.params)
    optimizer.step(closure_of(optimizer, lambda: problem.loss(0) * math.nan))
    assert equal(before, problem.values())
    assert optimizer.skipped == 1
    assert optimizer.last_step == (0.0, math.inf)
    raising = sfo.SPP(problem.params, on_nonfinite="raise")
    with pytest.raises(ValueError, match="the loss is nan; the parameters are unchanged"):
        raising.step(closure_of(raising, lambda: problem.loss(0) * math.nan))


def test_a_closure_that_fails_leaves_the_parameters_where_they_were() -> None:
    problem = Problem()
    before, calls = problem.values(), []
    optimizer = sfo.SPP(problem.params, 10.0)

    def loss() -> torch.Tensor:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the disk is full")
        return problem.loss(0)

    with pytest.raises(RuntimeError, match="disk"):
        optimizer.step(closure_of(optimizer, loss))
    assert equal(before, problem.values())


def test_a_step_needs_a_closure_that_returns_the_loss() -> None:
    optimizer = sfo.SPP(Problem().params)
    with pytest.raises(ValueError, match=r"SPP.step needs a closure"):
        optimizer.step()
    with pytest.raises(ValueError, match="closure must return the loss, got None"):
        optimizer.step(lambda: None)


def test_calls_are_counted_and_limited() -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, 100.0, tolerance=1e-14, max_calls=10)
    calls = []

    def loss() -> torch.Tensor:
        calls.append(1)
        return problem.loss(0)

    optimizer.step(closure_of(optimizer, loss))
    assert 2 <= len(calls) <= 40


def test_a_copy_goes_on_apart() -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, 0.5)
    optimizer.step(closure_of(optimizer, lambda: problem.loss(0)))
    other = copy.deepcopy(optimizer)
    other.load_state_dict(optimizer.state_dict())
    assert other.last_step.delta == optimizer.last_step.delta
    optimizer.param_groups[0]["memory"].fill_(7.0)
    assert other.last_step.delta != 7.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, r"tolerance must be a number in \(0, 1\), got 0.0"),
        ({"max_calls": 1}, "max_calls must be an integer of at least 2, got 1"),
        ({"on_nonfinite": "stop"}, "on_nonfinite must be one of 'skip', 'raise', got 'stop'"),
        ({"process_group": "world"}, "process_group must be .*, got 'world'"),
        ({"lr": -1.0}, "lr must be a finite number of at least 0, got -1.0"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sfo.SPP(Problem().params, **options)
