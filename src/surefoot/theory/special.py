"""The special functions behind the Lambert-W step: W₀ on [0, ∞) and the Wright omega function ω(y) = W₀(e^y).

They take Python floats and arrays of NumPy, torch or JAX, and gradients flow through.
"""

from __future__ import annotations

from surefoot.theory.arrays import NUMPY, Array, Namespace, blockwise, coerce


def lambert_w(z: Array) -> Array:
    """Principal branch of the Lambert-W function for z ≥ 0: the w ≥ 0 with w·e^w = z.

    Accurate to 4 units in the last place over the whole range; a negative or NaN argument gives NaN, ∞ gives ∞.

    >>> round(lambert_w(1.0), 12)
    0.56714329041
    """
    xp, (z,) = coerce(z)
    good = (z > 0) & (z < float("inf"))
    inner = xp.where(good, z, 1.0)
    with xp.quiet():
        if xp is NUMPY:
            (w,) = blockwise(lambda piece: (lambert_w_positive(xp, piece),), [inner], outputs=1)
        else:
            w = lambert_w_positive(xp, inner)
    # Outside (0, ∞) the function is its argument (0 and ∞), or not defined.
    w = xp.where(good, w, xp.where(z >= 0, z, float("nan")))
    return w[()] if xp is NUMPY else w


def lambert_w_positive(xp: Namespace, z: Array) -> Array:
    """W₀ for 0 < z < ∞, with no guard around it."""
    value = xp.detach(z)
    w = lambert_w_guess(xp, value)
    w = _fritsch(w, xp.log(value / w) - w)
    # The last correction carries the gradient: by the implicit function theorem its first-order part is exact.
    return _fritsch(w, xp.log(z / w) - w)


def omega_above_one(xp: Namespace, y: Array) -> Array:
    """ω(y) = W₀(e^y) for y ≥ 1, where e^y itself may overflow: the w with w + log w = y. No guard is around it."""
    value = xp.detach(y)
    w = omega_guess(xp, value)
    w = _fritsch(w, value - xp.log(w) - w)
    return _fritsch(w, y - xp.log(w) - w)


def lambert_w_guess(xp: Namespace, z: Array) -> Array:
    """W₀ for z ≥ 0 within 2 % (Winitzki's formula)."""
    log = xp.log1p(z)
    return log * (1.0 - xp.log1p(log) / (2.0 + log))


def omega_guess(xp: Namespace, y: Array) -> Array:
    """ω(y) for any y within a few per cent: Winitzki's formula below 1, one term of the asymptotic series above."""
    above = xp.where(y > 1.0, y, 1.0)
    below = xp.where(y > 1.0, 1.0, y)
    return xp.where(y > 1.0, above - xp.log(above) * above / (1.0 + above), lambert_w_guess(xp, xp.exp(below)))


def _fritsch(w: Array, residual: Array) -> Array:
    """One step of Fritsch, Shafer and Crowley (1973) for w + log w = y, given y − log w − w."""
    w_plus_one = 1.0 + w
    e = residual / w_plus_one
    q = 2.0 * w_plus_one * (1.0 + e * (2.0 / 3.0))
    return w + w * e * ((q - e) / (q - 2.0 * e))
