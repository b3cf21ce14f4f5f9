"""Averaging: what a step remembers of the steps before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Averaging:
    """Base of the ways to average; each keeps one buffer of the parameters' size."""

    beta: float
    """Share of the past in the average, in [0, 1)."""

    buffer_name: ClassVar[str] = "average"
    """What the buffer is called in the optimizer's state."""
    starts_at_parameters: ClassVar[bool] = False
    """Whether the buffer starts as a copy of the parameters; otherwise it starts at zero."""

    def __post_init__(self) -> None:
        if not isinstance(self.beta, int | float) or not 0 <= self.beta < 1:
            raise ValueError(f"beta must be a number in [0, 1), got {self.beta!r}")


@dataclass(frozen=True)
class Linearisations(Averaging):
    """The running average of past linearisations of the loss (MoMo's model), whatever the model on top of it.

        d ← d + w(g − d),    f̃ ← f̃ + w(f − f̃),    f̃ at the next point: f̃ + ⟨d, x⁺ − x⟩

    with w = 1 − β (1 in the first step), or with ``bias_correction`` (1 − β)/(1 − β^k). The model then sees f̃ and d in
    place of f and g. The value at the next point follows from what the step itself has computed, so no inner products
    with the parameters are needed; it assumes that the parameters are moved by this optimizer alone.

    Schaipp, Ohana, Eickenberg, Defazio, Gower: MoMo: Momentum Models for Adaptive Learning Rates, 2024.
    """

    bias_correction: bool = False


@dataclass(frozen=True)
class HeavyBall(Averaging):
    """Heavy-ball momentum on top of the model's step: x⁺ = x − (1 − β)·size·g + β(x − x⁻).

    The model sees the batch loss and gradient, so its step and δ are those without momentum: δ is a diagnostic here,
    no bound is known. With NGN this is NGN-M.

    Islamov, Ajroldi, Orvieto, Lucchi: Enhancing Optimizer Stability: Momentum Adaptation of the NGN Step-size, 2025.
    """
