"""The conformance table: every optimizer against its slow twin, whatever the dtype, the options and the code path."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.optim.optim_problem import ADAMS, KINDS, NAMES, RATES, UNBOUNDED, Problem, distance, make, train

import surefoot.optim as sfo
from surefoot.optim import reference

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 0.15}
PROXIMAL = ("SGD", "SPS", "NGN", "MoMo", "SPSAdam", "NGNAdam", "MoMoAdam")
STEPS = 12

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "decay": {"weight_decay": 0.05},
    "clip": {"max_grad_norm": 0.7},
    "bound": {"lower_bound": -0.5},
    "clip and decay": {"max_grad_norm": 0.7, "weight_decay": 0.05},
}


def run_pair(name: str, dtype: torch.dtype, grouped: bool, fast: dict[str, Any], both: dict[str, Any]) -> float:
    ours, theirs = Problem(dtype), Problem(dtype)
    optimizer = make(name, ours.groups(name) if grouped else ours.params, **fast, **both)
    twin = reference.twin(name, theirs.groups(name) if grouped else theirs.params, RATES[name], **both)
    for index in range(STEPS):
        optimizer.step(loss=ours.backward(index))
        step = twin.step(theirs.backward(index))
    if dtype is torch.float64:
        assert optimizer.last_step.delta.item() == pytest.approx(step.delta, rel=1e-8, abs=1e-12)
        assert optimizer.skipped == 0
        assert optimizer.violations == 0
    return distance(ours.values(), theirs.values())


@pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "loop"])
@pytest.mark.parametrize(("name", "variant"), [(n, v) for n in NAMES for v in VARIANTS if n in KINDS or v == "plain"])
def test_equals_the_twin_in_float64(name: str, variant: str, foreach: bool) -> None:
    options = dict(VARIANTS[variant])
    if name in UNBOUNDED:
        options.pop("lower_bound", None)
    assert run_pair(name, torch.float64, False, {"foreach": foreach}, options) <= TOLERANCE[torch.float64]


@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "two groups"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_equals_the_twin_in_every_dtype(name: str, dtype: torch.dtype, grouped: bool) -> None:
    assert run_pair(name, dtype, grouped, {}, {}) <= TOLERANCE[dtype]


@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "two groups"])
@pytest.mark.parametrize("name", PROXIMAL)
def test_proximal_weight_decay_equals_the_twin(name: str, grouped: bool) -> None:
    options = {"weight_decay": 0.3, "weight_decay_mode": "prox"}
    assert run_pair(name, torch.float64, grouped, {}, options) <= TOLERANCE[torch.float64]


@pytest.mark.parametrize("variant", ["plain", "decay", "clip"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", ADAMS)
def test_fused_equals_the_twin(name: str, dtype: torch.dtype, variant: str) -> None:
    assert run_pair(name, dtype, True, {"fused": True}, VARIANTS[variant]) <= TOLERANCE[dtype]


@pytest.mark.parametrize("name", ADAMS)
def test_fused_works_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.optim._arithmetic._PIECE", 5)
    assert run_pair(name, torch.float64, False, {"fused": True}, {}) <= TOLERANCE[torch.float64]


@pytest.mark.parametrize("piece", [5, 1 << 18], ids=["pieces", "whole"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
@pytest.mark.parametrize("name", ["SPSAdam", "NGNAdam"])
def test_one_scale_in_adams_metric_equals_the_twin(
    name: str, fused: bool, dtype: torch.dtype, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.optim._arithmetic._PIECE", piece)
    both = {"averaging": sfo.AveragedDirection(0.9)}
    assert run_pair(name, dtype, True, {"fused": fused}, both) <= TOLERANCE[dtype]


@pytest.mark.parametrize("name", ["NGN", "MoMo", "MoMoAdam"])
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norms_of_large_tensors_are_accurate(dtype: torch.dtype) -> None:
    x = torch.nn.Parameter(torch.zeros(3_000_000, dtype=dtype))
    x.grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    optimizer = make("SGD", [x], lr=1.0)
    optimizer.step(loss=1.0)
    assert optimizer.last_step.delta.item() == pytest.approx(0.5 * float(x.grad.double().square().sum()), rel=1e-5)


def test_gradients_whose_squares_overflow_are_no_error() -> None:
    x = torch.nn.Parameter(torch.zeros(3))
    x.grad = torch.full_like(x, 1e25)
    optimizer = make("NGN", [x], lr=1.0)
    optimizer.step(loss=1.0)
    assert optimizer.skipped == 0
    assert x[0].item() == pytest.approx(-2.0 / 3e25)


def test_training_works_through_a_scheduler() -> None:
    problem, other = Problem(), Problem()
    optimizer = make("NGN", problem.params, lr=0.5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    twin = reference.twin("NGN", other.params, 0.5)
    for index in range(5):
        optimizer.step(loss=problem.backward(index))
        scheduler.step()
        twin.step(other.backward(index))
        twin.lr *= 0.5
    assert distance(problem.values(), other.values()) <= 1e-12


def test_lr_may_be_a_tensor() -> None:
    problem, other = Problem(), Problem()
    lr = torch.tensor(0.5, dtype=torch.float64)
    left = train(problem, make("NGN", problem.params, lr=lr), range(4))
    right = train(other, make("NGN", other.params, lr=0.5), range(4))
    assert distance(left, right) == 0.0
