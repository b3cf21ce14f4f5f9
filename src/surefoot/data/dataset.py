"""The data of a supervised problem: a matrix and its labels."""

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._base.arguments import one_of, share, whole

Task = Literal["classification", "regression"]
Labels: TypeAlias = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with labels, from :func:`load` or :meth:`from_arrays`; the arrays are read-only."""

    name: str
    X: NDArray[np.float64]
    """Features, one row per example."""
    y: Labels
    """For classification the classes 0 … C−1 (int64), for regression the targets (float64)."""
    labels: tuple[float, ...] = ()
    """For classification the label that each class has in the file, in increasing order; else empty."""

    def __post_init__(self) -> None:
        for array in (self.X, self.y):
            array.flags.writeable = False

    @property
    def n_classes(self) -> int | None:
        """The number of classes, None for regression."""
        return len(self.labels) or None

    @property
    def task(self) -> Task:
        """Whether ``y`` holds classes or real targets."""
        return "classification" if self.labels else "regression"

    @classmethod
    def from_arrays(
        cls,
        name: str,
        X: ArrayLike,
        y: ArrayLike,
        *,
        task: Task = "classification",
        labels: tuple[float, ...] | None = None,
    ) -> "Dataset":
        """A data set of one's own, checked and copied, with the labels moved to 0 … C−1.

        Args:
            name: What it is called.
            X: Features of shape (n, d), finite.
            y: Labels of shape (n,), finite numbers.
            task: What the labels mean.
            labels: All labels that may occur, for a part that may lack some; by default those in ``y``.

        >>> data = Dataset.from_arrays("mine", [[1.0], [2.0], [3.0]], [-1, 1, 1])
        >>> data.y.tolist(), data.labels
        ([0, 1, 1], (-1.0, 1.0))
        """
        matrix, numbers = checked_arrays("X", X, "y", y)
        targets = numbers.astype(np.float64)
        if one_of("task", task, get_args(Task)) == "regression":
            return cls(name, matrix, targets)
        known = np.unique(targets if labels is None else np.array(labels, np.float64))
        foreign = np.setdiff1d(targets, known)
        if len(foreign):
            listed = ", ".join(f"{label:g}" for label in known)
            raise ValueError(f"{name}: label {foreign[0]:g} is not among the known labels {listed}")
        if len(known) < 2:
            raise ValueError(f"{name}: all rows have the label {known[0]:g}; classification needs at least two labels")
        return cls(name, matrix, np.searchsorted(known, targets).astype(np.int64), tuple(known.tolist()))


def checked_arrays(x_name: str, X: ArrayLike, y_name: str, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Copies of a matrix and of one finite number for each of its rows; an error names the argument."""
    matrix, targets = np.array(X, np.float64, order="C"), np.array(y)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{x_name} must have shape (n, d) with at least one row and one column, got {matrix.shape}")
    if targets.dtype.kind not in "iufb":
        raise ValueError(
            f"{y_name} must be numbers, one for each row of {x_name}, got {targets.reshape(-1)[:1].tolist()}; "
            f"np.unique({y_name}, return_inverse=True)[1] numbers labels of any kind"
        )
    if targets.shape != matrix.shape[:1]:
        raise ValueError(
            f"{y_name} must have shape ({len(matrix)},), one number for each row of {x_name}, got {targets.shape}"
        )
    for name, values in ((x_name, matrix), (y_name, targets)):
        if not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0, 0])
            raise ValueError(f"{name} must be finite, got another entry in row {row}")
    return matrix, targets


def train_validation_split(dataset: Dataset, fraction: float = 0.2, split_seed: int = 0) -> tuple[Dataset, Dataset]:
    """The rows for training, and those held out for validation, drawn at random.

    Args:
        dataset: What to divide.
        fraction: Share of the rows to hold out, rounded up to whole rows; over 0 and under 1.
        split_seed: Of the shuffle.

    Raises:
        ValueError: An argument out of range, or no row for training.

    >>> from surefoot.data import load
    >>> train, validation = train_validation_split(load("vowel"))
    >>> len(train.y), len(validation.y)
    (422, 106)
    """
    share("fraction", fraction)
    whole("split_seed", split_seed, 0)
    n_rows = len(dataset.y)
    held_out = max(1, math.ceil(round(fraction * n_rows, 9)))  # rounding first: 0.07 * 100 is 7.000000000000001
    if held_out == n_rows:
        raise ValueError(
            f"fraction must leave some of the {n_rows} rows of {dataset.name!r} for training, got {fraction}"
        )
    order = np.random.default_rng(split_seed).permutation(n_rows)
    held, rest = (
        Dataset(dataset.name, dataset.X[rows], dataset.y[rows], dataset.labels) for rows in np.split(order, [held_out])
    )
    return rest, held
