"""The function of the paper's Fig. 1: f(x) = ln(1 + e^(−x)) + max{x − 2, 0}, convex, with a corner at its minimum.

Functions take numbers or NumPy arrays; :class:`ToyFunction` is the problem for studies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import number, numbers
from surefoot.problems._problem import ArrayProblem, Floats, Optimum, Proximal, Rows, check_rows
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


class ToyFunction(ArrayProblem):
    """f(x) = ln(1 + e^(−x)) + max{x − 2, 0}, from x₁ = −3 (Figures 1 and 2): convex, with a corner at x⋆ = 2.

    There is one row, so that every batch is the function itself.

    Args:
        start: x₁.

    >>> problem = ToyFunction()
    >>> problem.optimum().point.tolist(), round(problem.optimum().value, 6)
    ([2.0], 0.126928)
    """

    name = "toy"
    n_rows = features = 1
    has_prox = True
    prox_seconds = 2e-3

    def __init__(self, *, start: float = START) -> None:
        self.first = number("start", start)

    def describe(self) -> dict[str, Any]:
        """The settings, JSON-able."""
        return {"problem": self.name, "loss": "ln(1 + e^(−x)) + max{x − 2, 0}", "rows": 1, "start": self.first}

    def initial_point(self) -> Floats:
        """x₁ of every run."""
        return np.array([self.first])

    def evaluate(self, points: Floats, rows: Rows) -> tuple[Floats, Floats]:
        """The values and derivatives; at the corner the left derivative."""
        return loss(points[:, 0]), slope(points)

    def prox(self, points: Floats, rows: Rows, lr: Floats) -> Proximal:
        """The proximal points, on either side of the corner or in it."""
        x = points[..., 0]
        y = proximal_point(x, lr)
        # In the corner zero is a subgradient of the objective; elsewhere its derivative says how much is left.
        residual = np.where(y == CORNER, 0.0, slope(y) + (y - x) / lr)
        return Proximal(y[..., None], loss(y), 0.5 * lr * residual**2)

    def optimum(self) -> Optimum:
        """The minimum, which lies in the corner."""
        return Optimum(np.array([MINIMISER]), float(loss(MINIMISER)), True, "known by construction")

    def infimum(self, rows: ArrayLike) -> tuple[float, float]:
        """The minimum; there is only one batch."""
        check_rows(self, rows)
        value = float(loss(MINIMISER))
        return value, value


def _sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0.0, -x))


def _bisect(increasing: Any, low: Any, high: Any) -> Any:
    for _ in range(100):
        middle = 0.5 * (low + high)
        below = increasing(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
