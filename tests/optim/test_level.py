"""The level and the optimizer that needs no rate: what they promise in their docstrings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.optim.optim_problem import Problem, distance, equal, train

import surefoot.optim as sfo


def scalar_steps(losses: list[float], **options: Any) -> sfo.SPS:
    """An SPS on one number with gradients of 1, after steps with these losses."""
    x = torch.nn.Parameter(torch.tensor(0.0, dtype=torch.float64))
    optimizer = sfo.SPS([x], lr=1000.0, listen=False, **options)
    for loss in losses:
        x.grad = torch.ones_like(x)
        optimizer.step(loss=loss)
    return optimizer


def height(optimizer: Any, loss: float) -> float:
    return loss - optimizer.lower_bound.item()


def test_before_a_gain_disagreeing_batches_shorten_nothing() -> None:
    x = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer, sizes = sfo.Surefoot([x], beta=0.0, listen=False), []
    for loss, sign in [(1.0, 1.0), (1.0, -1.0), (1.0, 1.0), (0.1, -1.0), (0.1, 1.0)]:
        x.grad = torch.full_like(x, sign)
        before = x.detach().clone()
        optimizer.step(loss=loss)
        sizes.append(float((x.detach() - before).abs().max()))
    assert sizes[1] == pytest.approx(sizes[0])
    assert sizes[2] == pytest.approx(sizes[0])
    assert max(sizes[3:]) < 0.9 * sizes[0]


def test_the_first_height_is_a_tenth_of_the_first_loss() -> None:
    assert height(scalar_steps([4.0], lower_bound="level"), 4.0) == pytest.approx(0.4)


def test_losses_below_zero_free_the_level() -> None:
    optimizer = scalar_steps([4.0] + [-1.0] * 400, lower_bound=sfo.Level(share=0.5))
    assert height(optimizer, -1.0) == pytest.approx(2.5, rel=1e-3)
    assert optimizer.skipped == 0
    assert optimizer.violations == 0


@pytest.mark.parametrize("first", [0.0, -3.0, 1e-30])
def test_a_first_loss_of_zero_or_below_moves(first: float) -> None:
    assert scalar_steps([first], lower_bound="level").last_step.size.item() > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_leaves_everything_untouched(bad: float) -> None:
    problem = Problem()
    optimizer = sfo.Surefoot(problem.params, listen=False)
    train(problem, optimizer, range(3))
    learned = slice(0, -5)  # behind it the step is reported
    before = optimizer.param_groups[0]["memory"][learned].clone()
    values = problem.values()
    problem.backward(3)
    optimizer.step(loss=bad)
    assert equal(values, problem.values())
    assert torch.equal(before, optimizer.param_groups[0]["memory"][learned])
    assert optimizer.skipped == 1


def test_a_loss_that_can_be_fitted_converges_to_zero() -> None:
    x = torch.nn.Parameter(torch.tensor([2.0, -1.0], dtype=torch.float64))
    optimizer = sfo.SPS([x], lr=10.0, lower_bound="level")
    for _ in range(800):
        optimizer.zero_grad()
        loss = 0.5 * x.square().sum()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-9


def test_reset_level_forgets_the_losses() -> None:
    optimizer = scalar_steps([4.0] + [1.0] * 50, lower_bound="level")
    optimizer.reset_level()
    x = optimizer.param_groups[0]["params"][0]
    x.grad = torch.ones_like(x)
    optimizer.step(loss=9.0)
    assert height(optimizer, 9.0) == pytest.approx(0.9)


def test_reset_level_forgets_how_batches_agreed() -> None:
    x = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer, sizes = sfo.Surefoot([x], beta=0.0, listen=False), []
    for index in range(50):
        if index == 40:
            optimizer.reset_level()
        x.grad = torch.full_like(x, (-1.0) ** min(index, 40))
        optimizer.step(loss=1.0 if index in (0, 40) else 0.1)
        sizes.append(optimizer.last_step.size.item())
    assert max(sizes[30:40]) < 0.25 * sizes[0]
    assert sizes[40] == pytest.approx(sizes[0])
    assert min(sizes[40:]) > 0.5 * sizes[0]


@pytest.mark.parametrize("saved", [sfo.Estimate()])
def test_a_checkpoint_with_another_lower_bound_warns_and_the_level_stays(saved: sfo.Estimate) -> None:
    other = scalar_steps([3.0], lower_bound=saved)
    optimizer = scalar_steps([], lower_bound="level")
    with pytest.warns(UserWarning, match="the checkpoint was written by another kind of SPS"):
        optimizer.load_state_dict(other.state_dict())
    x = optimizer.param_groups[0]["params"][0]
    x.grad = torch.ones_like(x)
    optimizer.step(loss=3.0)
    assert height(optimizer, 3.0) == pytest.approx(0.3)


def test_delta_is_the_safe_index_of_the_same_height() -> None:
    from surefoot.theory.models import safe_delta

    x = torch.nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))
    optimizer = sfo.NGN([x], lr=0.5, lower_bound="level")
    loss = 0.5 * x.square().sum()
    loss.backward()
    optimizer.step()
    size = optimizer.last_step.size.item()
    expected = safe_delta(12.5, 25.0, 0.5, size, optimizer.lower_bound.item())
    assert optimizer.last_step.delta.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("unit", "scale"), [(30.0, 1.0), (1 / 30, 1.0), (1.0, 1e-10), (1.0, 1e15), (1.0, 1e-25)])
def test_units_of_parameters_and_loss_do_not_matter(unit: float, scale: float, dtype: torch.dtype) -> None:
    """Weights = unit·θ and loss·scale give the same weights, as long as the cap does not bind."""

    def run(unit: float, scale: float) -> list[torch.Tensor]:
        problem = Problem(dtype)
        theta = [torch.nn.Parameter(p.detach() / unit) for p in problem.params]
        optimizer = sfo.Surefoot(theta, cap=1e6)
        for index in range(25 if dtype is torch.float64 else 10):
            optimizer.zero_grad()
            problem.params = [unit * p for p in theta]  # type: ignore[misc]
            (scale * problem.loss(index)).backward()
            optimizer.step()
        assert optimizer.skipped == 0
        return [unit * p.detach() for p in theta]

    assert distance(run(1.0, 1.0), run(unit, scale)) <= (1e-6 if dtype is torch.float64 else 1e-4)


def test_state_is_not_larger_than_adamws() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8, 4))
    ours, theirs = sfo.Surefoot(net.parameters()), torch.optim.AdamW(net.parameters())
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    ours.step(loss=1.0)
    theirs.step()

    def size(optimizer: torch.optim.Optimizer) -> int:
        return sum(t.numel() for s in optimizer.state.values() for t in s.values() if t.numel() > 1)

    assert size(ours) <= size(theirs)


def test_surefoot_takes_named_parameters_and_groups() -> None:
    net = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 7))
    sfo.Surefoot(net.named_parameters())
    groups = sfo.split(net)
    optimizer = sfo.Surefoot(groups)
    loss = net(torch.arange(5)).square().mean()
    loss.backward()
    optimizer.step()
    assert "second_moment" in optimizer.state[net[0].weight]
    assert "direction" in optimizer.state[net[1].weight]
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got list"):
        sfo.split([])  # type: ignore[arg-type]


def test_surefoot_learns_a_negative_loss() -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    optimizer = sfo.Surefoot(net.parameters())
    losses = []
    for _ in range(150):
        inputs = torch.randn(32, 4)
        mean, log_std = net(inputs).unbind(-1)
        loss = (0.5 * ((inputs.sum(-1) - mean) / log_std.exp()).square() + log_std).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) / 10 < -1.0


def test_the_index_does_not_depend_on_the_order_of_groups() -> None:
    deltas = []
    for rates in ((1.0, 0.1), (0.1, 1.0)):
        params = {rate: torch.nn.Parameter(torch.ones(3)) for rate in sorted(rates)}
        optimizer = sfo.Surefoot([{"params": [params[rate]], "lr": rate} for rate in rates], cap=0.01, listen=False)
        for p in params.values():
            p.grad = torch.ones(3)
        optimizer.step(loss=1.0)
        deltas.append(optimizer.last_step.delta.item())
    assert deltas[0] == pytest.approx(deltas[1], rel=1e-12)
