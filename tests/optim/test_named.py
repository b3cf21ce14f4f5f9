"""The named optimizers, and lower bounds of one's own."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.optim.optim_problem import NAMES, RATES, Problem, equal, make, train

import surefoot.optim as sfo
from surefoot.testing import check_optimizer
from surefoot.theory import models


@dataclass(frozen=True)
class Smoothed(sfo.LowerBound):
    """Half of a smoothed loss."""

    def start(self) -> dict[str, float]:
        return {"smooth": 0.0}

    def observe(self, loss: Any, value: Any, decrease: Any, memory: Mapping[str, Any]) -> sfo.Bounded:
        return sfo.Bounded(0.5 * memory["smooth"], decrease, {"smooth": 0.9 * memory["smooth"] + 0.1 * loss})


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_passes_the_conformance_suite(name: str) -> None:
    check_optimizer(lambda params: make(name, params, lr=0.2 * RATES[name]))


@pytest.mark.parametrize("bound", ["level", "estimate", Smoothed()], ids=str)
@pytest.mark.parametrize("name", ["SPS", "NGN", "NGNMomentum", "MoMoAdam", "SPSMuon"])
def test_with_other_lower_bounds_too(name: str, bound: Any) -> None:
    check_optimizer(lambda params: make(name, params, lr=0.2 * RATES[name], lower_bound=bound))


@pytest.mark.parametrize("name", ["SPS", "NGNMomentumAdam", "SPSMuon"])
def test_with_schedule_free_averaging_too(name: str) -> None:
    check_optimizer(lambda params: make(name, params, lr=0.2 * RATES[name], momentum=sfo.ScheduleFree()))


def test_what_is_printed_is_short() -> None:
    optimizer = make("NGNAdam", Problem().groups("NGNAdam"))
    train(Problem(), optimizer, range(0))
    assert len(str(optimizer)) < 200
    assert str(optimizer).startswith(
        "NGNAdam(2 tensors with 40 elements, lr=0.02, weight_decay=0.02, betas=(0.9, 0.999);"
    )


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
        ({"momentum": sfo.HeavyBall(0.5)}, False),
        ({"max_grad_norm": 1.0}, False),
        ({"weight_decay": 0.1}, False),
    ],
    ids=str,
)
def test_which_indices_may_stand_in_a_bound(options: dict[str, Any], certain: bool) -> None:
    assert make("SPS", Problem().params, **options).certifies is certain


def test_a_lower_bound_of_ones_own_is_in_the_checkpoint() -> None:
    problem = Problem()
    optimizer = make("SPS", problem.params, lower_bound=Smoothed())
    losses = [float(optimizer.step(loss=problem.backward(index))) for index in range(3)]
    smooth = 0.1 * losses[0] * 0.9 + 0.1 * losses[1]
    assert optimizer.lower_bound.item() == pytest.approx(0.5 * smooth)
    resumed = make("SPS", problem.params, lower_bound=Smoothed())
    resumed.load_state_dict(optimizer.state_dict())
    resumed.step(loss=problem.backward(3))
    assert resumed.lower_bound.item() == pytest.approx(0.5 * (0.9 * smooth + 0.1 * losses[2]))


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_of_zero_stops_a_group_and_lets_it_go_again(name: str) -> None:
    problem = Problem()
    optimizer = make(name, problem.groups(name))
    train(problem, optimizer, range(3))
    before, rate = problem.values(), optimizer.param_groups[0]["lr"]
    optimizer.param_groups[0]["lr"] = 0.0
    train(problem, optimizer, [3])
    assert equal(before[:2], problem.values()[:2])
    assert not equal(before[2:], problem.values()[2:])
    optimizer.param_groups[0]["lr"] = rate
    train(problem, optimizer, [4])
    assert not equal(before[:2], problem.values()[:2])


def test_the_optimizers_are_what_the_docstring_says() -> None:
    lines = {line.split()[0]: line for line in (sfo.__doc__ or "").splitlines() if line.split()}
    for name, kind in sfo.TABLE.items():
        optimizer = kind(Problem().params)  # type: ignore[call-arg]
        assert type(optimizer.model).__name__ in lines[name]
        assert type(optimizer.geometry).__name__.removesuffix("Ball") in lines[name]
        beta = optimizer.momentum.beta
        assert (f"β = {beta:g}" in lines[name]) is (beta > 0)
        parameters = inspect.signature(kind).parameters
        assert parameters["lr"].default == optimizer.param_groups[0]["lr"]
        assert type(pickle.loads(pickle.dumps(optimizer))) is kind


def test_a_beta_beside_a_momentum_is_refused() -> None:
    with pytest.raises(ValueError, match=r"beta=0.5 is the β of the momentum"):
        make("NGN", Problem().params, beta=0.5, momentum=sfo.HeavyBall(0.9))


def test_a_model_is_no_momentum() -> None:
    with pytest.raises(TypeError, match=r"momentum must be None, Linearisations, HeavyBall or ScheduleFree, got Trunc"):
        make("NGN", Problem().params, momentum=models.Truncated())


def test_where_steps_round_away_the_averaged_value_stays() -> None:
    x = torch.nn.Parameter(torch.tensor([256.0], dtype=torch.bfloat16))
    optimizer = sfo.MoMo([x], lr=1e-3, listen=False)
    for _ in range(50):
        x.grad = torch.ones_like(x)
        optimizer.step(loss=5.0)
    assert x.item() == 256.0
    assert optimizer.last_step.delta.item() == pytest.approx(0.5e-3)
