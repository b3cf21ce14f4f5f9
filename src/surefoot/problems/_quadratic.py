"""The quadratics of App. A.3, whose proximal points and minima have closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import whole
from surefoot.problems._problem import ArrayProblem, Floats, Optimum, Proximal, Rows, Start, check_rows, check_start


class Quadratic(ArrayProblem):
    """f(x, s) = s²/2 ‖x − x⋆‖², averaged over the scales s of a batch: one minimiser for all batches (App. A.3).

    Args:
        scales: s of each row.
        minimiser: x⋆.
        start: ``"uniform"`` or ``"zeros"``.
        start_seed: Of the uniform start.

    >>> problem = Quadratic(scales=[1.0, 3.0], minimiser=[1.0, 0.0], start="zeros")
    >>> float(problem.envelope(0.2))
    1.25
    """

    name = "quadratic"
    has_prox = True

    def __init__(
        self,
        scales: ArrayLike = (0.5, 1.0, 2.0),
        minimiser: ArrayLike = (1.0,),
        *,
        start: Start = "uniform",
        start_seed: int = 0,
    ) -> None:
        self.squares = _vector("scales", scales) ** 2
        self.minimiser = _vector("minimiser", minimiser)
        self.n_rows, self.features = len(self.squares), len(self.minimiser)
        self.start, self.start_seed = check_start(start), whole("start_seed", start_seed, 0)

    def describe(self) -> dict[str, Any]:
        """The settings, JSON-able."""
        return {
            "problem": self.name,
            "loss": "s²/2 ‖x − x⋆‖²",
            "rows": self.n_rows,
            "features": self.features,
            "start": self.start,
            "start_seed": self.start_seed,
        }

    def arrays(self) -> tuple[Any, ...]:
        """Squared scales and minimiser."""
        return self.squares, self.minimiser

    def evaluate(self, points: Floats, rows: Rows) -> tuple[Floats, Floats]:
        """The losses ½m‖x − x⋆‖² and gradients m(x − x⋆), where m is the batch's mean of s²."""
        mean, gap = self.squares.take(rows).mean(), points - self.minimiser
        return 0.5 * mean * np.vecdot(gap, gap), mean * gap

    def prox(self, points: Floats, rows: Rows, lr: Floats) -> Proximal:
        """The proximal points x⋆ + (x − x⋆)/(1 + αm)."""
        mean = self.squares.take(rows).mean(axis=-1)[:, None]
        gap = (points - self.minimiser) / (1.0 + lr * mean)[..., None]
        return Proximal(self.minimiser + gap, 0.5 * mean * np.vecdot(gap, gap), np.zeros(lr.shape))

    def optimum(self) -> Optimum:
        """The minimiser x⋆, with the value 0."""
        return Optimum(self.minimiser.copy(), 0.0, True, "known by construction")

    def infimum(self, rows: ArrayLike) -> tuple[float, float]:
        """The infimum, which is 0 for every batch."""
        check_rows(self, rows)
        return 0.0, 0.0


def _vector(name: str, values: ArrayLike) -> Floats:
    try:
        array = np.array(values, float)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"{name} must be a list of finite numbers, got {values!r}")
    return array
