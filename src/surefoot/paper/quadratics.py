"""Closed forms for f(x, s) = ½ s²‖x − x⋆‖² (App. A.3): one batch of a linear regression with interpolation.

Everything depends on a = α s² alone: ‖g‖² = 2 s² f, so z = 2a. Functions take numbers or NumPy arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import numbers
from surefoot.theory.arrays import scalar


class QuadraticStep(NamedTuple):
    """A method's step on a quadratic."""

    size: Any
    """Multiplier of the gradient."""
    delta: Any
    """Stability index, exact."""
    next_loss: Any
    """f(x⁺, s) = f·(1 − size·s²)²."""


def sgd(loss: ArrayLike, s: ArrayLike, lr: ArrayLike) -> QuadraticStep:
    """SGD: size α, δ = a f. It diverges for a > 2.

    >>> sgd(1.0, s=1.0, lr=0.5)
    QuadraticStep(size=0.5, delta=0.5, next_loss=0.25)
    """
    f, square, rate = _arguments(loss, s, lr)
    return _step(f, square, rate, rate * square * f)


def sps(loss: ArrayLike, s: ArrayLike, lr: ArrayLike) -> QuadraticStep:
    """SPS with C = 0: size min{α, 1/(2s²)}, δ = a f for a ≤ ½ and f (1 − 1/(4a)) beyond.

    The paper has the upper bound min{α/2, 1/(2s²)}‖g‖² = min{a, 1} f; this is the value itself.

    >>> sps(1.0, s=1.0, lr=1.0)
    QuadraticStep(size=0.5, delta=0.75, next_loss=0.25)
    """
    f, square, rate = _arguments(loss, s, lr)
    a = rate * square
    with np.errstate(divide="ignore"):
        capped = np.where(a > 0.5, 0.5 / square, rate)
        delta = np.where(a > 0.5, f * (1.0 - 0.25 / a), a * f)
    return _step(f, square, capped, delta)


def ngn(loss: ArrayLike, s: ArrayLike, lr: ArrayLike) -> QuadraticStep:
    """NGN, which is the proximal point here: size α/(1 + a), δ = f a/(1 + a).

    >>> ngn(1.0, s=1.0, lr=1.0)
    QuadraticStep(size=0.5, delta=0.5, next_loss=0.25)
    """
    f, square, rate = _arguments(loss, s, lr)
    a = rate * square
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(np.isinf(a), 1.0 / square, rate / (1.0 + a))
        delta = f * np.where(np.isinf(a), 1.0, a / (1.0 + a))
    return _step(f, square, size, delta)


def spp(loss: ArrayLike, s: ArrayLike, lr: ArrayLike) -> QuadraticStep:
    """SPP: x⁺ = (x + a x⋆)/(1 + a), the same step as NGN's on this function, δ = f a/(1 + a).

    >>> spp(1.0, s=1.0, lr=1.0) == ngn(1.0, s=1.0, lr=1.0)
    True
    """
    return ngn(loss, s, lr)


def _arguments(loss: ArrayLike, s: ArrayLike, lr: ArrayLike) -> tuple[Any, Any, Any]:
    scale = np.asarray(s, float)
    if not np.isfinite(scale).all():
        raise ValueError(f"s must be finite, got {s!r}")
    return numbers("loss", loss), scale * scale, numbers("lr", lr)


def _step(loss: Any, square: Any, size: Any, delta: Any) -> QuadraticStep:
    values = np.broadcast_arrays(size, delta, loss * (1.0 - size * square) ** 2)
    return QuadraticStep(*map(scalar, values))
