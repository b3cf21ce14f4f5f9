"""Losses below their bound, negative ones, and ones that are not finite: they train, or there is a word about it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from tests.optim.optim_problem import NAMES, UNBOUNDED, Problem, equal, make, prepared, train

import surefoot.optim as sfo
from surefoot.theory import models


def shifted(problem: Problem, optimizer: Any, shift: float, steps: int) -> float:
    loss = math.inf
    for index in range(steps):
        loss = float(optimizer.step(loss=problem.backward(index) + shift)) - shift
    return loss


def test_skipped_first_steps_are_worth_one_warning() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    with pytest.warns(UserWarning, match=r"NGN has skipped its first steps .* below lower_bound=0") as caught:
        shifted(problem, optimizer, -100.0, 60)
    assert len(caught) == 1


def test_losses_that_are_not_finite_are_worth_a_word() -> None:
    problem = Problem()
    optimizer = make("SGD", problem.params)
    train(problem, optimizer, range(10))
    with pytest.warns(
        UserWarning, match="SGD has skipped many steps in a row: the loss is nan; the training has diverged"
    ):
        shifted(problem, optimizer, math.nan, 40)


def test_a_skipped_step_now_and_then_is_no_reason_to_speak() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for index in range(60):
            loss = problem.backward(index)
            optimizer.step(loss=loss if index % 4 == 0 else -1.0)
    assert told == []
    assert optimizer.violations == 45


@pytest.mark.parametrize("name", ["SPS", "NGN", "MoMo", "NGNAdam", "SPSMuon"])
def test_an_estimate_with_a_negative_floor_trains_negative_losses(name: str) -> None:
    problem = Problem()
    optimizer = make(name, problem.params, lr=0.03, lower_bound=sfo.Estimate(floor=-110.0))
    first = float(problem.backward(0))
    assert shifted(problem, optimizer, -100.0, 60) < 0.5 * first
    assert optimizer.skipped == 0


def spoiled_gradient(problem: Problem) -> None:
    assert problem.params[2].grad is not None
    problem.params[2].grad[0, 0] = math.nan


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_skipped_and_counted(name: str, what: str) -> None:
    problem, optimizer, loss = prepared(name)
    if what == "gradient":
        spoiled_gradient(problem)
    before, state = problem.values(), [t.clone() for s in optimizer.state.values() for t in s.values()]
    optimizer.step(loss=loss * (math.nan if what == "loss" else 1.0))
    assert equal(before, problem.values())
    assert equal(state, [t for s in optimizer.state.values() for t in s.values()])
    assert optimizer.skipped == 1
    assert optimizer.last_step == (0.0, math.inf)


@pytest.mark.parametrize("size", [1e30, 3e37, 3e38])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_that_are_finite_and_huge_leave_finite_parameters(name: str, size: float) -> None:
    params = [torch.nn.Parameter(torch.ones(4, 4)), torch.nn.Parameter(torch.ones(4))]
    optimizer = make(name, params, listen=False)
    for scale in (1.0, size, 1.0):
        for p in params:
            p.grad = torch.full_like(p, scale)
        optimizer.step(loss=1.0)
    assert all(bool(p.isfinite().all()) for p in params)


class Lost(sfo.Geometry):
    """A geometry that finds no norm, as LAPACK may not find eigenvalues."""

    def direction(self, gradient: torch.Tensor, buffers: Any, count: Any) -> torch.Tensor:
        return math.nan * gradient


@pytest.mark.parametrize("averaging", [None, sfo.HeavyBall(0.9)])
def test_a_norm_that_is_not_found_is_skipped_and_counted(averaging: sfo.HeavyBall | None) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = sfo.ModelBased([parameter], lr=1.0, model=models.Truncated(), geometry=Lost(), momentum=averaging)
    parameter.grad = torch.ones(3)
    optimizer.step(loss=1.0)
    assert equal([parameter], [torch.ones(3)])
    assert optimizer.skipped == 1
    assert optimizer.last_step == (0.0, math.inf)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*UNBOUNDED, "Surefoot")])
def test_a_loss_below_the_bound_is_skipped_and_counted(name: str) -> None:
    problem, optimizer, _ = prepared(name)
    before = problem.values()
    optimizer.step(loss=torch.tensor(-0.5))
    assert equal(before, problem.values())
    assert optimizer.violations == 1
    assert optimizer.skipped == 0
    assert optimizer.last_step == (0.0, 0.0)


@pytest.mark.parametrize(
    ("loss", "message"), [(math.nan, "the loss is nan"), (math.inf, "the loss is inf"), (-1.0, "below lower_bound=0")]
)
def test_raise_names_the_loss(loss: float, message: str) -> None:
    problem, optimizer, _ = prepared(on_nonfinite="raise")
    before = problem.values()
    with pytest.raises(ValueError, match=message):
        optimizer.step(loss=torch.tensor(loss))
    assert equal(before, problem.values())


def test_raise_names_the_gradient() -> None:
    problem, optimizer, loss = prepared(on_nonfinite="raise")
    spoiled_gradient(problem)
    before = problem.values()
    with pytest.raises(ValueError, match="the gradient is not finite"):
        optimizer.step(loss=loss)
    assert equal(before, problem.values())
