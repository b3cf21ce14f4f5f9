"""The proximal point of any closure: closed forms, certificates, costs."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.optim.optim_problem import Problem, distance, equal
from torch import Tensor

import surefoot.optim as sfo
from surefoot.optim import reference
from surefoot.problems import LinearRegression, LogisticRegression
from surefoot.theory import models

INNER = ("lbfgs", "newton-cg")


def closure_of(optimizer: Any, loss_of: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    return closure


def of_problem(problem: Problem, index: int) -> Callable[[], Tensor]:
    return lambda: problem.backward(index)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("size", [1, 5, 25])
@pytest.mark.parametrize("lr", [1e-3, 0.1, 1.0, 100.0])
def test_a_linear_layer_has_the_closed_form(lr: float, size: int, inner: str) -> None:
    problem = LinearRegression(noise=1.0)
    start, rows = problem.initial_point(), np.arange(size)
    layer = torch.nn.Linear(problem.features, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(start)[None])
    inputs, targets = torch.from_numpy(problem.A[rows]), torch.from_numpy(problem.y[rows])
    optimizer = sfo.SPP(layer.parameters(), lr, inner=inner, convex=True, tolerance=1e-16)
    loss = optimizer.step(closure_of(optimizer, lambda: 0.5 * (layer(inputs)[:, 0] - targets).square().mean()))
    exact = problem.prox(start[None, None], rows[None], np.full((1, 1), lr))
    point = exact.points[0, 0]
    delta = models.exact_delta(loss.item(), float(exact.losses[0, 0]), float(np.sum((point - start) ** 2)), lr)
    np.testing.assert_allclose(layer.weight.detach().numpy()[0], point, rtol=0, atol=1e-7)
    assert optimizer.last_step.delta.item() == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("inner", INNER)
def test_a_logistic_layer_is_within_the_certificates(inner: str) -> None:
    problem = LogisticRegression("vowel")
    start, rows, lr = problem.initial_point(), np.arange(16), 10.0
    layer = torch.nn.Linear(problem.features, problem.outputs, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(start).view_as(layer.weight))
    inputs, labels = torch.from_numpy(problem.A[rows]), torch.from_numpy(problem.y[rows].astype(np.int64))
    optimizer = sfo.SPP(layer.parameters(), lr, inner=inner, convex=True, tolerance=1e-10, max_calls=500)
    optimizer.step(closure_of(optimizer, lambda: torch.nn.functional.cross_entropy(layer(inputs), labels)))
    exact = problem.prox(start[None, None], rows[None], np.full((1, 1), lr))
    apart = float(np.sum((layer.weight.detach().numpy().reshape(-1) - exact.points[0, 0]) ** 2))
    assert optimizer.last_proximal.reached
    # Both points are within √(2α·gap) of the exact one.
    gaps = math.sqrt(optimizer.last_proximal.gap) + math.sqrt(float(exact.gaps[0, 0]))
    assert math.sqrt(apart) <= math.sqrt(2 * lr) * gaps


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("tolerance", [0.5, 0.1, 1e-3])
def test_the_interval_of_a_convex_closure_holds_the_exact_index(tolerance: float, inner: str) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    targets = torch.randn(12, generator=generator, dtype=torch.float64).sign()
    found = []
    for accuracy in (tolerance, 1e-15):
        x = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
        optimizer = sfo.SPP([x], 20.0, inner=inner, tolerance=accuracy, convex=True, max_calls=1000)
        optimizer.step(
            closure_of(
                optimizer,
                lambda x=x: torch.nn.functional.softplus(-targets * (inputs @ x)).mean(),  # type: ignore[misc]
            )
        )
        found.append(optimizer.last_proximal)
    rough, exact = found
    low, high = rough.interval
    assert rough.certified
    assert low <= exact.delta * (1 + 1e-12)
    assert exact.delta <= high
    assert high - low <= tolerance * low


@pytest.mark.parametrize("inner", INNER)
def test_equals_the_twin_on_a_network(inner: str) -> None:
    ours, theirs = Problem(), Problem()
    groups = [({"params": p.params[:2], "lr": 0.1}, {"params": p.params[2:], "lr": 0.03}) for p in (ours, theirs)]
    optimizer = sfo.SPP(groups[0], 1.0, inner=inner, tolerance=1e-14)
    twin = reference.SPP(groups[1], 1.0)
    for index in range(3):
        optimizer.step(of_problem(ours, index))
        step = twin.step(of_problem(theirs, index))
        assert optimizer.last_step.delta.item() == pytest.approx(step.delta, rel=1e-8)
    assert distance(ours.values(), theirs.values()) <= 1e-6
    assert optimizer.last_step.size.tolist() == [0.1, 0.03]


def test_one_row_of_least_squares_is_ngn() -> None:
    a = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    ends = []
    for exact in (True, False):
        x = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer: Any = sfo.SPP([x], 3.0, tolerance=1e-14) if exact else sfo.NGN([x], 3.0)
        optimizer.step(closure_of(optimizer, lambda x=x: 0.5 * (a @ x - 4.0) ** 2))
        ends.append([x.detach(), optimizer.last_step.delta])
    assert distance(*ends) <= 1e-9


def test_the_index_is_at_most_that_of_sps() -> None:
    problem, other = Problem(), Problem()
    exact, polyak = sfo.SPP(problem.params, 0.5), sfo.SPS(other.params, 0.5)
    exact.step(of_problem(problem, 0))
    polyak.step(of_problem(other, 0))
    assert exact.last_step.delta <= polyak.last_step.delta


def test_an_unknown_closure_is_not_certified() -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, 0.1)
    optimizer.step(of_problem(problem, 0))
    assert optimizer.last_proximal.reached
    assert not optimizer.last_proximal.certified
    assert optimizer.last_proximal.interval[1] == math.inf


@pytest.mark.parametrize(("lr", "certified"), [(0.9, True), (1.1, False)])
def test_a_weakly_convex_closure_is_certified_below_its_limit(lr: float, certified: bool) -> None:
    x = torch.nn.Parameter(torch.tensor([0.3], dtype=torch.float64))
    optimizer = sfo.SPP([x], lr, weak_convexity=1.0, tolerance=0.1)
    optimizer.step(closure_of(optimizer, lambda: torch.cos(x).sum()))  # its curvature is −1 at the least
    found = optimizer.last_proximal
    assert found.certified is certified
    if certified:
        grid = torch.linspace(-10.0, 10.0, 2_000_001, dtype=torch.float64)
        exact = math.cos(0.3) - float((torch.cos(grid) + (grid - 0.3) ** 2 / (2 * lr)).min())
        assert found.delta <= exact + 1e-9
        assert exact <= found.interval[1]


def test_the_calls_are_counted() -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, 1.0)
    calls = 0

    def closure(index: int) -> Tensor:
        nonlocal calls
        calls += 1
        return problem.backward(index)

    optimizer.step(lambda: closure(0))
    first = optimizer.last_proximal.calls
    optimizer.step(lambda: closure(1))
    assert first + optimizer.last_proximal.calls == calls == optimizer.calls


@pytest.mark.parametrize("inner", INNER)
def test_a_search_that_is_cut_short_says_so_and_is_still_a_descent(inner: str) -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, 100.0, inner=inner, tolerance=1e-12, max_calls=5)
    optimizer.step(of_problem(problem, 0))
    assert not optimizer.last_proximal.reached
    assert 5 <= optimizer.last_proximal.calls <= 6
    assert optimizer.last_step.delta >= 0


def test_the_loss_before_the_step_is_returned() -> None:
    problem = Problem()
    before = problem.loss(0).item()
    assert sfo.SPP(problem.params, 1.0).step(of_problem(problem, 0)).item() == before


def test_a_resting_group_stays() -> None:
    problem = Problem()
    optimizer = sfo.SPP([{"params": problem.params[:2], "lr": 0.0}, {"params": problem.params[2:]}], 1.0)
    before = problem.values()
    optimizer.step(of_problem(problem, 0))
    assert equal(before[:2], problem.values()[:2])
    assert not torch.equal(before[2], problem.values()[2])


@pytest.mark.parametrize("inner", INNER)
def test_all_at_rest_and_nothing_to_differentiate_are_no_errors(inner: str) -> None:
    problem = Problem()
    before = problem.values()
    optimizer = sfo.SPP(problem.params, 0.0, inner=inner)
    optimizer.step(of_problem(problem, 0))
    assert optimizer.step() is None
    assert optimizer.step(lambda: torch.tensor(1.0)) == 1.0
    assert equal(before, problem.values())


def test_a_closure_that_fails_leaves_the_parameters_where_they_were() -> None:
    problem = Problem()
    before = problem.values()
    optimizer = sfo.SPP(problem.params, 10.0)
    calls = iter(range(3))

    def closure() -> Tensor:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return problem.backward(0)

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert equal(before, problem.values())


def test_a_loss_that_explodes_on_the_way_is_backed_away_from() -> None:
    x = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = sfo.SPP([x], 1e3, convex=True)
    optimizer.step(closure_of(optimizer, lambda: torch.exp(10.0 * x * x).sum()))
    assert optimizer.last_proximal.reached
    assert abs(x.item()) < 0.1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_start_is_skipped_and_counted(bad: float) -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, 1.0)
    before = problem.values()
    optimizer.step(lambda: problem.backward(0) * bad)
    assert equal(before, problem.values())
    assert optimizer.skipped == 1
    assert optimizer.last_step == (0.0, math.inf)


def test_a_bad_start_raises_if_wanted() -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, 1.0, on_nonfinite="raise")
    with pytest.raises(ValueError, match="the loss is nan; the parameters are unchanged"):
        optimizer.step(lambda: problem.backward(0) * math.nan)


def test_counters_are_saved() -> None:
    problem = Problem()
    optimizer = sfo.SPP(problem.params, 1.0, convex=True)
    optimizer.step(of_problem(problem, 0))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    fresh = sfo.SPP(problem.params, 1.0, convex=True)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert fresh.last_proximal == optimizer.last_proximal
    assert fresh.calls == optimizer.calls
    assert copy.deepcopy(optimizer).last_proximal == optimizer.last_proximal


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda params: sfo.SPP(params, -1.0), ValueError, "lr must be finite and at least 0, got -1.0"),
        (lambda params: sfo.SPP(params, inner="sgd"), ValueError, "inner must be one of .*, got 'sgd'"),
        (lambda params: sfo.SPP(params, tolerance=0.0), ValueError, r"tolerance must be a number in \(0, 1\), got 0.0"),
        (lambda params: sfo.SPP(params, max_calls=1), ValueError, "max_calls must be an integer of at least 2, got 1"),
        (lambda params: sfo.SPP(params, history=0), ValueError, "history must be an integer of at least 1, got 0"),
        (lambda params: sfo.SPP(params, weak_convexity=-1.0), ValueError, "weak_convexity must be finite"),
        (lambda params: sfo.SPP(params, convex=True, weak_convexity=1.0), ValueError, "give one of the two"),
        (lambda params: sfo.SPP(params, on_nonfinite="ignore"), ValueError, "on_nonfinite must be one of"),
        (lambda params: sfo.SPP(params, process_group="world"), ValueError, "process_group must be .*, got 'world'"),
        (lambda params: sfo.SPP(params).step(), ValueError, "SPP.step needs a closure"),
        (lambda params: sfo.SPP(params).step(torch.ones(())), TypeError, "closure must be a function .*, got Tensor"),
        (lambda params: sfo.SPP(params).step(lambda: None), ValueError, "closure must return the loss, got None"),
        (lambda params: sfo.SPP(params).step(lambda: torch.ones(2)), ValueError, "loss must have one element"),
        (lambda params: sfo.SPP([torch.nn.Parameter(torch.ones(2) + 0j)]), TypeError, "real floating-point"),
    ],
)
def test_bad_arguments_are_named(build: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(Problem().params)
