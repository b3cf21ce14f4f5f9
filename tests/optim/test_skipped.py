"""Losses below their bound, negative ones, and ones that are not finite: they train, or there is a word about it."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from tests.optim.optim_problem import Problem, make, train

import surefoot.optim as sfo
from surefoot.optim._arithmetic import Device


def shifted(problem: Problem, optimizer: sfo.ModelBased, shift: float, steps: int) -> float:
    loss = math.inf
    for index in range(steps):
        loss = float(optimizer.step(loss=problem.backward(index) + shift)) - shift
    return loss


@pytest.mark.parametrize("on_device", [False, True])
def test_skipped_first_steps_are_worth_one_word(on_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    if on_device:
        monkeypatch.setattr(optimizer, "_arithmetic", lambda: Device(True, torch.device("cpu"), torch.float64))
    with pytest.warns(UserWarning, match=r"NGN has skipped its first steps .* below lower_bound=0") as caught:
        shifted(problem, optimizer, -100.0, 60)
    assert len(caught) == 1


def test_losses_that_are_not_finite_are_worth_a_word() -> None:
    problem = Problem()
    optimizer = make("SGD", problem.params)
    train(problem, optimizer, range(10))
    with pytest.warns(UserWarning, match="SGD has skipped many steps in a row: the loss or its gradient is not finite"):
        shifted(problem, optimizer, math.nan, 20)


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
