"""Problems whose loss depends on the parameters through A x: one product of matrices a tile and direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import number, whole
from surefoot.data import Dataset, load, train_validation_split
from surefoot.problems._problem import WIDTH, Floats, Rows, Start, TiledProblem, check_start

_BLOCK = 1 << 14
"""Predictions of one tile that the full loss looks at in one go; they stay in the cache."""
_GATHERED = 1 << 15
"""Numbers of the batches of several steps, and of their targets, that are gathered in one go."""


@dataclass(slots=True)
class Batch:
    """One batch for each tile, with room for its predictions; tiles of one data order share it, if they take turns."""

    features: Floats
    """A_s of the first tiles, after which the others begin anew: (period, batch size, features)."""
    transposed: Floats
    """The same memory as (period, features, batch size)."""
    targets: Any
    predictions: Floats
    """Room for A_s x, (tiles, blocks, WIDTH, batch size)."""
    flat: Floats
    """The same memory as (tiles / period, period, blocks·WIDTH, batch size)."""


class LinearPredictor(TiledProblem):
    """f(x, s) = mean over the rows i of s of ℓ(⟨a_i, x⟩, y_i), plus λ/2 ‖x‖².

    A problem of your own derives from it and defines :meth:`row_loss`, the loss ℓ and its derivative (any
    subgradient where there is none), elementwise. Examples: Huber's loss

    >>> class Huber(LinearPredictor):
    ...     name = "huber"
    ...
    ...     def row_loss(self, predictions, targets):
    ...         gap = predictions - targets
    ...         inside = np.clip(gap, -1.0, 1.0)
    ...         return inside * (gap - 0.5 * inside), inside

    Poisson regression,

    >>> class Poisson(LinearPredictor):
    ...     name = "poisson"
    ...
    ...     def row_loss(self, predictions, targets):
    ...         mean = np.exp(predictions)
    ...         return mean - targets * predictions, mean - targets

    and the nonsmooth hinge loss of a support vector machine, with labels −1 and 1:

    >>> class Hinge(LinearPredictor):
    ...     name = "hinge"
    ...
    ...     def row_loss(self, predictions, targets):
    ...         slack = 1.0 - targets * predictions
    ...         return np.maximum(slack, 0.0), np.where(slack > 0, -targets, 0.0)
    >>> problem = Hinge(features=[[1.0, 0.0], [0.0, 2.0]], targets=[1, -1], ridge=0.1)
    >>> from surefoot.problems import pack
    >>> float(problem.full_loss(pack(problem, [0.0, 0.0]))[0, 0])
    1.0

    Args:
        features: A of shape (n, d).
        targets: y of shape (n,).
        validation: Features and targets of the rows held out.
        ridge: λ.
        start: ``"uniform"`` or ``"zeros"``, see :meth:`~surefoot.problems.TiledProblem.initial_point`.
        seed: Of the uniform start.
    """

    name = "linear-predictor"

    def __init__(
        self,
        features: ArrayLike,
        targets: ArrayLike,
        *,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        ridge: float = 0.0,
        start: Start = "uniform",
        seed: int = 0,
    ) -> None:
        cls = type(self)
        if cls.row_loss is LinearPredictor.row_loss and cls.mean_loss is LinearPredictor.mean_loss:
            raise TypeError(f"{cls.__name__} must define row_loss, the loss of a row and its derivative")
        self.A, self.y = _checked(features, targets)
        self.n_rows, self.features = self.A.shape
        self.A_valid, self.y_valid = (self.A[:0], self.y[:0]) if validation is None else _checked(*validation)
        if self.A_valid.shape[1] != self.features:
            raise ValueError(
                f"validation has {self.A_valid.shape[1]} features, must have {self.features} as the training rows"
            )
        self.n_valid = len(self.y_valid)
        self.ridge = number("ridge", ridge, least=0)
        self.start, self.start_seed = check_start(start), whole("seed", seed, 0)

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
        """Mean losses (tiles, WIDTH) of predictions (tiles, blocks, WIDTH, rows).

        With ``slopes`` the predictions are overwritten with the derivatives of the mean loss. Where speed matters, or
        with several blocks, a problem overrides this method and not :meth:`row_loss`.
        """
        losses, derivatives = self.row_loss(predictions, targets)
        if slopes:
            np.divide(derivatives, predictions.shape[-1], out=predictions)
        means: Floats = losses[:, 0].mean(axis=-1)
        return means

    def targets_of(self, values: Any, tiles: int) -> Any:
        """What :meth:`mean_loss` takes as targets, for values of y of shape (…, tiles or 1, rows)."""
        return values[..., None, None, :]

    def batches(self, rows: Rows) -> Iterator[Batch]:
        """The batches of some steps, gathered a few at a time into the same memory."""
        steps, tiles, size = rows.shape
        period = _period(rows)
        together = min(max(_GATHERED // (size * (period * self.features + tiles * WIDTH)), 1), steps)
        gathered = np.empty((together, period, size, self.features))
        predictions = np.empty((tiles, self.blocks, WIDTH, size))
        flat = predictions.reshape(tiles // period, period, self.blocks * WIDTH, size)
        batches = [Batch(A, A.transpose(0, 2, 1), None, predictions, flat) for A in gathered]
        for begin in range(0, steps, together):
            chosen = rows[begin : begin + together]
            # Without a mode NumPy gathers into a buffer first.
            self.A.take(chosen[:, :period], axis=0, out=gathered[: len(chosen)], mode="clip")
            for batch, targets in zip(batches, self.targets_of(self.y.take(chosen), tiles), strict=False):
                batch.targets = targets
                yield batch

    def loss_and_gradient(self, points: Floats, batch: Batch, gradients: Floats) -> Floats:
        """The batch losses, and the gradients A_sᵀ ℓ′ / b + λx: one product of matrices each."""
        shape = (*batch.flat.shape[:3], self.features)
        np.matmul(points.reshape(shape), batch.transposed, out=batch.flat)
        losses = self.mean_loss(batch.predictions, batch.targets, slopes=True)
        np.matmul(batch.flat, batch.features, out=gradients.reshape(shape))
        if self.ridge:
            losses = losses + self._penalty(points)
            gradients += self.ridge * points
        return losses

    def full_loss(self, points: Floats) -> Floats:
        """The losses over all training rows."""
        return self._loss_over(self.A, self.y, points)

    def validation_loss(self, points: Floats) -> Floats:
        """The losses over all validation rows, with the penalty of the training loss."""
        if not self.n_valid:
            return super().validation_loss(points)
        return self._loss_over(self.A_valid, self.y_valid, points)

    def _loss_over(self, features: Floats, y: Floats, points: Floats) -> Floats:
        count, blocks, width, _ = points.shape
        flat = points.reshape(count, blocks * width, -1)
        # The rows of a piece do not depend on the number of tiles, so that neither do a run's sums.
        piece = min(max(_BLOCK // (blocks * width), 16), len(y))
        together = min(max(_BLOCK // (blocks * width * piece), 1), count)
        room = np.empty(together * blocks * width * piece)
        losses = np.zeros((count, width))
        for begin in range(0, len(y), piece):
            values = y[begin : begin + piece]
            for first in range(0, count, together):
                tiles = flat[first : first + together]
                if first == 0 or len(tiles) < together:
                    targets = self.targets_of(values[None], len(tiles))
                    predictions = room[: len(tiles) * blocks * width * len(values)].reshape(*tiles.shape[:2], -1)
                np.matmul(tiles, features[begin : begin + piece].T, out=predictions)
                shaped = predictions.reshape(len(tiles), blocks, width, len(values))
                losses[first : first + together] += self.mean_loss(shaped, targets, slopes=False) * len(values)
        losses /= len(y)
        return losses + self._penalty(points) if self.ridge else losses

    def _penalty(self, points: Floats) -> Floats:
        penalties: Floats = 0.5 * self.ridge * np.vecdot(points, points).sum(axis=1)
        return penalties


def labelled(data: Any, task: Literal["classification", "regression"]) -> Dataset:
    """The data set of a name, of a pair of arrays or given as such; its targets must be those of the task."""
    if isinstance(data, str):
        data = load(data, task="regression" if task == "regression" else None)
    if isinstance(data, tuple):
        data = Dataset.from_arrays("given", data[0], data[1], task=task)
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a name, a Dataset or a pair of arrays, got {data!r}")
    if data.task != task:
        targets = {"classification": "classes", "regression": "real targets"}
        raise ValueError(f"data must have {targets[task]}, but {data.name!r} has {targets[data.task]}")
    return data


def rows_of(dataset: Dataset, validation: float, seed: int = 0) -> tuple[Floats, Any, tuple[Floats, Any] | None]:
    """Features and targets, and those of the share of the rows that is held out."""
    if not isinstance(validation, int | float | np.floating) or not 0 <= validation < 1:
        raise ValueError(f"validation must be at least 0 and under 1, got {validation!r}")
    if not validation:
        return dense(dataset.X), dataset.y, None
    whole("split_seed", seed, 0)
    dataset, held_out = train_validation_split(dataset, validation, seed)
    return dense(dataset.X), dataset.y, (dense(held_out.X), held_out.y)


def dense(X: Any) -> Floats:
    """Features as an array, from an array or a SciPy CSR array."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def _period(rows: Rows) -> int:
    """After how many tiles the rows repeat, at every step; the number of tiles if they do not."""
    tiles: int = rows.shape[1]
    for period in range(1, tiles // 2 + 1):
        if tiles % period == 0 and np.array_equal(rows[:, period:], rows[:, :-period]):
            return period
    return tiles


def _checked(features: ArrayLike, targets: ArrayLike) -> tuple[Floats, Any]:
    A = np.ascontiguousarray(features, float)
    y = np.asarray(targets)
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"features must have the shape (n, d) with at least one row and column, got {A.shape}")
    if y.shape != (len(A),):
        raise ValueError(f"targets must have the shape ({len(A)},), one for each row of the features, got {y.shape}")
    if not (np.isfinite(A).all() and np.isfinite(y).all()):
        raise ValueError("features and targets must be finite")
    return A, y
