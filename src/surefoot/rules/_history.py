"""What is known of a run so far, and what a stop rule says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.theory import bounds

Floats = np.ndarray[Any, np.dtype[np.float64]]

ROUNDING = 1e-9
"""Relative error that partial sums are allowed: rounding alone must never put a part above the whole."""


def partial_weights(rates: Floats) -> Floats:
    """What one unit of δ_t adds to the last-iterate bound of a run with these rates.

    A step of rate 0 adds nothing: without it the points are the same, so that the bound of the other steps is theirs.

    >>> partial_weights(np.array([1.0, 1.0, 0.0, 1.0]))
    array([0.5, 1. , 0. , 1. ])
    """
    weights: Floats = np.zeros(len(rates))
    moving = rates > 0
    if moving.any():
        weights[moving] = bounds.last_iterate_weights(rates[moving])
    return weights


@dataclass(frozen=True)
class Stop:
    """Why a run should end."""

    rule: str
    """The rule that says so."""
    step: int
    """The first step, counted from 0, at which it holds."""
    value: float
    """The number that it looks at, at that step."""
    reason: str
    """The reason in one sentence."""


@dataclass(frozen=True)
class History:
    """The numbers of the steps done so far, which is all that a stop rule sees.

    Entry i of the arrays belongs to step i·``every``. What diverged is ∞, what was not measured is NaN.

    >>> history = History(loss=[1.0, 0.5], grad_sq=[1.0, 1.0], delta=[0.5, 0.5], rates=[1.0, 1.0, 1.0])
    >>> history.partial_noise()
    array([0.25, 0.75])
    """

    loss: Any
    grad_sq: Any
    delta: Any
    """δ_t of the method itself."""
    rates: Any
    """α_t of *all* steps of the run, the future ones too."""
    distance: float | None = None
    """D of the bound; without it the bias counts as 0."""
    every: int = 1
    since: int = 0
    """Entries before this one were looked at already: a rule may leave them out as candidates."""

    def __post_init__(self) -> None:
        for name in ("loss", "grad_sq", "delta", "rates"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        lengths = {name: len(getattr(self, name)) for name in ("loss", "grad_sq", "delta")}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"loss, grad_sq and delta must have one entry a step, got {lengths}")
        if len(self.rates) < (len(self.loss) - 1) * self.every + 1:
            raise ValueError(f"rates must hold all steps of the run, got {len(self.rates)} for {len(self.loss)} done")

    def weights(self) -> Floats:
        """What one unit of each δ adds to the last-iterate bound; a kept step stands for ``every`` of them."""
        done, weights = len(self.loss), partial_weights(self.rates)
        if self.every > 1:
            weights = np.add.reduceat(weights, np.arange(0, len(weights), self.every))
        return np.asarray(weights[:done])

    def partial_noise(self) -> Floats:
        """Noise of Ω_T (Theorem 3.4) that the steps up to each one have added; it grows as long as every δ ≥ 0.

        An index that was not measured adds nothing, so that a partial sum stays a lower bound of the whole.
        """
        weights = self.weights()
        counted = (weights > 0) & ~np.isnan(self.delta)
        with np.errstate(over="ignore"):
            terms = np.where(counted, weights, 0.0) * np.where(counted, self.delta, 0.0)
            return np.cumsum(terms)

    def bias(self) -> float:
        """D²/(2 S_1) over all steps of the run; 0 without a distance."""
        if self.distance is None or not (self.rates > 0).any():
            return 0.0
        return float(bounds.distance_bias(self.rates, self.distance))
