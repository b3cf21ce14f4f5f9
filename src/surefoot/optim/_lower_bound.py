"""Lower bounds of the loss: what the gap F = f − C is measured from, where that is not simply a number."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from surefoot.theory import level

_LEVEL = tuple(f"level_{name}" for name in level.Seen._fields)


class Bounded(NamedTuple):
    """What a lower bound says about one step."""

    bound: Tensor
    """C of this step."""
    decrease: Tensor
    """The promised decrease q for which the model chooses its step."""
    memory: dict[str, Tensor]
    """New values of the scalars that it keeps."""
    lowered: Tensor | None = None
    """Whether the loss was found below C, and C lowered for it: counted as a violation."""


class LowerBound(ABC):
    """A rule for the C of F = f − C, with three methods; scalars are 0-d tensors, whose values must not be read.

    >>> import surefoot.optim as sfo
    >>> class HalfOfFirst(sfo.LowerBound):
    ...     '''Half of the first loss, whatever comes.'''
    ...     def start(self):
    ...         return {"half": float("inf")}
    ...     def observe(self, loss, value, decrease, memory):
    ...         half = torch.minimum(memory["half"], 0.5 * loss)
    ...         return sfo.Bounded(half, decrease, {"half": half})
    """

    safe_index: ClassVar[bool] = False
    """Whether C may lie above the infimum, where only :func:`surefoot.theory.models.safe_delta` is a valid δ."""

    def start(self) -> dict[str, float]:
        """Names and initial values of the scalars that are kept from step to step."""
        return {}

    @abstractmethod
    def observe(self, loss: Tensor, value: Tensor, decrease: Tensor, memory: Mapping[str, Tensor]) -> Bounded:
        """C of this step.

        Args:
            loss: the loss of the batch.
            value: what the model takes for it: the value of averaged linearisations, for example.
            decrease: q = Σ α‖g‖_*² of the gradient that the model sees.
            memory: the scalars that were kept, by name.
        """

    def after(self, value: Tensor, decrease: Tensor, scale: Tensor, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """New values of the scalars after a step with this scale t; what is left out stays."""
        return {}


@dataclass(frozen=True)
class Estimate(LowerBound):
    """A lower bound that is estimated online, starting from ``floor`` and never below it.

    After a step it is MoMo's f̃ − ½tq, what the model had promised to fall to, but at most a share ``cap`` of the way
    from the floor to the best value so far: it never ends at the current loss, and does not rise after a divergence. A
    loss below it brings it halfway to the floor. With ``cap=None`` the rule is MoMo's own (``use_fstar``).

    ``lower_bound="estimate"`` is short for ``Estimate(floor=0.0)``. The floor may be negative, for losses that are.
    """

    floor: float = 0.0
    cap: float | None = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.floor, int | float) or not math.isfinite(self.floor):
            raise ValueError(f"floor must be a finite number, got {self.floor!r}")
        if self.cap is not None and not (isinstance(self.cap, int | float) and 0 <= self.cap < 1):
            raise ValueError(f"cap must be None or a number in [0, 1), got {self.cap!r}")

    def start(self) -> dict[str, float]:
        return {"estimate": self.floor, "best": math.inf}

    def observe(self, loss: Tensor, value: Tensor, decrease: Tensor, memory: Mapping[str, Tensor]) -> Bounded:
        """The estimate; halfway from the floor to the model's value, where that is below it."""
        estimate = memory["estimate"]
        lowered = value < estimate
        bound = torch.where(lowered, (0.5 * (value + self.floor)).clamp_min(self.floor), estimate)
        return Bounded(bound, decrease, {"estimate": bound}, lowered)

    def after(self, value: Tensor, decrease: Tensor, scale: Tensor, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The best value, and max{f̃ − ½tq, floor}, at most a share of the way from the floor to the best value."""
        best = torch.minimum(memory["best"], value)
        estimate = (value - 0.5 * scale * decrease).clamp_min(self.floor)
        if self.cap is not None:
            estimate = torch.minimum(estimate, self.floor + self.cap * (best - self.floor))
        return {"best": best, "estimate": estimate}


@dataclass(frozen=True)
class Level(level.Rule, LowerBound):
    """A level below the best loss so far, lowered as it is reached; ``lower_bound="level"`` is ``Level()``.

        F = (f − b)₊ + G,    G = share·(f₁ − b), at least first·|f₁|, at most b

    f is the batch loss, f₁ the first one (0 counts as 1) and b the smallest value that the smoothed loss has had. A
    step at the best loss so far asks for a ``share`` of what has been gained; after a spike F has the spike's height,
    so that the step leads back down; a lucky batch (f < b) still has F = G. t is the model's at F and at the larger one
    of q and its running average: a batch that happens to be fitted does not get the longest step. Losses that can be
    fitted converge to 0, but more slowly than with ``lower_bound=0``.

    "At most b" takes zero for a lower bound. It is dropped if the first loss is 0 or less, and at the first batch loss
    below zero. Only |f₁| depends on where zero is: a loss that is shifted by many times what training can gain wants a
    smaller ``first``.

    A level hardly protects averaged linearisations, because an averaged gradient promises little: with momentum take a
    heavy ball (:class:`NGNMomentum`, :class:`NGNMomentumAdam`) or :class:`Surefoot`. For new data or a new phase of
    training call :meth:`ModelBased.reset_level`.

    δ is the safe index with this gap, F(1 − t) + ½t²q. Its bounds hold with max{f(u), C} in place of f(u): partial
    sums are no certificates.

    Args:
        share: of what has been gained so far, in (0, 1).
        first: share of the first loss that the first steps ask for, in (0, 1).
        smoothing: share of the past in the smoothed loss, in [0, 1).
    """

    safe_index: ClassVar[bool] = True

    def start(self) -> dict[str, float]:
        return dict(zip(_LEVEL, level.Seen(), strict=True))

    def observe(self, loss: Tensor, value: Tensor, decrease: Tensor, memory: Mapping[str, Tensor]) -> Bounded:
        """The level C = f − F, and the larger one of q and its running average."""
        before = level.Seen(*[memory[name] for name in _LEVEL])
        seen, gap, steady = level.observe(self, before, loss, decrease, value)
        return Bounded(value - gap, steady, dict(zip(_LEVEL, seen, strict=True)))


LOWER_BOUNDS: dict[str, type[LowerBound]] = {"estimate": Estimate, "level": Level}
"""What ``lower_bound`` may be in one word."""
