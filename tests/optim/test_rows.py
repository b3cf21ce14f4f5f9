"""The axes of an optimizer: averaging and height of ours and of one's own, and the rows that are made of them."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.optim.optim_problem import ADAMS, NAMES, RATES, UNBOUNDED, Problem, distance, equal, make, train

import surefoot.optim as sfo
from surefoot.optim import reference
from surefoot.optim._arithmetic import Device
from surefoot.optim._rows import ROWS
from surefoot.testing import check_optimizer
from surefoot.theory import models

DIRECTION = sfo.AveragedDirection(0.8)


def on_device(optimizer: sfo.ModelBased, monkeypatch: pytest.MonkeyPatch) -> sfo.ModelBased:
    arithmetic = Device(True, torch.device("cpu"), torch.float64)
    monkeypatch.setattr(optimizer, "_arithmetic", lambda: arithmetic)
    return optimizer


@pytest.mark.parametrize(("name", "fused"), [(n, False) for n in NAMES] + [(n, True) for n in ADAMS])
@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "two groups"])
def test_an_averaged_direction_equals_the_twin(name: str, fused: bool, grouped: bool) -> None:
    ours, theirs = Problem(), Problem()
    options = {} if grouped else {"weight_decay": 0.05, "max_grad_norm": 0.7}
    lr = 20 * RATES[name]  # far beyond: the scale must matter
    mine: Any = [{**g, "lr": 20 * g["lr"]} for g in ours.groups(name)] if grouped else ours.params
    twins: Any = [{**g, "lr": 20 * g["lr"]} for g in theirs.groups(name)] if grouped else theirs.params
    optimizer = make(name, mine, lr=lr, averaging=DIRECTION, fused=fused, **options)
    twin = reference.twin(name, twins, lr, averaging=DIRECTION, **options)
    for index in range(8):
        optimizer.step(loss=ours.backward(index))
        step = twin.step(theirs.backward(index))
        assert optimizer.last_step.delta.item() == pytest.approx(step.delta, rel=1e-7, abs=1e-12)
    assert distance(ours.values(), theirs.values()) <= 1e-9


def test_one_scale_shortens_the_whole_step() -> None:
    x = torch.nn.Parameter(torch.tensor([0.0], dtype=torch.float64))
    for averaging, moved in ((sfo.AveragedDirection(0.9, bias_correction=False), 1e-3), (sfo.HeavyBall(0.9), 0.5)):
        x.detach().zero_()
        optimizer = sfo.SPS([x], 1.0, averaging=averaging)
        x.grad = torch.tensor([-1.0], dtype=torch.float64)
        for _ in range(20):
            optimizer.step(loss=100.0)  # the step is the rate
        before = x.item()
        x.grad = torch.tensor([-1e3], dtype=torch.float64)
        optimizer.step(loss=1.0)  # a spike: Polyak's step is 1e-6
        assert (x.item() - before < moved) is isinstance(averaging, sfo.AveragedDirection)


@pytest.mark.parametrize("name", NAMES)
def test_an_averaged_direction_is_the_same_on_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Problem(), Problem()
    left = train(here, make(name, here.groups(name), averaging=DIRECTION), range(5))
    optimizer = on_device(make(name, there.groups(name), averaging=DIRECTION), monkeypatch)
    assert distance(left, train(there, optimizer, range(5))) <= 1e-12


@pytest.mark.parametrize("name", ["SPS", "NGNAdam", "SPSMuon"])
def test_an_averaged_direction_passes_the_conformance_suite(name: str) -> None:
    rate = {"SPS": 0.1}.get(name, 0.02)
    check_optimizer(lambda params: sfo.TABLE[name](params, rate, averaging=DIRECTION))  # type: ignore[call-arg]


class Tail(sfo.Averaging):
    """An exponential average of the parameters, which ``eval`` puts in their place."""

    buffer_name = "tail"
    starts_at_parameters = True
    evaluates_elsewhere = True
    memory_name = "travelled"

    def move(self, ops: Any, share: Any, directions: Any, size: Any, decay: Any) -> Any:
        super().move(ops, share, directions, size, decay)
        ops.lerp_(share.average, share.params, 0.1)
        return share.memory + size

    def switch(self, parameter: torch.Tensor, buffer: torch.Tensor, train: bool) -> None:
        kept = parameter.clone()
        parameter.copy_(buffer)
        buffer.copy_(kept)


@pytest.mark.parametrize("name", ["NGN", "SPSAdam"])
def test_an_averaging_of_ones_own_passes_the_conformance_suite(name: str) -> None:
    rate = {"NGN": 0.1}.get(name, 0.02)
    check_optimizer(lambda params: sfo.TABLE[name](params, rate, averaging=Tail()))  # type: ignore[call-arg]


def test_an_averaging_of_ones_own_keeps_a_named_number_and_works_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Problem(), Problem()
    host = make("NGN", here.params, averaging=Tail())
    device = on_device(make("NGN", there.params, averaging=Tail()), monkeypatch)
    assert distance(train(here, host, range(4)), train(there, device, range(4))) <= 1e-12
    assert host.state_dict()["param_groups"][0]["travelled"] > 0
    assert host.param_groups[0]["travelled"].item() == pytest.approx(device.param_groups[0]["travelled"].item())
    host.eval()
    assert equal(here.values(), [host.state[p]["tail"] for p in here.params]) is False
    assert distance(here.values(), there.values()) > 1e-3


@dataclass(frozen=True)
class Smoothed(sfo.Height):
    """Half of a smoothed loss, and the largest q so far."""

    uses_batch = True

    def start(self) -> dict[str, float]:
        return {"bound": 0.0, "smooth": 0.0, "largest": 0.0}

    def bound(self, sight: sfo.Sight, past: Mapping[str, Any]) -> Any:
        return 0.5 * past["smooth"] + 0.0 * sight.loss

    def after(self, sight: sfo.Sight, past: Mapping[str, Any], bound: Any, scale: Any) -> dict[str, Any]:
        larger = sight.batch_decrease > past["largest"]
        largest = larger * sight.batch_decrease + (1 - 1 * larger) * past["largest"]
        return {"smooth": 0.9 * past["smooth"] + 0.1 * sight.loss, "largest": largest}


@pytest.mark.parametrize("name", ["SPS", "MoMoAdam", "SPSMuon"])
def test_a_height_of_ones_own_passes_the_conformance_suite(name: str) -> None:
    rate = {"SPS": 0.1}.get(name, 0.02)
    check_optimizer(lambda params: sfo.TABLE[name](params, rate, lower_bound=Smoothed()))  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNBOUNDED])
def test_a_height_of_ones_own_is_the_same_on_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = Problem(), Problem()
    host = make(name, here.groups(name), lower_bound=Smoothed())
    device = on_device(make(name, there.groups(name), lower_bound=Smoothed()), monkeypatch)
    assert distance(train(here, host, range(5)), train(there, device, range(5))) <= 1e-12
    for number in ("bound", "smooth", "largest"):
        kept = host.param_groups[0][number].item()
        assert kept > 0
        assert device.param_groups[0][number].item() == pytest.approx(kept, rel=1e-9)


def test_a_height_sees_the_batchs_own_decrease() -> None:
    problem = Problem()
    optimizer = make("MoMo", problem.params, lr=0.3, lower_bound=Smoothed())
    largest = 0.0
    for index in range(4):
        loss = problem.backward(index)
        largest = max(largest, 0.3 * sum(float(p.grad.square().sum()) for p in problem.params if p.grad is not None))
        optimizer.step(loss=loss)
    assert optimizer.param_groups[0]["largest"].item() == pytest.approx(largest, rel=1e-12)


def test_a_bound_for_a_single_step_wins_over_an_estimate() -> None:
    problem, other = Problem(), Problem()
    estimated = make("SPS", problem.params, lr=100.0, lower_bound=sfo.Estimate(-3.0))
    estimated.step(loss=problem.backward(0), lower_bound=0.7)
    make("SPS", other.params, lr=100.0, lower_bound=0.7).step(loss=other.backward(0))
    assert equal(problem.values(), other.values())
    before = problem.values()
    problem.backward(1)
    estimated.step(loss=0.5, lower_bound=0.7)
    assert equal(before, problem.values())
    assert estimated.violations == 1


@pytest.mark.parametrize(
    ("options", "certain"),
    [
        ({}, True),
        ({"lower_bound": -1.0}, True),
        ({"lower_bound": "estimate"}, False),
        ({"lower_bound": Smoothed()}, False),
        ({"beta": 0.9}, False),
        ({"averaging": DIRECTION}, False),
        ({"max_grad_norm": 1.0}, False),
        ({"weight_decay": 0.1}, False),
    ],
    ids=str,
)
def test_which_indices_may_stand_in_a_bound(options: dict[str, Any], certain: bool) -> None:
    assert make("SPS", Problem().params, **options).certifies is certain


def test_decoupled_decay_follows_the_step_that_is_taken() -> None:
    x = torch.nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))
    optimizer = sfo.NGN([x], lr=1.0, weight_decay=0.1)
    loss = 0.5 * x.square().sum()
    loss.backward()
    optimizer.step(loss=loss)  # t = 1/2
    assert x.tolist() == pytest.approx([3.0 * (1 - 0.05 - 0.5), 4.0 * (1 - 0.05 - 0.5)])


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_of_zero_stops_a_group(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in (False, True):
        problem = Problem()
        optimizer = make(name, problem.groups(name))
        if device:
            on_device(optimizer, monkeypatch)
        train(problem, optimizer, range(3))
        before = problem.values()
        optimizer.param_groups[0]["lr"] = 0.0
        train(problem, optimizer, [3])
        after = problem.values()
        assert equal(before[:2], after[:2])
        assert not equal(before[2:], after[2:])


def test_the_rows_are_what_the_docstring_and_the_signatures_say() -> None:
    lines = {line.split()[0]: line for line in (sfo.__doc__ or "").splitlines() if line.split()}
    assert list(sfo.TABLE) == list(ROWS)
    for name, row in ROWS.items():
        assert type(row.model).__name__ in lines[name]
        assert type(row.geometry).__name__.removesuffix("Ball") in lines[name]
        assert (f"β = {row.averaging.beta:g}" in lines[name]) is (row.averaging.beta > 0)
        parameters = inspect.signature(sfo.TABLE[name]).parameters
        assert parameters["lr"].default == row.lr
        assert not [p for p in parameters.values() if p.default is None]
        optimizer = sfo.TABLE[name](Problem().params)  # type: ignore[call-arg]
        assert optimizer.param_groups[0]["lr"] == row.lr
        assert optimizer.geometry == row.geometry
        assert type(pickle.loads(pickle.dumps(optimizer))) is sfo.TABLE[name]


def test_a_beta_beside_an_averaging_is_refused() -> None:
    for name in ("NGN", "MoMo", "NGNMomentum", "SPSMuon"):
        with pytest.raises(ValueError, match="give one of the two"):
            make(name, Problem().params, beta=0.5, averaging=DIRECTION)
    with pytest.raises(ValueError, match="bias_correction=True is part of averaging="):
        make("MoMo", Problem().params, bias_correction=True, averaging=DIRECTION)


def test_a_model_is_no_averaging() -> None:
    with pytest.raises(TypeError, match=r"averaging must be a surefoot.optim.Averaging or None, got Truncated"):
        make("NGN", Problem().params, averaging=models.Truncated())
