"""A small real training problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor


class Problem:
    """A two-layer network on fixed random data; all copies start at the same point."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(64, 5, generator=generator)
        self.targets = torch.sin(self.inputs.sum(1, keepdim=True))
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.position = 0

    def loss(self) -> Tensor:
        """The loss of the next batch of 8 rows."""
        rows = torch.arange(8) + 8 * (self.position % 8)
        self.position += 1
        return (self.model(self.inputs[rows]) - self.targets[rows]).square().mean()

    def point(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])

    def train(self, optimizer: Any, steps: int, monitor: Any = None, style: str = "record") -> list[float]:
        losses = []
        for _ in range(steps):
            if style == "closure":
                loss = optimizer.step(self.closure(optimizer))
            else:
                optimizer.zero_grad()
                loss = self.loss()
                loss.backward()
                if monitor is not None and style == "record":
                    monitor.record(loss)
                if style == "loss":
                    optimizer.step(loss=loss)
                elif style == "add_loss":
                    optimizer.add_loss(loss)
                    optimizer.step()
                else:
                    optimizer.step()
            losses.append(loss.item())
        return losses

    def closure(self, optimizer: Any) -> Callable[[], Tensor]:
        position = self.position
        self.position += 1

        def closure() -> Tensor:
            self.position = position
            optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        return closure


@pytest.fixture
def problem() -> Problem:
    return Problem()


@pytest.fixture
def another() -> Callable[[], Problem]:
    return Problem
