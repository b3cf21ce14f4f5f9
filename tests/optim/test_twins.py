"""The conformance table: every optimizer against its slow twin, whatever the dtype, the options and the groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.optim import twins
from tests.optim.optim_problem import KINDS, RATES, UNBOUNDED, Problem, distance, make

import surefoot.optim as sfo

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 0.15}
STEPS = 12

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "decay": {"weight_decay": 0.05},
    "clip": {"max_grad_norm": 0.7},
    "bound": {"lower_bound": -0.5},
    "clip and decay": {"max_grad_norm": 0.7, "weight_decay": 0.05},
}


def run_pair(name: str, dtype: torch.dtype, grouped: bool, options: dict[str, Any]) -> float:
    ours, theirs = Problem(dtype), Problem(dtype)
    optimizer = make(name, ours.groups(name) if grouped else ours.params, **options)
    twin = twins.twin(name, theirs.groups(name) if grouped else theirs.params, RATES[name], **options)
    for index in range(STEPS):
        optimizer.step(loss=ours.backward(index))
        step = twin.step(theirs.backward(index))
    if dtype is torch.float64:
        assert optimizer.last_step.delta.item() == pytest.approx(step.delta, rel=1e-8, abs=1e-12)
        assert optimizer.skipped == 0
        assert optimizer.violations == 0
    return distance(ours.values(), theirs.values())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", sfo.TABLE)
def test_equals_the_twin_in_float64(name: str, variant: str) -> None:
    options = dict(VARIANTS[variant])
    if name in UNBOUNDED:
        options.pop("lower_bound", None)
    assert run_pair(name, torch.float64, variant == "plain", options) <= TOLERANCE[torch.float64]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_equals_the_twin_in_every_dtype(name: str, dtype: torch.dtype) -> None:
    assert run_pair(name, dtype, True, {}) <= TOLERANCE[dtype]


def train_surefoot(dtype: torch.dtype, steps: int, **options: Any) -> tuple[Problem, Problem]:
    ours, theirs = Problem(dtype), Problem(dtype)
    optimizer, twin = sfo.Surefoot(ours.params, **options), twins.Surefoot(theirs.params)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < steps // 2 else 0.5)
    for index in range(steps):
        schedule = optimizer.param_groups[0]["lr"] / options.get("lr", 1.0)
        optimizer.step(loss=ours.backward(index))
        scheduler.step()
        twin.step(theirs.backward(index), schedule)
    return ours, theirs


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_surefoot_equals_its_twin(dtype: torch.dtype) -> None:
    ours, theirs = train_surefoot(dtype, 40)
    assert distance(ours.values(), theirs.values()) <= {torch.float64: 1e-10, torch.float32: 2e-3}[dtype]


def test_surefoot_equals_its_twin_in_a_long_run() -> None:
    ours, theirs = train_surefoot(torch.float64, 250)
    assert distance(ours.values(), theirs.values()) <= 1e-8


@pytest.mark.parametrize("name", ["NGN", "MoMo", "MoMoAdam", "NGNMomentum"])
def test_channels_last_equals_contiguous(name: str) -> None:
    finals = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 24, 3)).double()
        net = net.to(memory_format=memory_format)
        optimizer = make(name, net.parameters(), weight_decay=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(torch.randn(2, 3, 8, 8, dtype=torch.float64)).square().mean()
            loss.backward()
            optimizer.step(loss=loss)
        finals.append([p.detach().contiguous() for p in net.parameters()])
    assert distance(*finals) <= 1e-12


def test_parameters_with_holes_in_memory_are_moved() -> None:
    storage = torch.ones(4, 6)
    x = torch.nn.Parameter(storage[:, ::2])
    x.grad = torch.ones(4, 3)
    make("SGD", [x], lr=0.5).step(loss=1.0)
    assert torch.equal(x.detach(), torch.full((4, 3), 0.5))
    assert torch.equal(storage[:, 1::2], torch.ones(4, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [3_000_000, 40_000_000])
def test_norms_of_large_tensors_are_accurate(dtype: torch.dtype, size: int) -> None:
    x = torch.nn.Parameter(torch.zeros(size, dtype=dtype))
    x.grad = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float32).to(dtype)
    optimizer = make("SGD", [x], lr=1.0)
    optimizer.step(loss=1.0)
    assert optimizer.last_step.delta.item() == pytest.approx(0.5 * float(x.grad.double().square().sum()), rel=1e-5)
