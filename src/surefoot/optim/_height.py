"""Heights: where the loss is measured from, F = f − C."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from surefoot.optim._arithmetic import Scalar
from surefoot.theory.arrays import coerce, maximum, minimum


class Sight(NamedTuple):
    """What a height sees of a step, before it is taken."""

    loss: Scalar
    """The batch loss."""
    value: Scalar
    """What the model takes for it: the value of the averaged linearisations, for example."""
    reach: Scalar
    """``value`` at the point that proximal weight decay leads to, and ``value`` itself without it."""
    decrease: Scalar
    """q = Σ α‖g‖_*² of the gradient that the model sees."""
    full_decrease: Scalar
    """``decrease`` without the shrinking of proximal weight decay."""
    batch_decrease: Scalar | None
    """q of the batch's own gradient; None unless :attr:`Height.uses_batch`, or it is ``decrease``."""
    count: Scalar
    """The step's number, from 1."""
    known: dict[str, Any]
    """Room for what a height would else compute several times in a step."""


class Height(ABC):
    """What the loss is measured from: the C of F = f − C in every step, a fixed number or a rule.

    Scalars are Python floats on the CPU and 0-d tensors on devices, whose values must not be read; the functions of
    :mod:`surefoot.theory.training` serve both. A height of your own gives C:

    >>> import surefoot.optim as sfo
    >>> class HalfOfFirst(sfo.Height):
    ...     '''Half of the first loss, whatever comes.'''
    ...     def start(self):
    ...         return {"bound": 0.0}
    ...     def bound(self, sight, past):
    ...         first = sight.count <= 1
    ...         return first * (0.5 * sight.loss) + (1 - 1 * first) * past["bound"]
    """

    certifies: ClassVar[bool] = False
    """Whether δ may stand in a bound, so that partial sums rule out a run."""
    uses_batch: ClassVar[bool] = False
    """Whether it wants ``Sight.batch_decrease`` also where the model sees averaged gradients; that costs a norm."""

    @property
    def firm(self) -> float | None:
        """A number below which no loss can be: a step with a smaller one is skipped and counted as a violation."""
        return None

    def start(self) -> dict[str, float]:
        """Names and initial values of the scalars that are kept; ``bound``, the C of the last step, is one of them."""
        return {"bound": 0.0}

    @abstractmethod
    def bound(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """C of this step, from what is seen and the scalars that were kept."""

    def decrease(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """The q at which the model is asked for its scale."""
        return sight.decrease

    def progress(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """How far the run has left its start, in [0, 1]; until then it does not matter whether batches agree."""
        return 1.0

    def lowered(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """Whether the loss was found below C, and C lowered for it: such a step is counted as a violation."""
        return sight.value < -math.inf

    def index(self, delta: Scalar, excess: Scalar, decrease: Scalar, scale: Scalar) -> Scalar:
        """δ of a step with scale t at F = ``excess`` and q = ``decrease``, from that of the model."""
        return delta

    def after(self, sight: Sight, past: Mapping[str, Scalar], bound: Scalar, scale: Scalar) -> dict[str, Scalar]:
        """New values of the scalars, after a step at ``bound`` with scale t; what is left out stays.

        ``bound`` itself is kept under its name, unless another one is given here.
        """
        return {}


@dataclass(frozen=True)
class Fixed(Height):
    """A number below all losses. A loss below it is a violation: no step is taken."""

    value: float = 0.0

    certifies: ClassVar[bool] = True

    @property
    def firm(self) -> float:
        return self.value

    def start(self) -> dict[str, float]:
        return {"bound": self.value}

    def bound(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        return self.value


@dataclass(frozen=True)
class Unbounded(Height):
    """No height, for the linear model, which knows no lower bound."""

    certifies: ClassVar[bool] = True

    def bound(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """0: the linear model takes the same step at any height."""
        return 0.0


@dataclass(frozen=True)
class Estimate(Height):
    """A lower bound that is estimated online, starting from ``floor`` and never below it.

    After a step it is MoMo's f̃ − ½tq, what the model had promised to fall to, but at most a share ``cap`` of the way
    from the floor to the best value so far: it never ends at the current loss, and does not rise after a divergence. A
    loss below it brings it halfway to the floor. With ``cap=None`` the rule is MoMo's own (``use_fstar``).

    ``lower_bound="estimate"`` is short for ``Estimate(floor=0.0)``. The floor may be negative, for losses that are.

    >>> import torch, surefoot.optim as sfo
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = sfo.SPS([x], lr=1.0, lower_bound=Estimate(floor=-10.0))
    >>> for _ in range(30):
    ...     opt.zero_grad()
    ...     (0.5 * x**2 - 1.0).backward()
    ...     _ = opt.step()
    >>> round(abs(x.item()), 3)
    0.0
    """

    floor: float = 0.0
    cap: float | None = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.floor, int | float) or not math.isfinite(self.floor):
            raise ValueError(f"floor must be a finite number, got {self.floor!r}")
        if self.cap is not None and not (isinstance(self.cap, int | float) and 0 <= self.cap < 1):
            raise ValueError(f"cap must be None or a number in [0, 1), got {self.cap!r}")

    def start(self) -> dict[str, float]:
        return {"bound": self.floor, "best": math.inf}

    def bound(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """The estimate; halfway from the floor to the model, where that is below it."""
        xp, (bound, reach) = coerce(past["bound"], sight.reach)
        return xp.where(reach < bound, xp.maximum(0.5 * (reach + self.floor), self.floor + 0.0 * reach), bound)

    def lowered(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        return sight.reach < past["bound"]

    def after(self, sight: Sight, past: Mapping[str, Scalar], bound: Scalar, scale: Scalar) -> dict[str, Scalar]:
        """The best value, and max{f̃ − ½tq, floor}, at most a share of the way from the floor to the best value."""
        best = minimum(past["best"], sight.value)
        bound = maximum(sight.value - 0.5 * scale * sight.full_decrease, self.floor)
        if self.cap is not None:
            bound = minimum(bound, self.floor + self.cap * (best - self.floor))
        return {"best": best, "bound": bound}
