"""Options of parameter groups and settings of checkpoints: honoured or refused, never ignored."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.optim import twins
from tests.optim.optim_problem import ADAMS, NAMES, RATES, Problem, distance, equal, make, train
from torch.optim import lr_scheduler

import surefoot.optim as sfo

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=20),
    "cyclic": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.05, step_size_up=4),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("name", NAMES)
def test_schedules_that_cycle_momentum_run_with_their_defaults(name: str, schedule: Any) -> None:
    problem = Problem()
    optimizer = make(name, problem.params)
    scheduler = schedule(optimizer)
    key = "betas" if name in ADAMS else "momentum"
    seen = set()
    for index in range(8):
        optimizer.step(loss=problem.backward(index))
        seen.add(optimizer.param_groups[0][key])
        scheduler.step()
    assert len(seen) > 4
    assert optimizer.skipped == 0
    assert all(bool(p.isfinite().all()) for p in problem.params)


@pytest.mark.parametrize("name", ["NGN", "MoMo", "NGNMomentum", "NGNAdam", "SPSMuon"])
def test_momentum_in_the_groups_is_the_constructors(name: str) -> None:
    left, right = Problem(), Problem()
    given: dict[str, Any] = {"betas": (0.7, 0.999)} if name in ADAMS else {"beta": 0.7}
    constructed = make(name, left.params, **given)
    changed = make(name, right.params)
    changed.param_groups[0].update({"betas": (0.7, 0.999)} if name in ADAMS else {"momentum": 0.7})
    assert equal(train(left, constructed, range(5)), train(right, changed, range(5)))


def test_momentum_that_begins_later_begins_with_the_first_gradient() -> None:
    problem, other = Problem(), Problem()
    late = make("NGN", problem.params)
    train(problem, late, range(3))
    with torch.no_grad():
        for p, value in zip(other.params, problem.values(), strict=True):
            p.copy_(value)
    late.param_groups[0]["momentum"] = 0.9
    fresh = make("NGN", other.params, beta=0.9)
    assert equal(train(problem, late, range(3, 6)), train(other, fresh, range(3, 6)))


@pytest.mark.parametrize(
    ("name", "options", "steps"), [("NGNMomentum", {}, 3), ("MoMo", {}, 3), ("MoMo", {"bias_correction": True}, 1)]
)
def test_momentum_may_end_and_begin_later(name: str, options: dict[str, Any], steps: int) -> None:
    """With a correction for all parameters at once, the first step alone is that of a new run."""
    problem, other = Problem(), Problem()
    late = make(name, problem.params, beta=0.9, **options)
    train(problem, late, range(3))
    for beta in (0.0, 0.9):
        with torch.no_grad():
            for p, value in zip(other.params, problem.values(), strict=True):
                p.copy_(value)
        late.param_groups[0]["momentum"] = beta
        fresh = make(name, other.params, beta=beta, **options)
        assert distance(train(problem, late, range(steps)), train(other, fresh, range(steps))) <= 1e-15


@pytest.mark.parametrize("name", ["NGN", "NGNMomentum", "NGNAdam", "NGNMomentumAdam"])
def test_averages_go_on_where_momentum_was_switched_on_after_construction(name: str) -> None:
    whole, second = Problem(), Problem()
    none: dict[str, Any] = {"betas": (0.0, 0.999)} if name in ADAMS else {"beta": 0.0}
    optimizer, resumed = make(name, whole.params, **none), make(name, second.params, **none)
    train(whole, optimizer, range(2))
    optimizer.param_groups[0].update({"betas": (0.9, 0.999)} if name in ADAMS else {"momentum": 0.9})
    train(whole, optimizer, range(2, 5))
    with torch.no_grad():
        for p, value in zip(second.params, whole.values(), strict=True):
            p.copy_(value)
    resumed.load_state_dict(loaded(optimizer.state_dict()))
    assert equal(train(whole, optimizer, range(5, 8)), train(second, resumed, range(5, 8)))


@pytest.mark.parametrize("how", ["fused", "compiled"])
def test_a_parameter_whose_gradients_start_later_starts_as_in_adam(how: str) -> None:
    early, late = (torch.nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
    optimizer = sfo.MoMoAdam([early], lr=1e-3)
    step = torch.compile(optimizer.step, backend="eager") if how == "compiled" else optimizer.step
    for index in range(51):
        if index == 50:
            optimizer.add_param_group({"params": [late]})
        optimizer.zero_grad()
        loss = (early - 3.0).square().sum() + (late * torch.tensor([1.0, -2.0, 3.0])).sum() + 100.0
        loss.backward()
        step(loss=loss.detach())
    expected = 1.0 - 1e-3 * torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(late.detach(), expected, rtol=1e-9, atol=0.0)


def test_a_late_parameter_whose_first_gradient_is_not_finite_keeps_a_clean_state() -> None:
    early, late = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = sfo.NGNAdam([early, late], lr=1e-3)
    for factor in (None, math.nan, 1.0):
        optimizer.zero_grad()
        loss = early.square().sum() if factor is None else early.square().sum() + factor * late.sum()
        loss.backward()
        optimizer.step(loss=3.0)
    assert optimizer.skipped == 1
    assert bool(late.isfinite().all())


def test_a_group_may_have_an_eps_and_a_second_beta_of_its_own() -> None:
    ours, theirs = Problem(), Problem()
    groups = [
        {"params": ours.params[:2], "eps": 1e-2, "betas": (0.9, 0.5)},
        {"params": ours.params[2:]},
    ]
    optimizer = sfo.MoMoAdam(groups, lr=0.02, betas=(0.9, 0.99))
    peers = [torch.optim.Adam(theirs.params[:2], 0.02, betas=(0.9, 0.5), eps=1e-2)]
    peers.append(torch.optim.Adam(theirs.params[2:], 0.02, betas=(0.9, 0.99)))
    for index in range(4):
        optimizer.step(loss=1e6 + ours.backward(index))  # so high that no step is shortened
        theirs.backward(index)
        for peer in peers:
            peer.step()
    assert distance(ours.values(), theirs.values()) <= 1e-9


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("NGN", {"lower_bound": 1.0}),
        ("NGN", {"max_grad_norm": 1.0}),
        ("NGN", {"betas": (0.9, 0.9)}),
        ("NGN", {"eps": 1}),
    ],
    ids=str,
)
def test_an_option_that_groups_cannot_have_is_refused(name: str, option: dict[str, Any]) -> None:
    problem = Problem()
    with pytest.raises(ValueError, match=f"{next(iter(option))} is the same for all parameter groups"):
        make(name, [{"params": problem.params, **option}])


@pytest.mark.parametrize("name", ["NGN", "MoMo", "Surefoot"])
def test_optimizers_that_are_made_of_the_same_groups_share_nothing(name: str) -> None:
    problem = Problem()
    groups = problem.groups(name)
    first = make(name, groups)
    train(problem, first, range(3))
    before = first.param_groups[0]["memory"].clone()
    for second in (make(name, groups), make(name, first.param_groups)):
        assert second.last_grad_sq == 0.0
        train(problem, second, [3])
    assert torch.equal(first.param_groups[0]["memory"], before)


def test_a_group_that_is_refused_is_not_kept() -> None:
    problem = Problem()
    optimizer = make("NGNAdam", problem.params[:2])
    with pytest.raises(ValueError, match="beta of the second moment"):
        optimizer.add_param_group({"params": problem.params[2:], "betas": (0.9, 2.0)})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": problem.params[2:], "betas": (0.9, 0.99)})
    assert optimizer.param_groups[1]["betas"] == (0.9, 0.99)
    train(problem, optimizer, range(2))


def test_steps_go_on_after_a_change_of_the_memory_format() -> None:
    values = []
    for changes in (False, True):
        kernel = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 240).reshape(5, 4, 4, 3))
        optimizer = sfo.MoMoAdam([kernel], lr=0.01)
        for index in range(6):
            if index == 3 and changes:
                kernel.data = kernel.data.to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            ((kernel - torch.arange(240.0).reshape(5, 4, 4, 3)).square().mean() + 1.0).backward()
            optimizer.step()
        values.append(kernel.detach().clone())
    torch.testing.assert_close(values[0], values[1], rtol=1e-5, atol=1e-6)


def test_different_momentum_in_groups_is_refused_before_anything_moves() -> None:
    problem = Problem()
    optimizer = make("MoMo", [{"params": problem.params[:2], "momentum": 0.5}, {"params": problem.params[2:]}])
    before = problem.values()
    with pytest.raises(ValueError, match=r"momentum must be the same in all parameter groups.*got \[0.5, 0.9\]"):
        train(problem, optimizer, [0])
    assert equal(before, problem.values())


def loaded(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    found: dict[str, Any] = torch.load(file, weights_only=True)
    return found


def test_equal_settings_load_in_silence() -> None:
    problem = Problem()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name in NAMES:
            make(name, problem.params).load_state_dict(loaded(make(name, problem.params).state_dict()))
    assert told == []


@pytest.mark.parametrize("name", ["SGD", "SPS", "MoMoAdam"])
def test_maximize_is_the_descent_of_the_negative(name: str) -> None:
    ours, theirs = Problem(), Problem()
    optimizer = make(name, ours.params, maximize=True)
    twin = twins.twin(name, theirs.params, RATES[name])
    for index in range(4):
        ours.backward(index)
        for p in ours.params:
            assert p.grad is not None
            p.grad.neg_()
        loss = theirs.backward(index)
        optimizer.step(loss=-loss)
        twin.step(loss)
    assert distance(ours.values(), theirs.values()) <= 1e-11
    assert math.isfinite(optimizer.last_step.delta.item())


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_refused_or_finite(name: str) -> None:
    problem = Problem(torch.float16)
    if name in (*ADAMS, "Muon", "SPSMuon"):
        with pytest.raises(TypeError, match="must not be float16"):
            make(name, problem.params)
        return
    optimizer = make(name, problem.params)
    train(problem, optimizer, range(10))
    assert optimizer.skipped == 0
    assert all(bool(p.isfinite().all()) for p in problem.params)
