"""Logistic regression: mean cross entropy of a linear model without bias, for two or more classes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.data import Dataset
from surefoot.problems._cross_entropy import mean_loss
from surefoot.problems._linear_predictor import LinearPredictor, rows_of
from surefoot.problems._newton import Solution, minimum, proximal_points
from surefoot.problems._problem import Floats, Optimum, Proximal, Rows, Start, check_rows
from surefoot.problems._threads import one_blas_thread

_LARGEST = 4000
"""Number of parameters up to which Newton's method is used over all rows."""


class LogisticRegression(LinearPredictor):
    """Mean cross entropy of softmax(X a), plus λ/2 ‖X‖²; with two classes log(1 + exp(−y⟨a, x⟩)), y = ±1.

    The parameters of more than two classes are one vector a class, laid out as (classes, features). There is no bias
    term, as in the paper.

    Args:
        data: A data set or its name, or (X, y) with any numbers as labels.
        ridge: λ.
        validation: Share of the rows held out (0 for none).
        split_seed: Of the split.
        start: ``"uniform"`` or ``"zeros"``.
        start_seed: Of the uniform start.

    >>> problem = LogisticRegression("vowel")
    >>> problem.n_rows, problem.n_valid, problem.dimension
    (422, 106, 110)
    >>> round(problem.optimum().value, 2)
    0.78
    """

    name = "logistic-regression"
    has_prox = True
    prox_seconds = 1e-3

    def __init__(
        self,
        data: str | Dataset | tuple[ArrayLike, ArrayLike],
        *,
        ridge: float = 0.0,
        validation: float = 0.2,
        split_seed: int = 0,
        start: Start = "uniform",
        start_seed: int = 0,
    ) -> None:
        rows, held_out = rows_of(data, "classification", validation, split_seed)
        super().__init__(rows.X, rows.y, validation=held_out, ridge=ridge, start=start, start_seed=start_seed)
        self._origin = {"name": rows.name, "split_seed": split_seed if validation else None}
        self.classes = len(rows.labels)
        self.outputs = self.classes if self.classes > 2 else 1

    def describe(self) -> dict[str, Any]:
        """The settings, JSON-able."""
        return super().describe() | {"loss": "mean cross entropy", "classes": self.classes, "data": self._origin}

    def mean_loss(self, predictions: Floats, targets: Any, slopes: bool) -> Floats:
        """Mean cross entropies."""
        return mean_loss(predictions, targets, slopes)

    def prox(self, points: Floats, rows: Rows, lr: Floats) -> Proximal:
        """The proximal points by Newton's method, with a warning for those that it may not have found."""
        found = proximal_points(self.A.take(rows, axis=0), self.y.take(rows), self._shaped(points), lr, self.ridge)
        return found._replace(points=found.points.reshape(points.shape))

    def optimum(self) -> Optimum:
        """The minimum of the full loss; separable data have none, and the infimum is 0 then."""
        return self._optimum

    @functools.cached_property
    def _optimum(self) -> Optimum:
        if self.dimension > _LARGEST:
            return Optimum(None, None, False, f"not computed for more than {_LARGEST} parameters")
        solution = self._minimize(self.A, self.y)
        value, gap = solution.value, solution.gap
        if solution.separable:
            reason = "the training rows are linearly separable: the infimum 0 is not attained (no x⋆, D = ∞)"
            return Optimum(None, 0.0, False, reason)
        if not solution.certain:
            reason = f"Newton's method did not converge: the infimum is between {value - gap:.3g} and {value:.3g}"
            return Optimum(None, None, False, reason)
        if not solution.attained:
            return Optimum(None, value, False, "some classes are separable: the infimum is not attained")
        return Optimum(solution.point.reshape(-1), value, True, f"Newton's method, gap at most {gap:.1g}")

    def infimum(self, rows: ArrayLike) -> tuple[float, float]:
        """inf_z f(z, s) of one batch, by the dual: the largest mean entropy with Σ a_i(p_i − y_i)ᵀ = 0.

        Rows of full rank and separable rows have the infimum 0.
        """
        index = check_rows(self, rows)
        A = self.A[index]
        if not self.ridge and len(index) <= self.features and np.linalg.matrix_rank(A) == len(index):
            return 0.0, 0.0
        solution = self._minimize(A, self.y[index])
        return max(solution.value - solution.gap, 0.0), solution.value

    def envelope(self, parameter: ArrayLike) -> Any:
        """The Moreau envelope at x₁, by proximal points of the full loss."""
        if self.dimension > _LARGEST:
            raise NotImplementedError(f"{self.name} knows its Moreau envelope up to {_LARGEST} parameters only")
        with one_blas_thread():
            return super().envelope(parameter)

    def _minimize(self, A: Floats, y: Any) -> Solution:
        start = self._shaped(self.initial_point())
        with one_blas_thread():
            if not self.ridge:
                return minimum(A, y, start)
            # At an infinite rate the proximal point is the minimum.
            found = proximal_points(A[None], y[None], start[None, None], np.full((1, 1), np.inf), self.ridge)
        return Solution(found.points[0, 0], float(found.losses[0, 0]), float(found.gaps[0, 0]), True, False)

    def _shaped(self, points: Floats) -> Floats:
        return points.reshape(*points.shape[:-1], self.outputs, self.features)
