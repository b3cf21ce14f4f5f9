"""How large the index of the exact model (SPP) can be when only F = f(x) − inf f and ‖g‖ are known (Sec. 4.4).

    δ_SPP = f(x) − env_f^α(x),    env_f^α(x) = min_y f(y) + ‖y − x‖²/(2α)

depends on all of f. Lemma 4.3 bounds it; here are that bound and the exact worst case, both for η-weakly convex f and
α < 1/η. For convex f (η = 0) the worst case is the index of SPS with C = inf f, the curve Λ(α) of the paper's figure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.theory.arrays import scalar
from surefoot.theory.bounds import expected_delta_spp

_LARGEST = 1e300  # beyond this, (z − 1)/z is 1 in floating point, and sums of two z would overflow


def delta_bound(gap: ArrayLike, grad_sq: ArrayLike, lr: ArrayLike, *, weak_convexity: float = 0.0) -> Any:
    """The bound of Lemma 4.3 (``delta-spp``): δ_SPP ≤ min{α/(2(1 − αη)) ‖g‖², F} with F = ``gap`` = f(x) − inf f.

    >>> delta_bound(1.0, 1.0, 0.5, weak_convexity=1.0)
    0.5
    """
    for name, value in (("grad_sq", grad_sq), ("lr", lr), ("weak_convexity", weak_convexity)):
        if not (np.isfinite(value) & (np.asarray(value) >= 0)).all():
            raise ValueError(f"{name} must be finite and at least 0, got {value!r}")
    with np.errstate(over="ignore"):
        return expected_delta_spp(lr, grad_sq, gap, 0.0, weak_convexity)


def worst_delta(gap: ArrayLike, grad_sq: ArrayLike, lr: ArrayLike, *, weak_convexity: float = 0.0) -> Any:
    """The largest δ_SPP over all η-weakly convex f with f(x) − inf f ≤ F and a subgradient of norm at most ‖g‖ at x.

    With a = α/(1 − αη) and F = ``gap``,

        a‖g‖²/2 if a‖g‖²(1 + ηa/2) ≤ F,    else F − d²/(2α),  d = 2F/(‖g‖ + √(‖g‖² + 2ηF)).

    It is attained in one dimension, by a parabola that bends down from slope ‖g‖ at x until it meets the constant
    inf f. For η = 0 this is Λ(α): z/2 up to z = α‖g‖²/F = 1, then F(1 − 1/(2z)).

    >>> worst_delta(1.0, 4.0, [0.125, 1.0])
    array([0.25 , 0.875])
    """
    bound = np.asarray(delta_bound(gap, grad_sq, lr, weak_convexity=weak_convexity))  # checks the arguments too
    height, slope_sq, rate = (np.asarray(value, float) for value in (gap, grad_sq, lr))
    # Divided by F everything depends on z = α‖g‖²/F and h = αη alone. The smaller factor is divided first: the product
    # could overflow where z does not.
    h = rate * weak_convexity
    with np.errstate(over="ignore"):
        positive = np.where(height > 0, height, 1.0)
        z = np.minimum(np.minimum(rate, slope_sq) / positive * np.maximum(rate, slope_sq), _LARGEST)
    meets_floor = z * (2.0 - h) > 2.0 * (1.0 - h) ** 2
    # 1 − 2/(√z + √(z + 2h))², in a form that loses no digits as h → 1.
    rise = z + np.sqrt(z) * np.sqrt(z + 2.0 * h)
    safe = np.where(meets_floor, rise + h, 1.0)
    with np.errstate(invalid="ignore"):  # an infinite F never meets the floor
        flattened = height * ((rise - (1.0 - h)) / safe)
    return scalar(np.where(meets_floor, np.minimum(flattened, bound), bound))
