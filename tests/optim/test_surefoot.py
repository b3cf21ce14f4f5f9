"""Surefoot where people put it: rates that are left in, schedules, arguments of other optimizers, its own pieces."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

import surefoot.optim as sfo
from surefoot.optim import surefoot

STEPS = 60


def train(build: Callable[[Any], Any], before: Callable[[Any, int], None] | None = None) -> list[torch.Tensor]:
    """Parameters after some steps; ``before`` is what a script does to its optimizer before every step."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    inputs = torch.randn(256, 6)
    targets = inputs.prod(1, keepdim=True).tanh() + inputs.sum(1, keepdim=True)
    optimizer = build(net.parameters())
    for step in range(STEPS):
        if before is not None:
            before(optimizer, step)
        batch = torch.randint(0, 256, (32,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (net(inputs[batch]) - targets[batch]).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def scheduled(make: Callable[[Any], Any]) -> Callable[[Any, int], None]:
    """What a script does that makes a scheduler of its optimizer, and takes a step of it before every other one."""
    kept: list[Any] = []

    def before(optimizer: Any, step: int) -> None:
        if step == 0:
            kept.append(make(optimizer))
        else:
            kept[0].step()

    return before


def linear(optimizer: Any, step: int, rate: float) -> None:
    """A loop that sets rates by hand, as nanoGPT does."""
    for group in optimizer.param_groups:
        group["lr"] = rate * (1.0 - step / STEPS)


@pytest.mark.parametrize("rate", [5e-5, 1e-3, 0.3, 10.0, torch.tensor(1e-3)], ids=str)
def test_the_value_of_the_rate_does_not_matter(rate: Any) -> None:
    plain, other = train(sfo.Surefoot), train(lambda params: sfo.Surefoot(params, lr=rate))
    assert all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


@pytest.mark.parametrize("rate", [6e-4, 1.0, 30.0])
def test_rates_that_a_loop_sets_are_a_schedule(rate: float) -> None:
    def by_torch(optimizer: Any) -> Any:
        return lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / STEPS)

    expected = train(sfo.Surefoot, scheduled(by_torch))
    found = train(sfo.Surefoot, lambda optimizer, step: linear(optimizer, step, rate))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(expected, found, strict=True))
    assert not all(torch.allclose(a, b, atol=1e-3) for a, b in zip(train(sfo.Surefoot), found, strict=True))


SCHEDULERS: dict[str, Callable[[Any, float], Any]] = {
    "one cycle": lambda o, rate: lr_scheduler.OneCycleLR(o, max_lr=rate, total_steps=STEPS + 1),
    "cyclic": lambda o, rate: lr_scheduler.CyclicLR(o, base_lr=rate / 10, max_lr=rate, step_size_up=10),
    "cosine": lambda o, rate: lr_scheduler.CosineAnnealingLR(o, STEPS),
    "warmup": lambda o, rate: lr_scheduler.LambdaLR(o, lambda step: min(1.0, step / 10)),
    "steps": lambda o, rate: lr_scheduler.StepLR(o, 20, 0.3),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_works_at_any_rate(name: str) -> None:
    def end(rate: float) -> list[torch.Tensor]:
        return train(lambda params: sfo.Surefoot(params, lr=rate), scheduled(lambda o: SCHEDULERS[name](o, rate)))

    ends = [end(1e-3), end(1.0)]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*ends, strict=True))
    assert all(bool(p.isfinite().all()) for p in ends[0])


def test_a_group_with_a_tenth_of_the_rate_moves_a_tenth_as_far() -> None:
    moves = []
    for rate in (1.0, 0.1):
        x, y = (torch.nn.Parameter(torch.zeros(3, 3)) for _ in range(2))
        optimizer = sfo.Surefoot([{"params": [x]}, {"params": [y], "lr": rate}], listen=False)
        x.grad, y.grad = torch.eye(3), torch.eye(3)
        optimizer.step(loss=1.0)
        moves.append(float(y.detach().norm() / x.detach().norm()))
    assert moves == pytest.approx([1.0, 0.1])


def test_a_group_whose_rate_was_zero_at_first_moves_when_it_is_raised() -> None:
    torch.manual_seed(0)
    frozen, free = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizer = sfo.Surefoot([{"params": frozen.parameters(), "lr": 0.0}, {"params": free.parameters()}])
    inputs = torch.randn(16, 4)

    def steps(count: int) -> torch.Tensor:
        for _ in range(count):
            optimizer.zero_grad()
            (free(frozen(inputs)) - inputs.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        return frozen.weight.detach().clone()

    start = frozen.weight.detach().clone()
    assert torch.equal(steps(5), start)
    optimizer.param_groups[0]["lr"] = 1.0
    assert not torch.equal(steps(5), start)


def test_the_state_is_two_tensors_per_parameter_as_adams() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(2, 3))
    groups = [{"params": net[0].parameters()}, {"params": net[2].parameters(), "spectral": False}]
    optimizer = sfo.Surefoot(groups)
    net(torch.randn(4, 1, 3, 3)).square().mean().backward()
    optimizer.step()
    assert all([t.shape for t in optimizer.state[p].values()] == [p.shape, p.shape] for p in net.parameters())


@pytest.mark.parametrize("name", ["fused", "foreach", "capturable", "differentiable"])
def test_arguments_that_choose_an_implementation_are_taken(name: str) -> None:
    optimizer = sfo.Surefoot([torch.nn.Parameter(torch.ones(2))], lr=1e-3, **{name: True})
    assert name not in optimizer.param_groups[0]


@pytest.mark.parametrize(
    "options", [{"betas": (0.9, 0.95)}, {"eps": 1e-8}, {"momentum": 0.9}, {"amsgrad": True}], ids=str
)
def test_arguments_without_a_meaning_are_refused_with_a_reason(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(TypeError, match=f"Surefoot needs no {name}: .*; remove {name}="):
        sfo.Surefoot([torch.nn.Parameter(torch.ones(2))], **options)
    sfo.Surefoot([torch.nn.Parameter(torch.ones(2))], amsgrad=False, nesterov=False)
    with pytest.raises(TypeError, match="Surefoot has no argument 'averaging'"):
        sfo.Surefoot([torch.nn.Parameter(torch.ones(2))], averaging=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cap": 0.0}, "cap must be a finite number above 0, got 0.0"),
        ({"share": 1.0}, r"share must be a number in \(0, 1\), got 1.0"),
        ({"beta": 1.0}, r"beta must be a number in \[0, 1\), got 1.0"),
        ({"lr": -1.0}, "lr must be a finite number of at least 0, got -1.0"),
    ],
)
def test_bad_numbers_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sfo.Surefoot([torch.nn.Parameter(torch.ones(2))], **options)


@pytest.mark.parametrize("name", ["Surefoot", "SPSMuon"])
@pytest.mark.parametrize("size", [1e37, 3e38])
def test_gradients_that_are_too_large_for_their_numbers_leave_finite_parameters(name: str, size: float) -> None:
    W, b = torch.nn.Parameter(torch.ones(40, 40)), torch.nn.Parameter(torch.ones(40))
    optimizer = getattr(sfo, name)([W, b], listen=False)
    W.grad, b.grad = torch.full_like(W, size), torch.full_like(b, size)
    optimizer.step(loss=1.0)
    assert bool(W.isfinite().all())
    assert bool(b.isfinite().all())
    assert torch.equal(W.detach(), torch.ones(40, 40)) == bool(optimizer.skipped)
    W.grad, b.grad = torch.ones_like(W), torch.ones_like(b)
    optimizer.step(loss=1.0)
    assert bool(W.isfinite().all())


def test_after_a_first_batch_that_is_not_finite_steps_are_shorter_until_norms_are_measured() -> None:
    lengths = []
    for first in (None, math.nan):
        W = torch.nn.Parameter(torch.zeros(8, 8))
        optimizer = sfo.Surefoot([W], cap=1e6, listen=False)
        if first is not None:
            W.grad = torch.full_like(W, first)
            optimizer.step(loss=1.0)
            assert torch.equal(W.detach(), torch.zeros(8, 8))
        W.grad = torch.diag(torch.tensor([3.0, 1.0, 1.0, 0.1, 0.0, 0.0, 0.0, 0.0]))
        optimizer.step(loss=1.0)
        lengths.append(float(W.detach().norm()))
    assert 0.3 * lengths[0] < lengths[1] < lengths[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_matrices_of_half_precision_take_the_step_of_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    gradient, moved = (1e-3 * torch.randn(96, 40)).to(dtype), []
    for kind in (torch.float32, dtype):
        W = torch.nn.Parameter(torch.zeros(96, 40, dtype=kind))
        optimizer = sfo.Surefoot([W], listen=False)
        W.grad = gradient.to(kind)
        optimizer.step(loss=1.0)
        moved.append(W.detach().float())
    assert float((moved[0] - moved[1]).norm() / moved[0].norm()) <= 0.01


numbers = st.floats(0.0, 1e6)


@given(part=st.floats(-1e6, 1e6), full=numbers)
def test_agreement_is_a_factor_between_zero_and_one(part: float, full: float) -> None:
    factor = float(surefoot.clipped_ratio(*(torch.tensor(x, dtype=torch.float64) for x in (part, full))))
    assert 0.0 <= factor <= 1.0
    if part >= full > 0:
        assert factor == 1.0
    if part <= 0 or full == 0:
        assert factor == 0.0


def test_steps_on_batches_that_agree_on_nothing_shrink_with_the_root_of_their_number() -> None:
    x = torch.nn.Parameter(torch.zeros(1))
    optimizer = sfo.Surefoot([x])
    sizes = []
    for step in range(801):
        x.grad = torch.full_like(x, (-1.0) ** step)
        optimizer.step(loss=2.0 if step == 0 else 1.0)
        sizes.append(float(optimizer.last_step.size))
    assert sizes[800] == pytest.approx(0.5 * sizes[200], rel=0.02)
    assert sizes[100] == pytest.approx(sizes[90], rel=0.02)


def test_a_loss_that_has_risen_for_good_is_warned_of_once() -> None:
    x = torch.nn.Parameter(torch.ones(1))
    optimizer = sfo.Surefoot([x])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(500):
            x.grad = torch.full_like(x, 1.0)
            optimizer.step(loss=1.0 + 0.01 * step)
    (message,) = caught
    assert "it began at 1" in str(message.message)
    assert message.filename == __file__
