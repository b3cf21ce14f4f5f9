"""Least squares, with a ridge term if wanted."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.data import Dataset, linear_regression
from surefoot.problems._linear_predictor import LinearPredictor, rows_of
from surefoot.problems._problem import Floats, Optimum, Proximal, Rows, Start, check_rows


class LinearRegression(LinearPredictor):
    """f(x, s) = 1/(2b) ‖A_s x − b_s‖² + λ/2 ‖x‖², the paper's first experiments.

    The factor is the text's 1/(2b); with 1/b, as in the authors' SGD runs, rates would count double.

    Args:
        data: A regression data set or its name, or (A, b). By default :func:`surefoot.data.linear_regression` draws it
            with the next four arguments.
        n: Rows.
        d: Columns.
        noise: Standard deviation of the noise on b.
        data_seed: Of the drawn data.
        ridge: λ (Lemma A.2).
        validation: Share of the rows held out.
        split_seed: Of the split.
        start: Those of :class:`LinearPredictor`.
        start_seed: Those of :class:`LinearPredictor`.

    >>> problem = LinearRegression(start="zeros")
    >>> optimum = problem.optimum()
    >>> optimum.exists, round(float(np.linalg.norm(optimum.point)), 6), optimum.value < 1e-20
    (True, 1.0, True)
    """

    name = "linear-regression"
    has_prox = True

    def __init__(
        self,
        data: str | Dataset | tuple[ArrayLike, ArrayLike] | None = None,
        *,
        n: int = 50,
        d: int = 10,
        noise: float = 0.0,
        data_seed: int = 0,
        ridge: float = 0.0,
        validation: float = 0.0,
        split_seed: int = 0,
        start: Start = "uniform",
        start_seed: int = 0,
    ) -> None:
        if data is None:
            drawn = linear_regression(n, d, noise, data_seed)
            data = Dataset("synthetic", drawn.A, drawn.b)
            origin = {"noise": float(noise), "data_seed": int(data_seed)}
        else:
            origin = {}
        rows, held_out = rows_of(data, "regression", validation, split_seed)
        self._origin = {"name": rows.name, **origin}
        super().__init__(rows.X, rows.y, validation=held_out, ridge=ridge, start=start, start_seed=start_seed)

    def describe(self) -> dict[str, Any]:
        """The settings, JSON-able."""
        return super().describe() | {"loss": "1/(2b) ‖Ax − b‖²", "data": self._origin}

    def mean_loss(self, predictions: Floats, targets: Any, slopes: bool) -> Floats:
        """Mean losses ½(p − y)²; the derivatives are (p − y)/b."""
        predictions -= targets[:, None, None, :]
        losses: Floats = np.vecdot(predictions, predictions)[..., 0, :]
        rows = predictions.shape[-1]
        if slopes:
            predictions *= 1.0 / rows
        losses *= 0.5 / rows
        return losses

    def prox(self, points: Floats, rows: Rows, lr: Floats) -> Proximal:
        """The proximal points (Lemma A.2), by the b×b dual system if b < d, else by the d×d one.

        With c = λ + 1/α and x̄ = x/(1 + αλ) the two are

            y = x̄ − A_sᵀ (A_sA_sᵀ/b + cI)⁻¹ (A_s x̄ − b_s)/b = x̄ − (A_sᵀA_s/b + cI)⁻¹ A_sᵀ(A_s x̄ − b_s)/b.

        They are solved by a spectral decomposition, because one of it serves all rates of a group.
        """
        A, size = self.A.take(rows, axis=0), rows.shape[1]
        transposed = A.transpose(0, 2, 1)
        targets = self.y.take(rows)[:, None, :]
        weight = (self.ridge + 1.0 / lr)[..., None]
        center = points / (1.0 + lr * self.ridge)[..., None]
        slopes = (center @ transposed - targets) / size
        dual = size < self.features
        values, vectors = np.linalg.eigh((A @ transposed if dual else transposed @ A) / size)
        right = slopes if dual else slopes @ A
        solution = ((right @ vectors) / (np.maximum(values, 0.0)[:, None, :] + weight)) @ vectors.transpose(0, 2, 1)
        step = solution @ A if dual else solution
        new = center - step
        residuals = new @ transposed - targets
        gradients = (residuals / size) @ A - weight * step
        losses = 0.5 * np.vecdot(residuals, residuals) / size
        gaps = 0.5 * np.vecdot(gradients, gradients) / weight[..., 0]
        return Proximal(new, losses + self._penalty(new) if self.ridge else losses, gaps)

    def optimum(self) -> Optimum:
        """The least-squares solution closest to the initial point."""
        return self._optimum

    @functools.cached_property
    def _optimum(self) -> Optimum:
        start = self.initial_point()
        system, right = self._stacked(self.A, self.y)
        point = start + np.linalg.lstsq(system, right - system @ start)[0]
        residual = system @ point - right
        return Optimum(point, float(0.5 * residual @ residual), True, "solved as a least-squares problem")

    def infimum(self, rows: ArrayLike) -> tuple[float, float]:
        """The least-squares value of one batch; its interval has the width of rounding."""
        index = check_rows(self, rows)
        system, right = self._stacked(self.A[index], self.y[index])
        residual = system @ np.linalg.lstsq(system, right)[0] - right
        value = float(0.5 * residual @ residual)
        rounding = 1e-12 * float(right @ right)
        return max(value - rounding, 0.0), value

    def _stacked(self, A: Floats, y: Floats) -> tuple[Floats, Floats]:
        """M and r of the system whose ½‖Mx − r‖² is the loss."""
        scale = 1.0 / np.sqrt(len(y))
        if not self.ridge:
            return A * scale, y * scale
        ridge = np.sqrt(self.ridge) * np.eye(self.features)
        return np.vstack([A * scale, ridge]), np.concatenate([y * scale, np.zeros(self.features)])
