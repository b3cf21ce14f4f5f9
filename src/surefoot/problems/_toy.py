"""The function of the paper's first figure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import number
from surefoot.problems import toy
from surefoot.problems._problem import Floats, Optimum, Proximal, Rows, TiledProblem, check_rows


class ToyFunction(TiledProblem):
    """f(x) = ln(1 + e^(−x)) + max{x − 2, 0}, from x₁ = −3 (Figures 1 and 2): convex, with a corner at x⋆ = 2.

    There is one row, so that every batch is the function itself.

    Args:
        start: x₁.

    >>> problem = ToyFunction()
    >>> problem.optimum().point.tolist(), round(problem.optimum().value, 6)
    ([2.0], 0.126928)
    """

    name = "toy"
    n_rows = 1
    features = 1
    has_prox = True
    prox_seconds = 2e-3

    def __init__(self, *, start: float = toy.START) -> None:
        self.first = number("start", start)

    def describe(self) -> dict[str, Any]:
        """The settings, JSON-able."""
        return {"problem": self.name, "loss": "ln(1 + e^(−x)) + max{x − 2, 0}", "rows": 1, "start": self.first}

    def initial_point(self) -> Floats:
        """x₁ of every run."""
        return np.array([self.first])

    def loss_and_gradient(self, points: Floats, batch: Rows, gradients: Floats) -> Floats:
        """The values and derivatives; at the corner the left derivative."""
        gradients[...] = toy.slope(points)
        return self.full_loss(points)

    def full_loss(self, points: Floats) -> Floats:
        """The values of the function."""
        values: Floats = toy.loss(points[:, 0, :, 0])
        return values

    def prox(self, points: Floats, rows: Rows, lr: Floats) -> Proximal:
        """The proximal points, on either side of the corner or in it."""
        x = points[:, 0, :, 0]
        y = toy.proximal_point(x, lr)
        # In the corner zero is a subgradient of the objective; elsewhere its derivative tells how much is left.
        residual = np.where(y == toy.CORNER, 0.0, toy.slope(y) + (y - x) / lr)
        new = y[:, None, :, None]
        return Proximal(new, self.full_loss(new), 0.5 * lr * residual**2)

    def optimum(self) -> Optimum:
        """The minimum, which lies in the corner."""
        return Optimum(np.array([toy.MINIMISER]), float(toy.loss(toy.MINIMISER)), True, "known by construction")

    def infimum(self, rows: ArrayLike) -> tuple[float, float]:
        """The minimum; there is only one batch."""
        check_rows(self, rows)
        value = float(toy.loss(toy.MINIMISER))
        return value, value

    def envelope(self, parameter: ArrayLike) -> Any:
        """The Moreau envelope at x₁, by the proximal point."""

        def solve(value: float, _: Any) -> tuple[float, Any]:
            y = toy.proximal_point(self.first, value)
            return float(toy.loss(y)) + (y - self.first) ** 2 / (2.0 * value), None

        return self._envelopes(parameter, solve)
