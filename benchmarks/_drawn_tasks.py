"""Tasks for the no-rate tables that a random draw has made, one of each of fifteen kinds, so that nobody picks them.

The kinds are those of ``_verdict_drawn.py``; one task in four, on average, is in other units than usual: its weights
are 30 times the parameters, or a thirtieth of them. A number gives one task of each kind. The tasks with the first
numbers may be looked at while something is built (6000 and 7000 judged an earlier rule of Surefoot); those with the
last ones are for one final table.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from _tasks import Loss, Task, Trial, cross_entropy, squared_error, supervised
from _verdict_drawn import KINDS, Sets

LOOKED_AT, LAST = (1000, 1001, 2000, 3000, 4000, 5000, 6000, 7000), (11000, 13000)
UNUSUAL_KINDS = ("convex", "tables", "unlabelled", "below-zero", "units")


class InUnits(nn.Module):
    """A network whose weights are ``factor`` times the parameters, and start as usual."""

    def __init__(self, inner: nn.Module, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = inner, factor
        with torch.no_grad():
            for p in inner.parameters():
                p /= factor

    def forward(self, *inputs: Tensor) -> Tensor:
        weights = {name: self.factor * p for name, p in self.inner.named_parameters()}
        output: Tensor = functional_call(self.inner, weights, inputs)
        return output


class Specification(NamedTuple):
    """What the draw has decided."""

    build: Callable[[], nn.Module]
    sets: Sets
    loss: Loss
    batch: int
    factor: float


@functools.cache
def specification(kind: str, number: int) -> Specification:
    """The same for the same kind and number, always."""
    draw = random.Random(f"{kind} {number}")
    made = KINDS[kind](draw)
    return Specification(*made, draw.choice((1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 30.0, 1 / 30)))


class DrawnTask(Task):
    """A task of a kind with a number."""

    @property
    def ordinary(self) -> bool:
        """Whether units, loss and size of the batches are the usual ones, for a network of a usual kind."""
        if self.kind in UNUSUAL_KINDS:
            return False
        drawn = specification(self.kind, int(self.name.rpartition("-")[2]))
        return drawn.factor == 1.0 and drawn.batch >= 8 and drawn.loss in (cross_entropy, squared_error)


def task(kind: str, number: int) -> Task:
    """The task of a kind with a number."""

    def make(seed: int, steps: int) -> Trial:
        drawn = specification(kind, number)
        model = drawn.build()
        model = model if drawn.factor == 1.0 else InUnits(model, drawn.factor)
        return supervised(model, *drawn.sets, drawn.loss, batch=drawn.batch, seed=seed)

    return DrawnTask(f"{kind}-{number}", kind, make)


EXPLORED = {each.name: each for number in LOOKED_AT for each in (task(kind, number) for kind in KINDS)}
"""Tasks that may be looked at."""
DRAWN = {each.name: each for number in LAST for each in (task(kind, number) for kind in KINDS)}
"""For one final table only."""
