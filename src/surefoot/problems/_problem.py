"""What every problem offers: losses and gradients of many simultaneous runs, and what is known about its minima."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._base.arguments import numbers
from surefoot._identity import Identity, digest, identify, is_foreign

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

Start = Literal["uniform", "zeros"]


@dataclass(frozen=True)
class Optimum:
    """The minimum of the full training loss."""

    point: Floats | None
    """The minimiser closest to the initial point, of shape (dimension,); None if there is none or it is not known."""
    value: float | None
    """The infimum f⋆ of the full training loss, attained or not; None if it is not known."""
    exists: bool
    """Whether the infimum is attained, so that x⋆ and a distance to it exist."""
    reason: str
    """How the minimum was found, or why there is none."""


class Proximal(NamedTuple):
    """Proximal points of some runs."""

    points: Floats
    losses: Floats
    """Batch losses at the new points."""
    gaps: Floats
    """Certified bounds on how far the objective f(y, s) + ‖y − x‖²/(2α) is above its minimum."""


class Problem(ABC):
    """A training loss f(x) = mean of f(x, s) over batches s of rows: what every kind of problem tells about itself.

    There are two kinds: :class:`ArrayProblem`, of which many runs advance together as one NumPy computation, and
    :class:`~surefoot.problems.NetworkProblem`, any torch model, of which each run trains on its own.
    """

    name: str
    n_rows: int
    """Number of training rows."""
    n_valid: int = 0
    """Number of validation rows."""
    has_prox: bool = False
    """Whether proximal points can be computed, so that SPP can run."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of parameters of a run."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """All settings, JSON-able; together with :meth:`arrays` they determine every number of the problem."""

    def arrays(self) -> tuple[Any, ...]:
        """The data that determine the problem's numbers beside :meth:`describe`."""
        return ()

    def identity(self) -> Identity:
        """The code of yours that the problem's numbers rest on: for a class of yours, its code and what it holds."""
        return identify() if is_foreign(type(self)) else identify(type(self), self._held())

    def _held(self) -> dict[str, Any]:
        """The attributes without what is computed from them: elsewhere the code may be another."""
        cls = type(self)
        return {k: value for k, value in vars(self).items() if not isinstance(getattr(cls, k, None), cached_property)}

    __getstate__ = _held

    def fingerprint(self) -> str:
        """A hash of all that determines the problem's numbers; for a class of yours also of its code."""
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        code = [] if is_foreign(type(self)) else [self.identity().digest]
        return digest(kind, self.describe(), *self.arrays(), *code)

    @abstractmethod
    def initial_point(self) -> Floats:
        """x₁ of every run, of shape (dimension,)."""

    def optimum(self) -> Optimum:
        """The minimum of the full training loss, computed once."""
        return Optimum(None, None, False, "not known for this problem")

    def infimum(self, rows: ArrayLike) -> tuple[float, float]:
        """An interval that holds inf_z f(z, s) for one batch s of rows."""
        raise NotImplementedError(f"{self.name} does not know the infimum of a batch")

    def envelope(self, parameter: ArrayLike) -> Any:
        """The Moreau envelope of the full training loss at x₁: min_u f(u) + ‖u − x₁‖²/(2·parameter).

        With parameter S₁ = Σα_t it is a bias term of the bounds that needs no distance. A number gives a number, an
        array gives an array.
        """
        raise NotImplementedError(f"{self.name} does not know its Moreau envelope")


class ArrayProblem(Problem):
    """A problem on NumPy arrays, of which many runs advance together.

    Derive from it, set ``name``, ``n_rows`` and ``features`` (the dimension), and define :meth:`describe` and
    :meth:`evaluate`, the loss and gradient on one batch as plain NumPy. Gradients of nonsmooth losses are any
    subgradient. If the loss depends on A_s x, derive from :class:`~surefoot.problems.LinearPredictor`: only the loss of
    a row has to be written.

    >>> class Median(ArrayProblem):
    ...     '''mean |x − a_i|: its minimisers are the medians.'''
    ...     name, features = "median", 1
    ...
    ...     def __init__(self, values):
    ...         self.values, self.n_rows = np.asarray(values, float), len(values)
    ...
    ...     def describe(self):
    ...         return {"values": self.values.tolist()}
    ...
    ...     def evaluate(self, points, rows):
    ...         gap = points - self.values[rows]  # (runs, 1) against (batch,)
    ...         return abs(gap).mean(axis=1), np.sign(gap).mean(axis=1, keepdims=True)
    >>> Median([1.0, 2.0, 4.0]).full_loss(np.array([[2.0], [0.0]]))
    array([1.        , 2.33333333])

    A study asks for many points at once, of shape (…, groups, runs, dimension). The runs of a group share a batch: the
    rows are given as (groups, batch size), and axes in front of these hold more runs of the same groups. A run keeps
    its bits as long as the number of runs in a group is the same, with a single thread for linear algebra
    (:func:`one_blas_thread`). A problem that can do all groups in one computation overrides :meth:`loss_and_gradient`
    and :meth:`full_loss`.
    """

    features: int
    """The dimension; where a run has one vector per class, their length."""
    prox_seconds: float = 1e-4
    """Roughly, what the proximal points of 16 runs take; decides how work is divided, nothing else."""
    start: Start = "uniform"
    start_seed: int = 0

    @property
    def dimension(self) -> int:
        """The number of parameters of a run."""
        return self.features

    def initial_point(self) -> Floats:
        """x₁ of every run: U(−1/√features, 1/√features) from ``start_seed``, as ``torch.nn.Linear``, or zeros."""
        if self.start == "zeros":
            return np.zeros(self.dimension)
        width = 1.0 / math.sqrt(self.features)
        return np.random.default_rng(self.start_seed).uniform(-width, width, self.dimension)

    def evaluate(self, points: Floats, rows: Rows) -> tuple[Floats, Floats]:
        """Losses (runs,) and gradients (runs, dimension) at the points (runs, dimension) on the batch ``rows``."""
        raise NotImplementedError(f"{type(self).__name__} must define evaluate, the loss and gradient of a batch")

    def loss_and_gradient(self, points: Floats, rows: Rows) -> tuple[Floats, Floats]:
        """Batch losses (…, groups, runs) and their gradients, in the shape of the points."""
        losses, gradients = np.empty(points.shape[:-1]), np.empty_like(points)
        for place in np.ndindex(points.shape[:-2]):
            losses[place], gradients[place] = self.evaluate(points[place], rows[place[-1]])
        return losses, gradients

    def full_loss(self, points: Floats) -> Floats:
        """Losses over all training rows, for points of shape (…, runs, dimension)."""
        losses, rows = np.empty(points.shape[:-1]), np.arange(self.n_rows)
        for place in np.ndindex(points.shape[:-2]):
            losses[place] = self.evaluate(points[place], rows)[0]
        return losses

    def validation_loss(self, points: Floats) -> Floats:
        """Losses over all validation rows, as :meth:`full_loss`."""
        raise NotImplementedError(f"{self.name} has no validation rows")

    def prox(self, points: Floats, rows: Rows, lr: Floats) -> Proximal:
        """The stochastic proximal points argmin_y f(y, s) + ‖y − x‖²/(2α), for :attr:`has_prox` problems.

        Args:
            points: x, of shape (…, groups, runs, dimension).
            rows: Of shape (groups, batch size).
            lr: α, of shape (…, groups, runs).
        """
        raise NotImplementedError(f"{self.name} has no prox, which the method spp needs")

    def envelope(self, parameter: ArrayLike) -> Any:
        """The Moreau envelope at x₁: where there is a prox, that of the batch of all rows."""
        values = numbers("parameter", parameter, positive=True)
        if not self.has_prox:
            return super().envelope(parameter)
        start, rates = self.initial_point(), np.reshape(values, (1, -1))
        points = np.broadcast_to(start, (*rates.shape, len(start)))
        nearest = self.prox(points, np.arange(self.n_rows)[None], rates)
        gap = nearest.points - start
        return (nearest.losses + np.vecdot(gap, gap) / (2.0 * rates)).reshape(values.shape)[()]


def check_rows(problem: Problem, rows: ArrayLike) -> Rows:
    """The rows of one batch, or an error that names what is wrong."""
    index = np.asarray(rows)
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        raise ValueError(f"rows must be a list of at least one row number, got {rows!r}")
    if index.min() < 0 or index.max() >= problem.n_rows:
        raise ValueError(f"rows must lie in 0 … {problem.n_rows - 1}, got {index.min()} … {index.max()}")
    return index.astype(np.intp)
