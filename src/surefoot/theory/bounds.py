"""Convergence bounds of model-based methods in terms of their stability indices.

Time is the last axis of every array, and everything broadcasts over the axes before it (methods × rates × seeds). The
indices are expectations E[δ_t]: average over the seeds first. Write S_k = α_k + … + α_T.

The theorems need batches that are drawn independently (reshuffled epochs are not covered, and can violate them), a
convex loss, and a model below it; :func:`~surefoot.theory.models.safe_delta` is an index that does without the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import number, numbers, whole
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


def average_iterate(lrs: ArrayLike, deltas: ArrayLike, distance: ArrayLike) -> Bound:
    """Ω_avg of Theorem 3.3: bounds f at the α-weighted average of x_1 … x_T, and the smallest E f(x_t), above f(x⋆).

        bias = D²/(2 S_1),    noise = Σ_t α_t E[δ_t] / S_1

    >>> average_iterate([1.0, 1.0], [0.5, 0.25], distance=2.0)
    Bound(bias=1.0, noise=0.375)
    """
    rates, indices = _check(lrs, deltas)
    return Bound(distance_bias(rates, distance), _sum(rates / rates.sum(axis=-1, keepdims=True), indices))


def last_iterate(lrs: ArrayLike, deltas: ArrayLike, distance: ArrayLike) -> Bound:
    """Ω_last of Theorem 3.4: bounds E f(x_T) − f(x⋆), at the point x_T *before* the T-th step.

        bias = D²/(2 S_1),    noise = E[δ_T] + Σ_{k<T} α_k E[δ_k] / S_{k+1}

    This is the theorem's double sum, telescoped into one pass.

    If the last rates are 0 the bound is ∞: x_T is then the point *after* the last step that moves, and nothing bounds
    what that step does. Leave the zeros at the end out to bound the point before it.

    >>> last_iterate([1.0, 1.0], [0.5, 0.25], distance=2.0)
    Bound(bias=1.0, noise=0.75)
    >>> last_iterate([1.0, 1.0, 0.0], [0.5, 0.25, 0.0], distance=2.0).total
    inf
    """
    rates, indices = _check(lrs, deltas)
    return Bound(distance_bias(rates, distance), _sum(last_iterate_weights(rates), indices))


def last_iterate_terms(lrs: ArrayLike, deltas: ArrayLike) -> Floats:
    """The terms w_k·E[δ_k] of the last-iterate noise, one per step; their sum is ``last_iterate(...).noise``.

    All are ≥ 0, so for a known schedule the sum over the steps done so far can only grow: a partial sum that exceeds
    another run's whole bound proves that this run's bound will be larger.

    >>> last_iterate_terms([1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    array([0.25, 0.5 , 0.5 ])
    """
    rates, indices = _check(lrs, deltas)
    return product(last_iterate_weights(rates), indices)


def last_iterate_weights(lrs: ArrayLike) -> Floats:
    """w_k = α_k/S_{k+1} for k < T and w_T = 1: what one unit of δ_k adds to the last-iterate bound.

    >>> last_iterate_weights([1.0, 1.0, 2.0])
    array([0.33333333, 0.5       , 1.        ])
    """
    rates = _rates(lrs)
    # S_{k+1} for k < T, summed from the end: differences of running totals would cancel.
    tails = np.cumsum(rates[..., :0:-1], axis=-1)[..., ::-1]
    weights = np.ones_like(rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.divide(rates[..., :-1], tails, out=weights[..., :-1])
    if (rates[..., -1] == 0).any():  # the last step that moves has the weight α/0, and the zeros behind it none
        last = rates.shape[-1] - 1 - np.argmax(rates[..., ::-1] > 0, axis=-1)[..., None]
        position = np.arange(rates.shape[-1])
        resting = (position >= last) & (last < position[-1])
        weights = np.where(resting, np.where(position == last, math.inf, 0.0), weights)
    return weights


def distance_bias(lrs: ArrayLike, distance: ArrayLike) -> Any:
    """D²/(2 S_1), the bias of both convex bounds.

    >>> distance_bias([0.5, 0.5], 2.0)
    2.0
    """
    return scalar(_half_square(numbers("distance", distance), _rates(lrs).sum(axis=-1)))


def envelope_bias(lrs: ArrayLike, losses: ArrayLike, distances: ArrayLike) -> Any:
    """min_j f(u_j) + ‖x_1 − u_j‖²/(2 S_1): a bias that needs neither x⋆ nor D.

    The proofs hold for every fixed comparison point u, so E f(x_T) ≤ bias + noise for any points u_j; the best choice
    gives the Moreau envelope of the full loss at x_1 with parameter S_1. ``losses`` and ``distances`` hold the points
    on their last axis. Note that this bounds f itself, not f − f⋆.

    >>> envelope_bias([1.0, 1.0], losses=[1.0, 0.1], distances=[0.0, 1.0])
    0.35
    """
    added = _half_square(numbers("distances", distances), _rates(lrs).sum(axis=-1, keepdims=True))
    return scalar((np.asarray(losses, float) + added).min(axis=-1))


def weakly_convex(
    lrs: ArrayLike,
    deltas: ArrayLike,
    envelope_gap: ArrayLike,
    *,
    rho: float,
    lam: float,
    rho_bar: float,
    sharp: bool = False,
) -> Bound:
    """Theorem 3.6: bounds Σ_t w_t E‖∇env(x_t)‖², w_t = α_t/(1 − α_t λ), for the Moreau envelope with parameter 1/ρ̄.

        bias = 2ρ̄/(ρ̄ − ρ − λ)·(E[env(x_1)] − E[env(x_{T+1})]),    noise = 2ρ̄²/(ρ̄ − ρ − λ)·Σ_t w_t E[δ_t]

    ``envelope_gap`` is the difference of the envelopes (or any upper bound of it). ``sharp=True`` halves both terms:
    the prox problem is (ρ̄ − ρ − λ)-strongly convex, which the theorem's proof does not use. Divided by Σ w_t it bounds
    the weighted mean of E‖∇env‖².

    >>> weakly_convex([0.1, 0.1], [1.0, 1.0], 1.0, rho=1.0, lam=0.0, rho_bar=2.0)
    Bound(bias=4.0, noise=1.6)
    """
    rho, lam = number("rho", rho, least=0), number("lam", lam, least=0)
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
    return Bound(scalar(factor * gap), scalar(factor * rho_bar * _sum(weights, indices)))


def power_law(lr: ArrayLike, steps: int, distance: ArrayLike, exponent: ArrayLike) -> Bound:
    """Ω_last for a constant rate α and E[δ_t] = α^ν (Fig. 2 left): D²/(2αT) + α^ν (1 + H_{T−1}).

    >>> power_law(1.0, steps=2, distance=2.0, exponent=0.5)
    Bound(bias=1.0, noise=2.0)
    """
    rate = numbers("lr", lr, positive=True)
    harmonic = math.fsum(1.0 / k for k in range(1, whole("steps", steps, 1)))
    bias = numbers("distance", distance) ** 2 / (2.0 * rate * steps)
    return Bound(scalar(bias), scalar(rate ** np.asarray(exponent, float) * (1.0 + harmonic)))


def loizou_sps(
    lr: ArrayLike, steps: int, distance: ArrayLike, smoothness: ArrayLike, interpolation_constant: ArrayLike
) -> Bound:
    """The bound of Loizou et al. (2021, Thm. 3.4) for SPS on smooth convex losses, quoted in App. B.2.

        D²/(ρT) + 2σ²α/ρ,    ρ = min{1/(2 L_max), α}

    It grows linearly in α from α = 1/(2 L_max) on, unlike the method.

    >>> loizou_sps(1.0, steps=4, distance=1.0, smoothness=1.0, interpolation_constant=0.25)
    Bound(bias=0.5, noise=1.0)
    """
    rate = numbers("lr", lr, positive=True)
    effective = np.minimum(0.5 / numbers("smoothness", smoothness, positive=True), rate)
    sigma_sq = numbers("interpolation_constant", interpolation_constant)
    bias = numbers("distance", distance) ** 2 / (effective * whole("steps", steps, 1))
    return Bound(scalar(bias), scalar(2.0 * sigma_sq * rate / effective))


def interpolation_constant(optimal_losses: ArrayLike, infima: ArrayLike) -> float:
    """σ² = f(x⋆) − E_s[inf_z f(z, s)], from the batch losses f(x⋆, s) and infima of the same batches.

    Zero if one point minimises every batch loss. Where x⋆ does not exist, give f⋆ itself as ``optimal_losses``.

    >>> interpolation_constant([0.5, 0.25], [0.25, 0.25])
    0.125
    """
    optimal, lowest = np.asarray(optimal_losses, float), np.asarray(infima, float)
    if optimal.ndim and optimal.shape == lowest.shape and (optimal < lowest - 1e-9 * (1 + abs(lowest))).any():
        raise ValueError("infima must not exceed the losses at the optimum of the same batches")
    return float(optimal.mean() - lowest.mean())


def lower_bound_error(infima: ArrayLike, lower_bounds: ArrayLike) -> float:
    """ε_lb = E_s[inf_z f(z, s) − C_s]: how far the lower bounds lie below the batches' infima.

    >>> lower_bound_error([0.5, 0.25], 0.0)
    0.375
    """
    lowest, guesses = np.asarray(infima, float), np.asarray(lower_bounds, float)
    if (guesses > lowest + 1e-9 * (1 + abs(lowest))).any():
        raise ValueError("lower_bounds must not exceed the infima of their batches")
    return float((lowest - guesses).mean())


def expected_delta_sps(
    lr: ArrayLike, grad_sq: ArrayLike, gap: ArrayLike, interpolation_constant: float, lower_bound_error: float
) -> Any:
    """E[δ_SPS] ≤ min{½ α E‖g‖², E[f(x) − f⋆] + σ² + ε_lb} (Sec. 4.2; the paper has α without the ½).

    >>> expected_delta_sps(10.0, 1.0, 0.5, interpolation_constant=0.25, lower_bound_error=0.0)
    0.75
    """
    capped = numbers("gap", gap) + interpolation_constant + lower_bound_error
    return scalar(np.minimum(product(0.5 * numbers("lr", lr), numbers("grad_sq", grad_sq)), capped))


def expected_delta_spp(
    lr: ArrayLike, grad_sq: ArrayLike, gap: ArrayLike, interpolation_constant: float, weak_convexity: float = 0.0
) -> Any:
    """E[δ_SPP] ≤ min{α/(2(1 − αη)) E‖g‖², E[f(x) − f⋆] + σ²} (Lemma 4.3) for η-weakly convex losses and α < 1/η.

    >>> expected_delta_spp(10.0, 1.0, 0.5, interpolation_constant=0.25)
    0.75
    """
    rate = numbers("lr", lr)
    bent = product(rate, np.asarray(number("weak_convexity", weak_convexity, least=0)))
    if (bent >= 1).any():
        raise ValueError(f"lr must be below 1/weak_convexity, got lr={lr!r}, weak_convexity={weak_convexity!r}")
    linear = product(0.5 * rate / (1.0 - bent), numbers("grad_sq", grad_sq))
    return scalar(np.minimum(linear, numbers("gap", gap) + interpolation_constant))


def worst_delta_spp(gap: ArrayLike, grad_sq: ArrayLike, lr: ArrayLike, *, weak_convexity: float = 0.0) -> Any:
    """The largest δ_SPP over all η-weakly convex f with f(x) − inf f ≤ F and a subgradient of norm at most ‖g‖ at x.

    With a = α/(1 − αη) and F = ``gap``,

        a‖g‖²/2 if a‖g‖²(1 + ηa/2) ≤ F,    else F − d²/(2α),  d = 2F/(‖g‖ + √(‖g‖² + 2ηF)).

    It is attained in one dimension, by a parabola that bends down from slope ‖g‖ at x until it meets the constant
    inf f. For η = 0 this is the index of SPS with C = inf f, the curve Λ(α) of the paper's Fig. 2: z/2 up to
    z = α‖g‖²/F = 1, then F(1 − 1/(2z)). Lemma 4.3 (``delta-spp``) bounds it by min{a‖g‖²/2, F}.

    >>> worst_delta_spp(1.0, 4.0, [0.125, 1.0])
    array([0.25 , 0.875])
    """
    for name, value in (("grad_sq", grad_sq), ("lr", lr), ("weak_convexity", weak_convexity)):
        if not (np.isfinite(value) & (np.asarray(value) >= 0)).all():
            raise ValueError(f"{name} must be finite and at least 0, got {value!r}")
    bound = np.asarray(expected_delta_spp(lr, grad_sq, gap, 0.0, weak_convexity))
    excess, slope_sq, rate = (np.asarray(value, float) for value in (gap, grad_sq, lr))
    # Divided by F everything depends on z = α‖g‖²/F and h = αη alone. The smaller factor is divided first: the product
    # could overflow where z does not. Beyond 1e300, (z − 1)/z is 1, and sums of two z would overflow.
    h = rate * weak_convexity
    with np.errstate(over="ignore"):
        positive = np.where(excess > 0, excess, 1.0)
        z = np.minimum(np.minimum(rate, slope_sq) / positive * np.maximum(rate, slope_sq), 1e300)
    meets_floor = z * (2.0 - h) > 2.0 * (1.0 - h) ** 2
    # 1 − 2/(√z + √(z + 2h))², in a form that loses no digits as h → 1.
    rise = z + np.sqrt(z) * np.sqrt(z + 2.0 * h)
    safe = np.where(meets_floor, rise + h, 1.0)
    with np.errstate(invalid="ignore"):  # an infinite F never meets the floor
        flattened = excess * ((rise - (1.0 - h)) / safe)
    return scalar(np.where(meets_floor, np.minimum(flattened, bound), bound))


def rates_over_time(lrs: ArrayLike) -> Floats:
    """Rates of at least 0 whose sum is finite, with time on the last axis.

    >>> rates_over_time([0, 1])
    array([0., 1.])
    """
    rates = np.asarray(lrs, float)
    if rates.ndim == 0 or rates.shape[-1] == 0:
        raise ValueError(f"lrs must have a last axis of at least one step, got the shape {rates.shape}")
    lowest, highest = rates.min(), rates.max()
    if not (lowest >= 0 and float(highest) * rates.shape[-1] < math.inf):
        raise ValueError(
            f"lrs must be finite and at least 0, and so must their sum, got {highest if lowest >= 0 else lowest}"
        )
    return rates


def product(a: Floats, b: Floats) -> Floats:
    """The product, in which a zero wins over an infinity.

    >>> product(np.array([2.0, math.inf]), np.array([1.0, 0.0]))
    array([2., 0.])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.asarray(a * b)
        return np.where((a == 0) | (b == 0), 0.0, found) if np.isnan(found.sum()) else found


def _half_square(distance: Floats, total: Floats) -> Floats:
    """D²/(2S), and 0 where D is, whatever S."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(distance == 0, 0.0, 0.5 * distance * (distance / total))


def _sum(weights: Floats, indices: Floats) -> Any:
    return scalar(product(weights, indices).sum(axis=-1))


def _rates(lrs: ArrayLike) -> Floats:
    rates = rates_over_time(lrs)
    if not (rates.max(axis=-1) > 0).all():
        raise ValueError("lrs must have at least one positive rate, got zeros only")
    return rates


def _check(lrs: ArrayLike, deltas: ArrayLike) -> tuple[Floats, Floats]:
    rates, indices = _rates(lrs), np.asarray(deltas, float)
    if indices.ndim == 0 or rates.shape[-1] != indices.shape[-1]:
        raise ValueError(f"lrs and deltas must have the same number of steps, got {rates.shape} and {indices.shape}")
    if np.isnan(indices.min()):
        raise ValueError("deltas must not contain NaN; a diverged run has the index infinity")
    return rates, indices
