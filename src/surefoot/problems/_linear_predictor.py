"""Problems whose loss depends on the parameters through A x: one product of matrices per batch and direction."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import number, one_of, share, whole
from surefoot.data import Dataset, load, train_validation_split
from surefoot.data.dataset import checked_arrays
from surefoot.problems._problem import ArrayProblem, Floats, Rows, Start

_TOGETHER = 1 << 14
"""Predictions that the full loss computes at once; they stay in the processor's cache."""


class LinearPredictor(ArrayProblem):
    """f(x, s) = mean over the rows i of s of ℓ(⟨a_i, x⟩, y_i), plus λ/2 ‖x‖².

    A problem of your own derives from it and defines :meth:`row_loss`, the loss ℓ and its derivative (any
    subgradient where there is none), elementwise. Huber's loss:

    >>> class Huber(LinearPredictor):
    ...     name = "huber"
    ...
    ...     def row_loss(self, predictions, targets):
    ...         gap = predictions - targets
    ...         inside = np.clip(gap, -1.0, 1.0)
    ...         return inside * (gap - 0.5 * inside), inside

    >>> Huber(features=[[1.0, 0.0], [0.0, 2.0]], targets=[1.0, 3.0], ridge=0.1).full_loss(np.zeros((1, 2)))
    array([1.5])

    Args:
        features: A of shape (n, d).
        targets: y of shape (n,).
        validation: Features and targets of the rows held out.
        ridge: λ.
        start: ``"uniform"`` or ``"zeros"``, see :meth:`~surefoot.problems.ArrayProblem.initial_point`.
        start_seed: Of the uniform start.
    """

    name = "linear-predictor"
    outputs: int = 1
    """Predictions per row: the parameters are one vector per output, one after the other."""

    def __init__(
        self,
        features: ArrayLike,
        targets: ArrayLike,
        *,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        ridge: float = 0.0,
        start: Start = "uniform",
        start_seed: int = 0,
    ) -> None:
        cls = type(self)
        if cls.row_loss is LinearPredictor.row_loss and cls.mean_loss is LinearPredictor.mean_loss:
            raise TypeError(f"{cls.__name__} must define row_loss, the loss of a row and its derivative")
        self.A, self.y = checked_arrays("features", features, "targets", targets)
        self.n_rows, self.features = self.A.shape
        self.A_valid, self.y_valid = self.A[:0], self.y[:0]
        if validation is not None:
            self.A_valid, self.y_valid = checked_arrays(
                "validation", validation[0], "validation targets", validation[1]
            )
        if self.A_valid.shape[1] != self.features:
            raise ValueError(
                f"validation has {self.A_valid.shape[1]} features, must have {self.features} as the training rows"
            )
        self.n_valid = len(self.y_valid)
        self.ridge = number("ridge", ridge, least=0)
        one_of("start", start, get_args(Start))
        self.start, self.start_seed = start, whole("start_seed", start_seed, 0)

    @property
    def dimension(self) -> int:
        """The number of parameters of a run."""
        return self.outputs * self.features

    def describe(self) -> dict[str, Any]:
        """The settings, JSON-able."""
        return {
            "problem": self.name,
            "rows": self.n_rows,
            "features": self.features,
            "validation_rows": self.n_valid,
            "ridge": self.ridge,
            "start": self.start,
            "start_seed": self.start_seed,
        }

    def arrays(self) -> tuple[Any, ...]:
        """Features and targets of the training rows, then those of the validation rows."""
        return self.A, self.y, self.A_valid, self.y_valid

    def row_loss(self, predictions: Floats, targets: Floats) -> tuple[Floats, Floats]:
        """ℓ(p, y) and ∂ℓ/∂p, elementwise on arrays that broadcast."""
        raise NotImplementedError(f"{type(self).__name__} must define row_loss, or mean_loss")

    def mean_loss(self, predictions: Floats, targets: Any, slopes: bool) -> Floats:
        """Mean losses (…, groups, runs) of predictions (…, groups, outputs, runs, rows) of the targets (groups, rows).

        With ``slopes`` the predictions are overwritten with the derivatives of the mean loss. Where speed matters, or
        with several outputs, a problem overrides this method and not :meth:`row_loss`.
        """
        losses, derivatives = self.row_loss(predictions, targets[:, None, None, :])
        if slopes:
            np.divide(derivatives, predictions.shape[-1], out=predictions)
        means: Floats = losses[..., 0, :, :].mean(axis=-1)
        return means

    def loss_and_gradient(self, points: Floats, rows: Rows) -> tuple[Floats, Floats]:
        """The batch losses, and the gradients A_sᵀ ℓ′ / b + λx: one product of matrices each."""
        batch = self.A.take(rows, axis=0, mode="clip")  # without a mode NumPy gathers into a buffer first
        columns = np.ascontiguousarray(batch.swapaxes(1, 2))  # products with a transposed view take twice as long
        predictions = self._per_output(points) @ columns[:, None]
        losses = self.mean_loss(predictions, self.y.take(rows), slopes=True)
        gradients = np.empty_like(points)
        np.matmul(predictions, batch[:, None], out=self._per_output(gradients))
        if self.ridge:
            losses = losses + self._penalty(points)
            gradients += self.ridge * points
        return losses, gradients

    def full_loss(self, points: Floats) -> Floats:
        """The losses over all training rows."""
        return self._loss_over(self.A, self.y, points)

    def validation_loss(self, points: Floats) -> Floats:
        """The losses over all validation rows, with the penalty of the training loss."""
        if not self.n_valid:
            return super().validation_loss(points)
        return self._loss_over(self.A_valid, self.y_valid, points)

    def _per_output(self, points: Floats) -> Floats:
        """The same memory as (…, outputs, runs, features)."""
        return points.reshape(*points.shape[:-1], self.outputs, self.features).swapaxes(-3, -2)

    def _loss_over(self, features: Floats, y: Floats, points: Floats) -> Floats:
        *outer, runs, _ = points.shape
        groups = np.ascontiguousarray(self._per_output(points)).reshape(-1, 1, self.outputs * runs, self.features)
        # How many rows are taken at once does not depend on the number of groups, so that neither do a run's sums.
        piece = min(max(_TOGETHER // (self.outputs * runs), 16), len(y))
        count = max(_TOGETHER // (self.outputs * runs * piece), 1)
        losses = np.zeros((len(groups), 1, runs))
        for begin in range(0, len(y), piece):
            columns, targets = features[begin : begin + piece].T, y[None, begin : begin + piece]
            for first in range(0, len(groups), count):
                predictions = groups[first : first + count] @ columns
                predictions = predictions.reshape(-1, 1, self.outputs, runs, targets.shape[1])
                losses[first : first + count] += self.mean_loss(predictions, targets, slopes=False) * targets.shape[1]
        losses /= len(y)
        return losses.reshape(*outer, runs) + (self._penalty(points) if self.ridge else 0.0)

    def _penalty(self, points: Floats) -> Floats:
        penalties: Floats = 0.5 * self.ridge * np.vecdot(points, points)
        return penalties


def rows_of(
    data: Any, task: Literal["classification", "regression"], validation: float, split_seed: int
) -> tuple[Dataset, tuple[Floats, Any] | None]:
    """The data set of a name, of a pair of arrays or given as such, and the share of its rows that is held out."""
    if isinstance(data, str):
        data = load(data, task="regression" if task == "regression" else None)
    if isinstance(data, tuple):
        data = Dataset.from_arrays("given", data[0], data[1], task=task)
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a name, a Dataset or a pair of arrays, got {data!r}")
    if data.task != task:
        targets = {"classification": "classes", "regression": "real targets"}
        raise ValueError(f"data must have {targets[task]}, but {data.name!r} has {targets[data.task]}")
    if not share("validation", validation, or_zero=True):
        return data, None
    data, held_out = train_validation_split(data, validation, split_seed)
    return data, (held_out.X, held_out.y)
