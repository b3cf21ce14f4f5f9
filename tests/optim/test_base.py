"""How the loss comes in, what goes out, and what is refused."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.optim.optim_problem import NAMES, Problem, equal, make, prepared

import surefoot.optim as sfo
from surefoot.theory import models


def test_zero_grad_drops_the_added_loss() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params, listen=False)
    optimizer.add_loss(problem.backward(0))
    optimizer.zero_grad()
    problem.backward(0)
    with pytest.raises(ValueError, match="needs the loss"):
        optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_without_loss_at_rate_zero_only_the_state_is_created(name: str) -> None:
    problem = Problem()
    optimizer = make(name, problem.params, lr=0.0)
    for p in problem.params:
        p.grad = torch.zeros_like(p)
    before = problem.values()
    assert optimizer.step() is None
    assert equal(before, problem.values())
    trained = make(name, [torch.nn.Parameter(p.detach().clone()) for p in problem.params])
    for p in trained.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    trained.step(loss=1.0)
    assert [set(s) for s in optimizer.state.values()] == [set(s) for s in trained.state.values()]
    assert optimizer.last_step.size == 0


def test_last_step_has_one_size_a_group_if_the_rates_differ() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.groups("NGN"))
    optimizer.step(loss=problem.backward(0))
    size = optimizer.last_step.size
    assert size.shape == (2,)
    assert (size[1] / size[0]).item() == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["NGN", "NGNMomentum", "SPSMuon"])
def test_last_step_is_right_where_the_first_group_has_no_gradient(name: str) -> None:
    frozen, free = torch.nn.Parameter(torch.ones(2, 2), requires_grad=False), torch.nn.Parameter(torch.eye(2))
    alone = torch.nn.Parameter(torch.eye(2))
    sizes = []
    for groups, p in (([{"params": [frozen]}, {"params": [free]}], free), ([{"params": [alone]}], alone)):
        optimizer = make(name, groups, lr=0.5)
        loss = p.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(loss=loss)
        sizes.append(optimizer.last_step.size.item())
    assert sizes[0] == sizes[1] > 0


def test_numbers_of_numpy_are_numbers_and_leave_a_checkpoint_that_loads() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params, lr=np.float32(0.5), weight_decay=np.float64(0.25), lower_bound=np.int64(-1))
    assert np.isfinite(optimizer.step(loss=np.float32(problem.backward(0).item()), lower_bound=np.float32(-0.5)))
    assert optimizer.lower_bound == -0.5
    assert optimizer.last_step.size > 0
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["param_groups"][0]["weight_decay"] == 0.25


def test_a_reading_of_last_step_stays() -> None:
    problem = Problem()
    optimizer = make("NGN", problem.params)
    optimizer.step(loss=problem.backward(0))
    step = optimizer.last_step
    value = step.delta.item()
    optimizer.step(loss=problem.backward(1))
    assert step.delta.item() == value


def test_a_bound_in_the_model_is_the_optimizers() -> None:
    problem, other = Problem(), Problem()
    sfo.ModelBased(problem.params, 10.0, model=models.Truncated(lower_bound=-1.0)).step(loss=problem.backward(0))
    sfo.SPS(other.params, 10.0, lower_bound=-1.0).step(loss=other.backward(0))
    assert equal(problem.values(), other.values())


def bad_construction(**options: Any) -> Callable[[], Any]:
    return lambda: make("NGN", Problem().params, **options)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (bad_construction(lr=-1.0), ValueError, "lr must be a finite number of at least 0, got -1.0"),
        (bad_construction(lr=math.nan), ValueError, "lr must be a finite"),
        (bad_construction(lr="fast"), TypeError, "lr must be a number, got 'fast'"),
        (bad_construction(lr=torch.ones(2)), ValueError, r"lr must be .* one element, got one of shape \(2,\)"),
        (
            bad_construction(weight_decay=-0.1),
            ValueError,
            "weight_decay must be a finite number of at least 0, got -0.1",
        ),
        (bad_construction(on_nonfinite="ignore"), ValueError, "on_nonfinite must be one of .*, got 'ignore'"),
        (bad_construction(process_group="world"), ValueError, "process_group must be .*, got 'world'"),
        (bad_construction(lower_bound="guess"), ValueError, "lower_bound must be .*, got 'guess'"),
        (bad_construction(lower_bound=math.inf), ValueError, "lower_bound must be .*, got inf"),
        (bad_construction(max_grad_norm=0.0), ValueError, "max_grad_norm must be .*, got 0.0"),
        (bad_construction(beta=1.0), ValueError, r"beta must be a number in \[0, 1\), got 1.0"),
        (lambda: sfo.MoMoAdam(Problem().params, betas=(0.9, 1.0)), ValueError, "beta of the second moment"),
        (lambda: sfo.MoMoAdam(Problem().params, betas=0.9), ValueError, "betas must be two numbers"),  # type: ignore[arg-type]
        (lambda: sfo.MoMoAdam(Problem().params, eps=0.0), ValueError, "eps must be a positive number, got 0.0"),
        (
            lambda: sfo.SGD(Problem().params, lower_bound=1.0),
            ValueError,
            "lower_bound does not go with the linear model",
        ),
        (lambda: sfo.ModelBased(Problem().params, 1.0, model="ngn"), TypeError, "model must be"),  # type: ignore[arg-type]
        (
            lambda: sfo.ModelBased(Problem().params, 1.0, model=models.Truncated(lower_bound=1.0), lower_bound=2.0),
            ValueError,
            "give one of the two",
        ),
        (
            lambda: sfo.ModelBased(Problem().params, 1.0, model=models.Truncated(lower_bound=np.zeros(2))),
            ValueError,
            "lower_bound of an optimizer's model must be a number",
        ),
        (lambda: sfo.NGN([torch.nn.Parameter(torch.ones(2, dtype=torch.cfloat))]), TypeError, "real floating-point"),
        (lambda: sfo.NGN([{"params": Problem().params, "lr": -2.0}]), ValueError, "lr must be .*, got -2.0"),
    ],
)
def test_bad_arguments_are_named(build: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda opt, loss: opt.step(loss=torch.ones(3)), ValueError, r"loss must have one element, .* \(3,\)"),
        (lambda opt, loss: opt.step(lambda: loss, loss=loss), ValueError, "more than once: by closure and by loss"),
        (lambda opt, loss: opt.step(), ValueError, "NGN.step needs the loss"),
        (lambda opt, loss: opt.step(lambda: None), ValueError, "NGN.step needs the loss"),
        (
            lambda opt, loss: opt.step(loss),
            TypeError,
            "closure must be a function .*, got Tensor: .* step\\(loss=loss\\)",
        ),
        (
            lambda opt, loss: opt.step(loss=loss, lower_bound=torch.tensor(math.nan)),
            ValueError,
            "lower_bound must be .*, got nan",
        ),
        (lambda opt, loss: opt.step(loss="1.0"), TypeError, "loss must be a number or a tensor"),
        (lambda opt, loss: opt.step(loss=loss + 0j), TypeError, "loss must be real"),
        (lambda opt, loss: opt.step(loss=loss, lower_bound=math.nan), ValueError, "lower_bound must be .*, got nan"),
        (lambda opt, loss: opt.add_loss(torch.ones(2)), ValueError, "loss must have one element"),
    ],
)
def test_a_bad_call_is_named_and_changes_nothing(call: Any, error: type[Exception], message: str) -> None:
    problem, optimizer, loss = prepared()
    before = problem.values()
    with pytest.raises(error, match=message):
        call(optimizer, loss)
    assert equal(before, problem.values())


def test_a_rate_that_turned_negative_is_named() -> None:
    problem, optimizer, loss = prepared()
    optimizer.param_groups[0]["lr"] = -0.1
    before = problem.values()
    with pytest.raises(ValueError, match=r"lr must be a finite number of at least 0, got -0\.1"):
        optimizer.step(loss=loss)
    assert equal(before, problem.values())


def test_sparse_gradients_are_refused() -> None:
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    optimizer = sfo.NGN(embedding.parameters())
    loss = embedding(torch.tensor([1, 2])).square().mean()
    loss.backward()
    before = embedding.weight.detach().clone()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optimizer.step(loss=loss)
    assert torch.equal(before, embedding.weight)


def test_parameters_without_gradient_stay_and_nothing_at_all_is_no_error() -> None:
    x = torch.nn.Parameter(torch.ones(2))
    optimizer = sfo.NGN([x])
    optimizer.step(loss=1.0)
    assert torch.equal(x, torch.ones(2))
