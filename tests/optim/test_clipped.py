"""Gradients that were multiplied between the backward pass and the step: clipped by hand, or averaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import surefoot.optim as sfo

Change = Callable[[torch.nn.Module], Any]
SQUARED: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.001}),
    ("SPS", {"lr": 1.0}),
    ("NGN", {"lr": 1.0}),
    ("NGN", {"lr": 1.0, "lower_bound": "level"}),
    ("NGN", {"lr": 1.0, "lower_bound": -2.0}),
    ("NGN", {"lr": 1.0, "weight_decay": 0.01}),
    ("NGNMomentum", {"lr": 1.0}),
    ("MoMo", {"lr": 1.0, "beta": 0.0}),
    ("SPS", {"lr": 10.0, "momentum": sfo.ScheduleFree()}),
    ("NGN", {"lr": 1.0, "momentum": sfo.ScheduleFree()}),
]


def clip(model: torch.nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def trained(
    build: Callable[..., torch.optim.Optimizer],
    change: Change | None = None,
    *,
    pass_loss: Callable[[torch.Tensor], Any] | None = None,
    parts: int = 1,
    divide: float = 1.0,
    scaler: torch.amp.GradScaler | None = None,
) -> tuple[torch.Tensor, torch.optim.Optimizer]:
    """All parameters after some steps on a problem whose gradients are much larger than 1."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
    inputs = torch.randn(60, 10, dtype=torch.float64)
    optimizer = build(model.parameters())
    for _ in range(6):
        optimizer.zero_grad()
        for some in inputs.chunk(parts):
            loss = (model(some) - 10 * some.sum(1, keepdim=True)).square().mean() / divide
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        if change is not None:
            change(model)
        if pass_loss is not None:
            optimizer.step(loss=pass_loss(loss.detach()))  # type: ignore[call-arg]
        elif scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]), optimizer


def row(name: str, **options: Any) -> Callable[..., torch.optim.Optimizer]:
    return lambda params: getattr(sfo, name)(params, **options)


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-6, atol=1e-7)  # torch clips at max_norm/(norm + 1e-6)


@pytest.mark.parametrize(("name", "options"), SQUARED, ids=str)
def test_clipping_by_hand_is_the_optimizers_own_clipping(name: str, options: dict[str, Any]) -> None:
    own, first = trained(row(name, **options, max_grad_norm=1.0))
    by_hand, second = trained(row(name, **options), clip)
    assert not close(own, trained(row(name, **options))[0]), "the gradients are not clipped at all"
    if options.get("weight_decay"):  # which the optimizer's own clipping shortens, too
        assert torch.allclose(own, by_hand, rtol=0.02, atol=0.02)
    else:
        assert close(own, by_hand)
        assert float(second.last_step.delta) == pytest.approx(float(first.last_step.delta))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["NGN", "SPS", "NGNAdam", "MoMo", "Surefoot"])
def test_a_sum_divided_by_hand_is_the_mean_of_the_losses(name: str) -> None:
    def divide(model: torch.nn.Module) -> None:
        for p in model.parameters():
            assert p.grad is not None
            p.grad /= 3

    by_hand, _ = trained(row(name), divide, parts=3)
    assert not close(by_hand, trained(row(name, listen=False), pass_loss=lambda loss: loss, parts=3)[0])
    before, _ = trained(row(name), parts=3, divide=3.0)
    # Surefoot's level is one of the sum, three times the other: exactly so, since its share is a relative one.
    assert close(by_hand, before)


@pytest.mark.parametrize("name", ["NGN", "NGNAdam", "Surefoot"])
def test_a_scaler_that_divides_is_no_clipping(name: str) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain, _ = trained(row(name), clip)
    scaled, _ = trained(row(name), clip, scaler=scaler)
    assert close(plain, scaled)


def test_a_loss_that_is_told_belongs_to_the_gradients_as_they_are_unless_it_was_heard() -> None:
    own, _ = trained(row("NGN", lr=1.0, max_grad_norm=1.0))
    same, _ = trained(row("NGN", lr=1.0), clip, pass_loss=lambda loss: loss)
    other, _ = trained(row("NGN", lr=1.0), clip, pass_loss=lambda loss: 2 * loss)
    deaf, _ = trained(row("NGN", lr=1.0, listen=False), clip, pass_loss=lambda loss: 2 * loss)
    assert close(own, same)
    assert close(other, deaf)


@pytest.mark.parametrize("kind", ["noise", "value", "sign"])
def test_other_changes_are_left_alone(kind: str) -> None:
    def change(model: torch.nn.Module) -> None:
        for p in model.parameters():
            assert p.grad is not None
            if kind == "noise":
                p.grad += torch.ones_like(p.grad)
            elif kind == "value":
                p.grad.clamp_(-0.5, 0.5)
            else:
                p.grad.neg_()

    heard, _ = trained(row("NGN", lr=0.001), change)
    deaf, _ = trained(row("NGN", lr=0.001, listen=False), change, pass_loss=lambda loss: loss)
    assert torch.equal(heard, deaf)


def test_the_norm_is_that_of_the_losss_gradient() -> None:
    plain, clipped = trained(row("SGD", lr=0.0))[1], trained(row("SGD", lr=0.0), clip)[1]
    assert float(clipped.last_grad_sq) == pytest.approx(float(plain.last_grad_sq))  # type: ignore[attr-defined]


class Idle(torch.nn.Module):
    """A layer with a parameter that the output does not depend on, the smallest one."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.layer = torch.nn.Parameter(torch.zeros(4)), torch.nn.Linear(10, 50)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs) + 0.0 * self.idle.sum()


def length(change: Change, model: torch.nn.Module, **options: Any) -> float:
    """The length of Polyak's step after a change of the gradients."""
    torch.manual_seed(0)
    optimizer = sfo.SPS(model.parameters(), lr=1e9, **options)
    before = [p.detach().clone() for p in model.parameters()]
    loss = (model(torch.randn(60, 10)) - 10.0).square().mean()
    loss.backward()
    change(model)
    optimizer.step(loss=loss)
    moved = [(p.detach() - old).square().sum() for p, old in zip(model.parameters(), before, strict=True)]
    return float(sum(moved)) ** 0.5


def test_gradients_of_a_part_that_were_clipped_are_no_clipped_gradients() -> None:
    def build() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Linear(16, 200))

    def clip_first(model: Any) -> None:
        torch.nn.utils.clip_grad_norm_(model[0].parameters(), 1e-3)

    assert length(clip_first, build()) == length(clip_first, build(), listen=False)


def test_a_gradient_of_zeros_does_not_hide_that_gradients_were_clipped() -> None:
    torch.manual_seed(0)
    model = Idle()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    plain = length(lambda _: None, model)
    model.load_state_dict(start)
    model.zero_grad()
    assert length(clip, model) == pytest.approx(plain, rel=1e-5)
