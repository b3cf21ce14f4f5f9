"""What governs E[δ]: the interpolation constant, the lower-bound error, and the exponent of E[δ] in the rate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.theory.arrays import scalar
from surefoot.theory.bounds._iterates import non_negative


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
    capped = non_negative("gap", gap) + interpolation_constant + lower_bound_error
    with np.errstate(over="ignore"):
        linear = 0.5 * non_negative("lr", lr) * non_negative("grad_sq", grad_sq)
    return scalar(np.minimum(linear, capped))


def expected_delta_spp(
    lr: ArrayLike, grad_sq: ArrayLike, gap: ArrayLike, interpolation_constant: float, weak_convexity: float = 0.0
) -> Any:
    """E[δ_SPP] ≤ min{α/(2(1 − αη)) E‖g‖², E[f(x) − f⋆] + σ²} (Lemma 4.3) for η-weakly convex losses and α < 1/η.

    >>> expected_delta_spp(10.0, 1.0, 0.5, interpolation_constant=0.25)
    0.75
    """
    rate = non_negative("lr", lr)
    if weak_convexity < 0 or (rate * weak_convexity >= 1).any():
        raise ValueError(f"lr must be below 1/weak_convexity, got lr={lr!r}, weak_convexity={weak_convexity!r}")
    with np.errstate(over="ignore"):
        linear = 0.5 * rate / (1.0 - rate * weak_convexity) * non_negative("grad_sq", grad_sq)
    return scalar(np.minimum(linear, non_negative("gap", gap) + interpolation_constant))


def local_exponent(lrs: ArrayLike, deltas: ArrayLike) -> Any:
    """ν in E[δ] ∝ α^ν around each rate: the slope of log E[δ] over log α along the last axis.

    1 for SGD at a fixed point; near 0 where the index has flattened. Between two infinite indices the exponent is ∞,
    between two zeros 0; it is never NaN.

    >>> local_exponent([0.1, 1.0, 10.0], [0.2, 2.0, 20.0]).round(12)
    array([1., 1., 1.])
    """
    rates, indices = np.asarray(lrs, float), np.asarray(deltas, float)
    if rates.ndim != 1 or rates.size < 2 or not (rates > 0).all() or not (np.diff(rates) > 0).all():
        raise ValueError("lrs must be an increasing array of at least two positive rates")
    non_negative("deltas", indices)
    x = np.log(rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(indices)
        chords = np.diff(y, axis=-1) / np.diff(x)
        chords = np.where(np.isnan(chords), np.where(y[..., 1:] > 0, np.inf, 0.0), chords)
        # A point between two chords gets their mean, weighted by closeness; the ends have one chord each.
        left, right = np.diff(x)[:-1], np.diff(x)[1:]
        inner = (chords[..., :-1] * right + chords[..., 1:] * left) / (left + right)
        inner = np.where(np.isnan(inner), np.inf, inner)
    return np.concatenate([chords[..., :1], inner, chords[..., -1:]], axis=-1)


def base_inequality_slack(
    lr: ArrayLike,
    delta: ArrayLike,
    loss: ArrayLike,
    loss_at_u: ArrayLike,
    distance_sq: ArrayLike,
    next_distance_sq: ArrayLike,
) -> Any:
    """What is left of the base inequality of one step (eq. ``single-step-base-ineq``); ≥ 0 where it holds.

        slack = α[δ − (f(x, s) − f(u, s))] − ½(‖x⁺ − u‖² − ‖x − u‖²)

    >>> base_inequality_slack(1.0, 0.5, loss=1.0, loss_at_u=0.0, distance_sq=2.0, next_distance_sq=0.5)
    0.25
    """
    rate, gain = np.asarray(lr, float), np.asarray(loss, float) - np.asarray(loss_at_u, float)
    moved = np.asarray(next_distance_sq, float) - np.asarray(distance_sq, float)
    return scalar(rate * (np.asarray(delta, float) - gain) - 0.5 * moved)
