"""The function of the paper's Fig. 1: f(x) = ln(1 + e^(−x)) + max{x − 2, 0}, convex, with a corner at its minimum.

Functions take numbers or NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import numbers
from surefoot.theory.arrays import scalar

START = -3.0
"""Where the paper takes its step from."""
CORNER = 2.0
MINIMISER = CORNER
"""f falls before the corner and rises after it."""


def loss(x: ArrayLike) -> Any:
    """f(x).

    >>> round(loss(2.0), 6)
    0.126928
    """
    point = np.asarray(x, float)
    return scalar(np.logaddexp(0.0, -point) + np.maximum(point - CORNER, 0.0))


def slope(x: ArrayLike) -> Any:
    """A subgradient of f; at the corner the one from the left.

    >>> round(slope(-3.0), 6)
    -0.952574
    """
    point = np.asarray(x, float)
    return scalar(-_sigmoid(-point) + (point > CORNER))


def proximal_point(x: ArrayLike, lr: ArrayLike) -> Any:
    """argmin_y f(y) + (y − x)²/(2α), to the last digits.

    >>> round(proximal_point(-3.0, 100.0), 12)
    2.0
    """
    point, rate = np.broadcast_arrays(np.asarray(x, float), numbers("lr", lr, positive=True))
    # The optimality condition on either side of the corner is increasing in y, and its root lies within α of x.
    left = _bisect(lambda y: y - point - rate * _sigmoid(-y), point, point + rate)
    right = _bisect(lambda y: y - point + rate * _sigmoid(y), point - rate, point)
    return scalar(np.where(left < CORNER, left, np.where(right > CORNER, right, CORNER)))


def _sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0.0, -x))


def _bisect(increasing: Any, low: Any, high: Any) -> Any:
    for _ in range(100):
        middle = 0.5 * (low + high)
        below = increasing(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
