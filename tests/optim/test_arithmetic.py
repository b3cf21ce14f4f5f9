"""The path for accelerators: it never reads a value, it masks what must not happen, and it agrees with the CPU's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.optim.optim_problem import ADAMS, NAMES, UNBOUNDED, Problem, distance, equal, make, train
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import surefoot.optim as sfo
from surefoot.optim._arithmetic import Device

OPTIONS: list[dict[str, Any]] = [
    {"foreach": False},
    {"weight_decay": 0.1, "max_grad_norm": 0.7},
    {"lower_bound": "estimate"},
    {"lower_bound": "level"},
]
PROXIMAL = {"weight_decay": 0.1, "weight_decay_mode": "prox"}


class Recorder(TorchDispatchMode):
    """Notes every operation that reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def cases() -> list[Any]:
    both: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in NAMES]
    both += [(name, options) for name in ("NGN", "NGNMomentum", "MoMoAdam", "SPSMuon") for options in OPTIONS]
    proximal = [(name, PROXIMAL) for name in ("SGD", "SPS", "NGN", "MoMo", "MoMoAdam")]
    flagship = [("Surefoot", options) for options in ({}, {"foreach": False}, {"weight_decay": 0.1})]
    level = [(name, {"lower_bound": "level"}) for name in ("SPS", "NGNAdam", "NGNMuon")]
    level += [("NGNAdam", {"lower_bound": "level", "foreach": False})]
    return [pytest.param(name, options, id=f"{name}-{options}") for name, options in both + proximal + flagship + level]


@pytest.mark.parametrize(("name", "options"), cases())
def test_a_step_on_a_device_reads_nothing(name: str, options: dict[str, Any]) -> None:
    with FakeTensorMode():
        params = [torch.nn.Parameter(torch.empty(shape, device="cuda")) for shape in ((4, 3), (5,))]
        optimizer = make(name, params, **options)
        for p in params:
            p.grad = torch.empty_like(p)
        loss = torch.empty((), device="cuda")
        optimizer.step(loss=loss)
        with Recorder() as recorder:
            optimizer.step(loss=loss)
    assert recorder.seen
    assert not [name for name in recorder.seen if "_local_scalar_dense" in name]


def on_device(optimizer: sfo.ModelBased, monkeypatch: pytest.MonkeyPatch) -> sfo.ModelBased:
    """The optimizer, forced onto the accelerators' path although its tensors are on the CPU."""
    arithmetic = Device(optimizer._settings.foreach, torch.device("cpu"), torch.float64)
    monkeypatch.setattr(optimizer, "_arithmetic", lambda: arithmetic)
    return optimizer


@pytest.mark.parametrize(("name", "options"), cases())
def test_the_device_path_equals_the_hosts(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Problem(), Problem()
    left = train(here, make(name, here.groups(name), **options), range(6))
    optimizer = on_device(make(name, there.groups(name), **options), monkeypatch)
    assert distance(left, train(there, optimizer, range(6))) <= 1e-12
    assert optimizer.param_groups[0]["count"] == 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "loop"])
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_bad_step_is_masked(name: str, foreach: bool, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem()
    optimizer = on_device(make(name, problem.params, foreach=foreach, weight_decay=0.1), monkeypatch)
    train(problem, optimizer, range(2))
    before, state = problem.values(), [t.clone() for s in optimizer.state.values() for t in s.values()]
    loss = problem.backward(2)
    if what == "gradient":
        assert problem.params[0].grad is not None
        problem.params[0].grad[0, 0] = math.inf
    optimizer.step(loss=loss * (math.nan if what == "loss" else 1.0))
    assert equal(before, problem.values())
    assert equal(state, [t for s in optimizer.state.values() for t in s.values()])
    assert optimizer.skipped == 1
    assert optimizer.last_step == (0.0, math.inf)
    assert optimizer.param_groups[0]["count"] == 2


@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNBOUNDED])
def test_a_loss_below_the_bound_is_masked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem()
    optimizer = on_device(make(name, problem.params), monkeypatch)
    train(problem, optimizer, range(2))
    before = problem.values()
    problem.backward(2)
    optimizer.step(loss=torch.tensor(-1.0))
    assert equal(before, problem.values())
    assert (optimizer.violations, optimizer.skipped) == (1, 0)
    assert optimizer.last_step == (0.0, 0.0)


def test_a_geometry_with_buffers_is_masked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(sfo.Euclidean):
        buffer_names = ("seen",)

        def observe(self, gradient: torch.Tensor, buffers: Any, count: Any) -> None:
            buffers[0].add_(1.0)

    problem = Problem()
    optimizer = sfo.ModelBased(problem.params, 0.1, model=sfo.NGN(problem.params)._settings.model, geometry=Counting())
    on_device(optimizer, monkeypatch)
    train(problem, optimizer, range(2))
    problem.backward(2)
    optimizer.step(loss=torch.tensor(math.nan))
    assert all(bool((optimizer.state[p]["seen"] == 2).all()) for p in problem.params)


def test_raise_says_what_was_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem()
    optimizer = on_device(make("NGN", problem.params, on_nonfinite="raise"), monkeypatch)
    problem.backward(0)
    with pytest.raises(ValueError, match="the loss is nan"):
        optimizer.step(loss=torch.tensor(math.nan))


def test_fused_falls_back_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ADAMS:
        here, there = Problem(), Problem()
        left = train(here, make(name, here.params), range(3))
        optimizer = on_device(make(name, there.params, fused=True), monkeypatch)
        assert distance(left, train(there, optimizer, range(3))) <= 1e-12
