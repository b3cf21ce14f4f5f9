"""Logistic regression: mean cross entropy of a linear model without bias, for two or more classes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import number, whole
from surefoot.data import Dataset
from surefoot.problems._cross_entropy import mean_loss, targets_of
from surefoot.problems._linear_predictor import LinearPredictor, labelled, rows_of
from surefoot.problems._logistic_newton import Solution, minimize
from surefoot.problems._logistic_prox import proximal_points
from surefoot.problems._problem import WIDTH, Floats, Optimum, Proximal, Rows, Start, check_rows
from surefoot.problems._threads import one_blas_thread


class LogisticRegression(LinearPredictor):
    """Mean cross entropy of softmax(X a), plus λ/2 ‖X‖²; with two classes log(1 + exp(−y⟨a, x⟩)), y = ±1.

    The parameters of more than two classes are one vector a class, laid out as (classes, features). There is no bias
    term, as in the paper.

    Args:
        data: A data set or its name, or (X, y) with any numbers as labels.
        l2: λ.
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
        l2: float = 0.0,
        validation: float = 0.2,
        split_seed: int = 0,
        start: Start = "uniform",
        start_seed: int = 0,
    ) -> None:
        number("l2", l2, least=0)
        dataset = labelled(data, "classification")
        self._origin = {"name": dataset.name, "split_seed": split_seed if validation else None}
        classes = dataset.n_classes
        assert classes is not None
        A, y, held_out = rows_of(dataset, validation, split_seed)
        super().__init__(A, y, validation=held_out, ridge=l2, start=start, seed=whole("start_seed", start_seed, 0))
        self.classes = classes
        self.blocks = classes if classes > 2 else 1

    def describe(self) -> dict[str, Any]:
        """The settings, JSON-able."""
        return super().describe() | {"loss": "mean cross entropy", "classes": self.classes, "data": self._origin}

    def targets_of(self, values: Any, tiles: int) -> Any:
        """Targets as signs for two classes, else as places of the right classes."""
        return targets_of(values, tiles, self.blocks, WIDTH)

    def mean_loss(self, predictions: Floats, targets: Any, slopes: bool) -> Floats:
        """Mean cross entropies."""
        return mean_loss(predictions, targets, slopes)

    def prox(self, points: Floats, rows: Rows, lr: Floats) -> Proximal:
        """The proximal points by Newton's method."""
        return proximal_points(self.A.take(rows, axis=0), self.y.take(rows), points, lr, self.ridge)

    def optimum(self) -> Optimum:
        """The minimum of the full loss; separable data have none, and the infimum is 0 then."""
        return self._optimum

    @functools.cached_property
    def _optimum(self) -> Optimum:
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
        """The Moreau envelope at x₁: one convex problem a parameter, from the last one's solution."""
        start = self._shaped(self.initial_point())

        def solve(value: float, state: Any) -> tuple[float, Any]:
            begin = start if state is None else state
            solution = minimize(self.A, self.y, begin, ridge=self.ridge, center=start, weight=1.0 / value)
            return solution.value, solution.point

        with one_blas_thread():
            return self._envelopes(parameter, solve)

    def _minimize(self, A: Floats, y: Any) -> Solution:
        with one_blas_thread():
            return minimize(A, y, self._shaped(self.initial_point()), ridge=self.ridge)

    def _shaped(self, point: Floats) -> Floats:
        return point.reshape(self.blocks, self.features)
