"""The bounds of Theorems 3.3, 3.4 and 3.6 in one pass over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.theory.arrays import scalar

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Bound:
    """A bound as the sum of two parts: only ``bias`` knows the distance to the solution, so it can be changed later."""

    bias: Any
    noise: Any

    @property
    def total(self) -> Any:
        """bias + noise."""
        return self.bias + self.noise

    def with_bias(self, bias: ArrayLike) -> Bound:
        """The same noise with another bias."""
        return Bound(scalar(np.asarray(bias, float)), self.noise)


def average_iterate(
    lrs: ArrayLike, deltas: ArrayLike, distance: ArrayLike, *, horizons: Sequence[int] | None = None
) -> Bound:
    """Ω_avg of Theorem 3.3: bounds f at the α-weighted average of x_1 … x_T, and the smallest E f(x_t), above f(x⋆).

        bias = D²/(2 S_1),    noise = Σ_t α_t E[δ_t] / S_1

    With ``horizons`` the last axis of the result runs over bounds for these values of T.

    >>> average_iterate([1.0, 1.0], [0.5, 0.25], distance=2.0)
    Bound(bias=1.0, noise=0.375)
    """
    return _at_horizons(_average_noise, lrs, deltas, distance, horizons)


def last_iterate(
    lrs: ArrayLike, deltas: ArrayLike, distance: ArrayLike, *, horizons: Sequence[int] | None = None
) -> Bound:
    """Ω_last of Theorem 3.4: bounds E f(x_T) − f(x⋆), at the point x_T *before* the T-th step.

        bias = D²/(2 S_1),    noise = E[δ_T] + Σ_{k<T} α_k E[δ_k] / S_{k+1}

    This is the theorem's double sum, telescoped into one pass. Rates that are zero at the end of the schedule do not
    move the iterate; they are dropped. With ``horizons`` the last axis of the result runs over these values of T.

    >>> last_iterate([1.0, 1.0], [0.5, 0.25], distance=2.0)
    Bound(bias=1.0, noise=0.75)
    """
    return _at_horizons(_last_noise, lrs, deltas, distance, horizons)


def last_iterate_terms(lrs: ArrayLike, deltas: ArrayLike) -> Floats:
    """The terms w_k·E[δ_k] of the last-iterate noise, one a step; their sum is ``last_iterate(...).noise``.

    All are ≥ 0, so for a known schedule the sum over the steps done so far can only grow: a partial sum that exceeds
    another run's whole bound proves that this run's bound will be larger.

    >>> last_iterate_terms([1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    array([0.25, 0.5 , 0.5 ])
    """
    rates, indices = _check(lrs, deltas)
    return _weighted(last_iterate_weights(rates), indices)


def last_iterate_weights(lrs: ArrayLike) -> Floats:
    """w_k = α_k/S_{k+1} for k < T and w_T = 1: what one unit of δ_k adds to the last-iterate bound.

    >>> last_iterate_weights([1.0, 1.0, 2.0])
    array([0.33333333, 0.5       , 1.        ])
    """
    rates = _rates(lrs)
    weights = np.empty_like(rates)
    weights[..., -1] = 1.0
    if rates.shape[-1] > 1:
        # S_{k+1} for k < T, summed from the end: differences of running totals would cancel.
        tails = np.cumsum(rates[..., :0:-1], axis=-1)[..., ::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            np.divide(rates[..., :-1], tails, out=weights[..., :-1])
    ends_at_zero = rates[..., -1] == 0
    if ends_at_zero.any():
        _drop_trailing_zeros(rates, weights)
    return weights


def distance_bias(lrs: ArrayLike, distance: ArrayLike) -> Any:
    """D²/(2 S_1), the bias of both convex bounds.

    >>> distance_bias([0.5, 0.5], 2.0)
    2.0
    """
    total = _rates(lrs).sum(axis=-1)
    far = non_negative("distance", distance)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bias = np.where(far == 0, 0.0, 0.5 * far * (far / total))
    return scalar(bias)


def envelope_bias(lrs: ArrayLike, losses: ArrayLike, distances: ArrayLike) -> Any:
    """min_j f(u_j) + ‖x_1 − u_j‖²/(2 S_1): a bias that needs neither x⋆ nor D.

    The proofs hold for every fixed comparison point u, so E f(x_T) ≤ bias + noise for any points u_j; the best choice
    gives the Moreau envelope of the full loss at x_1 with parameter S_1. ``losses`` and ``distances`` hold the points
    on their last axis. Note that this bounds f itself, not f − f⋆.

    >>> envelope_bias([1.0, 1.0], losses=[1.0, 0.1], distances=[0.0, 1.0])
    0.35
    """
    total = _rates(lrs).sum(axis=-1)
    far = non_negative("distances", distances)
    values = np.asarray(losses, float)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        added = np.where(far == 0, 0.0, 0.5 * far * (far / total[..., None]))
    return scalar((values + added).min(axis=-1))


def weakly_convex(
    lrs: ArrayLike,
    deltas: ArrayLike,
    envelope_gap: ArrayLike,
    *,
    rho: float,
    lam: float,
    rho_bar: float,
    sharp: bool = False,
    mean: bool = False,
) -> Bound:
    """Theorem 3.6: bounds Σ_t w_t E‖∇env(x_t)‖², w_t = α_t/(1 − α_t λ), for the Moreau envelope with parameter 1/ρ̄.

        bias = 2ρ̄/(ρ̄ − ρ − λ)·(E[env(x_1)] − E[env(x_{T+1})]),    noise = 2ρ̄²/(ρ̄ − ρ − λ)·Σ_t w_t E[δ_t]

    ``envelope_gap`` is the difference of the envelopes (or any upper bound of it). ``sharp=True`` halves both terms:
    the prox problem is (ρ̄ − ρ − λ)-strongly convex, which the theorem's proof does not use. ``mean=True`` divides by
    Σ w_t, and so bounds the weighted mean of E‖∇env‖².

    >>> weakly_convex([0.1, 0.1], [1.0, 1.0], 1.0, rho=1.0, lam=0.0, rho_bar=2.0)
    Bound(bias=4.0, noise=1.6)
    """
    for name, value in (("rho", rho), ("lam", lam)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    if not rho + lam < rho_bar < math.inf:
        raise ValueError(f"rho_bar must be larger than rho + lam = {rho + lam}, got {rho_bar!r}")
    rates, indices = _check(lrs, deltas)
    if not (rates < 1 / rho_bar).all():
        raise ValueError(f"lrs must be below 1/rho_bar = {1 / rho_bar:g}, got {rates.max():g}")
    weights = rates / (1.0 - rates * lam)
    factor = (1.0 if sharp else 2.0) * rho_bar / (rho_bar - rho - lam)
    gap = np.asarray(envelope_gap, float)
    if np.isnan(gap).any():
        raise ValueError(f"envelope_gap must not be NaN, got {envelope_gap!r}")
    bias = factor * gap
    noise = factor * rho_bar * _weighted(weights, indices).sum(axis=-1)
    if mean:
        total = weights.sum(axis=-1)
        bias, noise = bias / total, noise / total
    return Bound(scalar(bias), scalar(noise))


def _at_horizons(
    noise: Any, lrs: ArrayLike, deltas: ArrayLike, distance: ArrayLike, horizons: Sequence[int] | None
) -> Bound:
    rates, indices = _check(lrs, deltas)
    if horizons is None:
        return Bound(distance_bias(rates, distance), scalar(noise(rates, indices)))
    steps = rates.shape[-1]
    if np.ndim(horizons) != 1 or not len(horizons):
        raise ValueError(f"horizons must be a sequence of whole numbers from 1 to {steps}, got {horizons!r}")
    for horizon in horizons:
        if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer) or not 1 <= horizon <= steps:
            raise ValueError(f"horizons must be whole numbers from 1 to {steps}, got {horizon!r}")
    parts = [(rates[..., :h], indices[..., :h]) for h in horizons]
    biases = np.stack(np.broadcast_arrays(*[distance_bias(a, distance) for a, _ in parts]), axis=-1)
    return Bound(biases, np.stack([noise(a, d) for a, d in parts], axis=-1))


def _last_noise(rates: Floats, indices: Floats) -> Floats:
    return np.asarray(_weighted(last_iterate_weights(rates), indices).sum(axis=-1))


def _average_noise(rates: Floats, indices: Floats) -> Floats:
    return np.asarray(_weighted(rates / rates.sum(axis=-1, keepdims=True), indices).sum(axis=-1))


def _weighted(weights: Floats, indices: Floats) -> Floats:
    """weights·indices, where a zero weight wins over an infinite index."""
    with np.errstate(invalid="ignore", over="ignore"):
        terms = weights * indices
    if np.isnan(terms.sum()):
        terms = np.where(weights == 0, 0.0, terms)
    return terms


def _drop_trailing_zeros(rates: Floats, weights: Floats) -> None:
    """Give the last positive rate the weight 1, and the zeros behind it none."""
    steps = rates.shape[-1]
    last = steps - 1 - np.argmax(rates[..., ::-1] > 0, axis=-1)[..., None]
    position = np.arange(steps)
    weights[...] = np.where(position < last, weights, np.where(position == last, 1.0, 0.0))


def _rates(lrs: ArrayLike) -> Floats:
    rates = np.asarray(lrs, float)
    if rates.ndim == 0 or rates.shape[-1] == 0:
        raise ValueError("lrs must have a last axis of at least one step")
    lowest = rates.min()
    if not (lowest >= 0 and rates.max() < math.inf):
        raise ValueError(f"lrs must be finite and at least 0, got {lowest if not lowest >= 0 else rates.max()}")
    if lowest == 0 and not (rates.max(axis=-1) > 0).all():
        raise ValueError("lrs must have at least one positive rate, got zeros only")
    return rates


def _check(lrs: ArrayLike, deltas: ArrayLike) -> tuple[Floats, Floats]:
    rates, indices = _rates(lrs), np.asarray(deltas, float)
    if indices.ndim == 0 or rates.shape[-1] != indices.shape[-1]:
        raise ValueError(f"lrs and deltas must have the same number of steps, got {rates.shape} and {indices.shape}")
    if np.isnan(indices.min()):
        raise ValueError("deltas must not contain NaN; a diverged run has the index infinity")
    return rates, indices


def non_negative(name: str, value: ArrayLike) -> Floats:
    """The values as an array, refused if one is negative or NaN."""
    values = np.asarray(value, float)
    if not (values >= 0).all():
        raise ValueError(f"{name} must be at least 0, got {value!r}")
    return values
