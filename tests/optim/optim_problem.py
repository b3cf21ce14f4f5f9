"""A small regression network on a stream of random batches, shared by the tests of the optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

import surefoot.optim as sfo

RATES = {
    "SGD": 0.05,
    "SPS": 0.5,
    "NGN": 0.5,
    "LogNGN": 0.3,
    "MoMo": 0.3,
    "NGNMomentum": 0.3,
    "NGNAdam": 0.02,
    "MoMoAdam": 0.02,
    "NGNMomentumAdam": 0.02,
    "Muon": 0.02,
    "SPSMuon": 0.02,
    "Surefoot": 1.0,
}
"""Rates at which each optimizer is stable on the problem, and mostly below its cap."""

NAMES = (*sfo.TABLE, "Surefoot")
ADAMS = ("NGNAdam", "MoMoAdam", "NGNMomentumAdam")
KINDS = ("NGN", "MoMo", "NGNMomentum", "MoMoAdam", "NGNMomentumAdam", "Muon", "SPSMuon")
"""One of every geometry and momentum: where the model is but a number, the others cannot fail apart from them."""
UNBOUNDED = ("SGD", "Muon")
"""They have the linear model, which knows no lower bound."""


class Problem:
    """Parameters, and the loss of batch number i; equal for equal arguments."""

    def __init__(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.dtype = dtype
        self.params = [
            torch.nn.Parameter((0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype))
            for shape in ((8, 4), (8,), (1, 8), (1,))
        ]

    def batch(self, index: int, size: int = 16) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1000 + index)
        inputs = torch.randn((size, 4), generator=generator, dtype=torch.float64)
        return inputs.to(self.dtype), (torch.sin(inputs.sum(1, keepdim=True)) + 2.0).to(self.dtype)

    def loss_of(self, inputs: Tensor, targets: Tensor) -> Tensor:
        first, bias, second, offset = self.params
        return (torch.tanh(inputs @ first.T + bias) @ second.T + offset - targets).square().mean()

    def loss(self, index: int) -> Tensor:
        return self.loss_of(*self.batch(index))

    def backward(self, index: int) -> Tensor:
        for p in self.params:
            p.grad = None
        loss = self.loss(index)
        loss.backward()
        return loss.detach()

    def values(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.params]

    def groups(self, name: str) -> list[dict[str, Any]]:
        """Two groups with rates and weight decays of their own."""
        lr = RATES[name]
        return [
            {"params": self.params[:2], "lr": lr, "weight_decay": 0.02},
            {"params": self.params[2:], "lr": 0.3 * lr, "weight_decay": 0.0},
        ]


def make(name: str, params: Any, **options: Any) -> Any:
    """The named optimizer, at its own rate unless another is given."""
    return getattr(sfo, name)(params, options.pop("lr", RATES[name]), **options)


def train(problem: Problem, optimizer: Any, steps: Iterable[int], step: Any = None) -> list[Tensor]:
    for index in steps:
        loss = problem.backward(index)
        (step or optimizer.step)(loss=loss)
    return problem.values()


def distance(left: list[Tensor], right: list[Tensor]) -> float:
    """Largest difference, in float64."""
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(left, right, strict=True))


def equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def prepared(name: str = "NGN", **options: Any) -> tuple[Problem, Any, Tensor]:
    """A problem, an optimizer after two steps on it, and the loss of the third."""
    problem = Problem()
    optimizer = make(name, problem.params, listen=False, **options)
    train(problem, optimizer, range(2))
    return problem, optimizer, problem.backward(2)
