"""Closed-form rates: a special case of the bounds, and the ones that the paper compares itself with (App. B)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.theory.arguments import whole
from surefoot.theory.arrays import scalar
from surefoot.theory.bounds._iterates import Bound, non_negative


def power_law(lr: ArrayLike, steps: int, distance: ArrayLike, exponent: ArrayLike) -> Bound:
    """Ω_last for a constant rate α and E[δ_t] = α^ν (Fig. 2 left): D²/(2αT) + α^ν (1 + H_{T−1}).

    >>> power_law(1.0, steps=2, distance=2.0, exponent=0.5)
    Bound(bias=1.0, noise=2.0)
    """
    rate = _positive("lr", lr)
    harmonic = math.fsum(1.0 / k for k in range(1, whole("steps", steps, 1)))
    return Bound(_bias(rate, steps, distance), scalar(rate ** np.asarray(exponent, float) * (1.0 + harmonic)))


def lipschitz_rate(lr: ArrayLike, steps: int, distance: ArrayLike, lipschitz: ArrayLike) -> Bound:
    """The average-iterate rate for a constant step and ‖g‖ ≤ G (App. B.1): D²/(2αT) + αG²/2.

    It holds for every model whose index is at most SGD's, and so cannot show what SPS or NGN gain.

    >>> lipschitz_rate(0.5, steps=4, distance=2.0, lipschitz=2.0)
    Bound(bias=1.0, noise=1.0)
    """
    rate = _positive("lr", lr)
    return Bound(_bias(rate, steps, distance), scalar(0.5 * rate * non_negative("lipschitz", lipschitz) ** 2))


def loizou_sps(
    lr: ArrayLike, steps: int, distance: ArrayLike, smoothness: ArrayLike, interpolation_constant: ArrayLike
) -> Bound:
    """The bound of Loizou et al. (2021, Thm. 3.4) for SPS on smooth convex losses, quoted in App. B.2.

        D²/(ρT) + 2σ²α/ρ,    ρ = min{1/(2 L_max), α}

    It grows linearly in α from α = 1/(2 L_max) on, unlike the method.

    >>> loizou_sps(1.0, steps=4, distance=1.0, smoothness=1.0, interpolation_constant=0.25)
    Bound(bias=0.5, noise=1.0)
    """
    rate = _positive("lr", lr)
    effective = np.minimum(0.5 / _positive("smoothness", smoothness), rate)
    sigma = non_negative("interpolation_constant", interpolation_constant)
    far = non_negative("distance", distance)
    return Bound(scalar(far**2 / (effective * whole("steps", steps, 1))), scalar(2.0 * sigma * rate / effective))


def _bias(rate: Any, steps: int, distance: ArrayLike) -> Any:
    return scalar(non_negative("distance", distance) ** 2 / (2.0 * rate * whole("steps", steps, 1)))


def _positive(name: str, value: ArrayLike) -> Any:
    values = np.asarray(value, float)
    if not (values > 0).all():
        raise ValueError(f"{name} must be positive, got {value!r}")
    return values
