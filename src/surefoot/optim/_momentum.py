"""The three kinds of momentum, as data: what they do stands in :meth:`surefoot.optim.ModelBased.step`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from torch import Tensor


def _check_beta(beta: object, *, positive: bool = False) -> None:
    least = "(0, 1)" if positive else "[0, 1)"
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 <= beta < 1 or (positive and not beta):
        raise ValueError(f"beta must be a number in {least}, got {beta!r}")


@dataclass(frozen=True)
class Linearisations:
    """The running average of past linearisations of the loss (MoMo's model), whatever the model on top of it.

        d ← d + w(g − d),    f̃ ← f̃ + w(f − f̃),    f̃ at the next point: f̃ + ⟨d, x⁺ − x⟩

    with w = 1 − β (1 in the first step), or with ``bias_correction`` (1 − β)/(1 − β^k). The model then sees f̃ and d in
    place of f and g. The value at the next point follows from what the step itself has computed; it assumes that the
    parameters are moved by this optimizer alone.

    Schaipp, Ohana, Eickenberg, Defazio, Gower: MoMo: Momentum Models for Adaptive Learning Rates, 2024.
    """

    beta: float = 0.9
    """Share of the past in the average, in [0, 1)."""
    bias_correction: bool = False

    def __post_init__(self) -> None:
        _check_beta(self.beta)


@dataclass(frozen=True)
class HeavyBall:
    """Heavy-ball momentum on top of the model's step: x⁺ = x − (1 − β)·size·g + β(x − x⁻).

    The model sees the batch loss and gradient, so its step and δ are those without momentum: δ is a diagnostic here,
    no bound is known. With NGN this is NGN-M. Steps that are under way are not shortened by a later batch.

    Islamov, Ajroldi, Orvieto, Lucchi: Enhancing Optimizer Stability: Momentum Adaptation of the NGN Step-size, 2025.
    """

    beta: float = 0.9
    """Share of the past in the average, in [0, 1)."""

    def __post_init__(self) -> None:
        _check_beta(self.beta)


@dataclass(frozen=True)
class ScheduleFree:
    """Schedule-free averaging (Defazio et al., 2024).

        y = (1 − β)z + βx,    z⁺ = z − size·direction(g),    x⁺ = x + c(z⁺ − x)

    g and the loss f belong to y, where the parameters are during training. The model is asked at z, with the
    linearisation's value there, f(y) + ⟨g, z − y⟩, and δ is its index with that value. x is the average of all z with
    weights α^power (c = α_t^power/Σα^power), and what should be evaluated and saved: ``optimizer.eval()`` puts it into
    the parameters, ``optimizer.train()`` brings y back. Call them beside the model's.

    No schedule other than a warmup is needed. Batch norm's statistics belong to y: before an evaluation at x they want
    a few forward passes. Weight decay is decoupled, and shrinks z.
    """

    beta: float = 0.9
    """Share of x in y, in (0, 1)."""
    power: float = 2.0
    """Power of the rate in the weights of the average."""

    def __post_init__(self) -> None:
        _check_beta(self.beta, positive=True)
        if not isinstance(self.power, int | float) or not 0 <= self.power < float("inf"):
            raise ValueError(f"power must be a finite number of at least 0, got {self.power!r}")


Momentum: TypeAlias = Linearisations | HeavyBall | ScheduleFree


class Now(NamedTuple):
    """What a step knows about averages of gradients: with new gradients g, m ← m + weight·(g − m) and d = factor·m."""

    step: Tensor
    """Number of the step, from 1."""
    skip: Tensor
    """Whether nothing must change."""
    beta: float
    weight: Tensor
    factor: Tensor | float
    is_adams: bool
    """Whether m starts at zero, and the factor corrects for it."""
