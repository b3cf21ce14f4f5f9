"""Schedule-free averaging of every optimizer: the twins, a peer, the modes, and what the index is good for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optim import twins
from tests.optim.optim_problem import RATES, Problem, distance, equal, make, train

import surefoot.optim as sfo
from surefoot.theory import bounds, models

AVERAGING = sfo.ScheduleFree()


@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "two groups"])
@pytest.mark.parametrize("name", sfo.TABLE)
def test_every_optimizer_equals_its_twin(name: str, grouped: bool) -> None:
    ours, theirs = Problem(), Problem()
    options = {} if grouped else {"weight_decay": 0.05, "max_grad_norm": 0.7}
    averaging = sfo.ScheduleFree(0.8, power=1.5)
    optimizer = make(name, ours.groups(name) if grouped else ours.params, momentum=averaging, **options)
    groups: Any = theirs.groups(name) if grouped else theirs.params
    twin = twins.twin(name, groups, RATES[name], momentum=averaging, **options)
    for index in range(12):
        optimizer.step(loss=ours.backward(index))
        step = twin.step(theirs.backward(index))
    assert optimizer.last_step.delta.item() == pytest.approx(step.delta, rel=1e-8, abs=1e-12)
    assert distance(ours.values(), theirs.values()) <= 1e-11
    optimizer.eval()
    assert float((twin.vector(ours.params) - twin.x_bar).abs().max()) <= 1e-11


@pytest.mark.parametrize("warmup", [0, 4])
def test_sgd_is_the_authors(warmup: int) -> None:
    peers = pytest.importorskip("schedulefree", reason="the comparison needs schedulefree")
    ours, theirs = Problem(), Problem()
    optimizer = sfo.SGD(ours.params, 0.05, momentum=AVERAGING)
    peer = peers.SGDScheduleFree(theirs.params, lr=0.05, momentum=0.9, warmup_steps=warmup)
    peer.train()
    for index in range(15):
        optimizer.param_groups[0]["lr"] = 0.05 * min(1.0, (index + 1) / max(warmup, 1))
        optimizer.step(loss=ours.backward(index))
        theirs.backward(index)
        peer.step()
    assert distance(ours.values(), theirs.values()) <= 1e-12
    optimizer.eval()
    peer.eval()
    assert distance(ours.values(), theirs.values()) <= 1e-12


def test_adam_is_the_authors() -> None:
    peers = pytest.importorskip("schedulefree", reason="the comparison needs schedulefree")
    ours, theirs = Problem(), Problem()
    optimizer = sfo.ModelBased(ours.params, 0.01, model=models.Linear(), geometry=sfo.Diagonal(), momentum=AVERAGING)
    peer = peers.AdamWScheduleFree(theirs.params, lr=0.01, betas=(0.9, 0.999))
    peer.train()
    for index in range(15):
        optimizer.step(loss=ours.backward(index))
        theirs.backward(index)
        peer.step()
    assert distance(ours.values(), theirs.values()) <= 1e-10


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.05, 3.0), min_size=2, max_size=2),
    st.floats(0.05, 0.95),
    st.floats(0.01, 4.0),
    st.integers(1, 10),
    st.sampled_from([models.Linear(), models.Truncated()]),
)
def test_the_index_at_z_bounds_the_average(
    slopes: list[float], beta: float, lr: float, steps: int, model: models.Model
) -> None:
    # At a constant rate, T·f(x) grows by at most f(y) + ⟨g, z − y⟩ a step if f is convex, and the base inequality at z
    # does the rest: the bound of the average iterate holds at the last x. The first z in x is the second one.
    scales = torch.tensor(slopes, dtype=torch.float64)
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = sfo.ModelBased([p], lr, model=model, momentum=sfo.ScheduleFree(beta))

    def loss_at(point: torch.Tensor) -> torch.Tensor:
        return 0.5 * (scales * point**2).sum() + (scales * point).abs().sum()

    deltas, distances, ends = [], [], []
    for _ in range(steps + 1):
        optimizer.zero_grad()
        loss = loss_at(p)
        loss.backward()
        optimizer.step(loss=loss)
        deltas.append(optimizer.last_step.delta.item())
        distances.append(float(optimizer.state[p]["z"].norm()))
        optimizer.eval()
        ends.append(float(loss_at(p.detach())))
        optimizer.train()
    bound = bounds.average_iterate([lr] * steps, deltas[1:], distances[0]).total
    assert ends[steps - 1] <= bound * (1 + 1e-9) + 1e-12


def test_a_step_while_evaluating_is_refused() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params, momentum=AVERAGING)
    train(problem, optimizer, range(2))
    optimizer.eval()
    before = problem.values()
    with pytest.raises(RuntimeError, match=r"call train\(\) before step\(\)"):
        optimizer.step(loss=problem.backward(2))
    assert equal(before, problem.values())


def test_a_checkpoint_of_the_evaluation_mode_trains_on() -> None:
    problem, other = Problem(), Problem(seed=3)
    optimizer = make("SPS", problem.params, momentum=AVERAGING)
    train(problem, optimizer, range(3))
    optimizer.eval()
    saved = copy.deepcopy(optimizer.state_dict())
    with torch.no_grad():
        for p, value in zip(other.params, problem.values(), strict=True):
            p.copy_(value)
    resumed = make("SPS", other.params, momentum=AVERAGING)
    resumed.load_state_dict(saved)
    resumed.train()
    optimizer.train()
    assert equal(train(problem, optimizer, range(3, 6)), train(other, resumed, range(3, 6)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sfo.ScheduleFree(0.0), r"beta must be a number in \(0, 1\), got 0.0"),
        (lambda: sfo.ScheduleFree(1.0), r"beta must be a number in \(0, 1\), got 1.0"),
        (lambda: sfo.ScheduleFree(power=-1.0), "power must be a finite number of at least 0, got -1.0"),
        (lambda: sfo.NGN(Problem().params, beta=0.9, momentum=AVERAGING), "beta=0.9 is the β"),
        (lambda: sfo.NGNAdam(Problem().params, betas=(0.5, 0.99), momentum=AVERAGING), "beta=0.5 is the β"),
    ],
)
def test_bad_arguments_are_named(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
