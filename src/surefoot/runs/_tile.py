"""One step of tiles: up to WIDTH convex runs of one data order each, as one computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from surefoot.problems import WIDTH, TiledProblem
from surefoot.runs._run import Floats
from surefoot.runs._types import TRACED
from surefoot.theory.models import exact_delta

_CACHE = 1 << 15
"""Numbers of one array that are updated in one go, so that what belongs to them stays in the processor's cache."""


class Tiles:
    """Tiles of a problem, with room for the numbers on the way.

    ``told`` is what the last step has told, of shape (fields of TRACED, tiles, WIDTH): f(x_t, s_t), ‖g_t‖², the
    multiple of g_t (for a proximal point that of a step along g_t that is as long), δ_t and ‖x_t − x_1‖², the square
    of the field. It is the same memory at every step, so that whoever finds the sizes has views of it.

    Args:
        problem: What is minimised.
        points: Where the runs are, of shape (tiles, blocks, WIDTH, features). From now on that is ``self.points``.
        total: Σ η_t x_t, of the same shape. From now on that is ``self.total``.
        exact: Whether the runs take proximal points.
    """

    def __init__(self, problem: TiledProblem, points: Floats, total: Floats, *, exact: bool) -> None:
        self.told = np.empty((len(TRACED), len(points), WIDTH))
        self._problem = problem
        self.points, self.total, self._gradients = points, total, np.empty_like(points)
        self._vectors = _vectors(self._gradients)
        self._loss, self._grad_sq, self._size, self._delta, distance_sq = self.told
        scale = self._size[:, None, :, None]
        size = max(_CACHE // (points[0].size or 1), 1) if len(points) else 1
        # As long as a part: broadcasting inside of one would be slow.
        start = problem.initial_point().reshape(problem.blocks, 1, problem.features)
        start = np.ascontiguousarray(np.broadcast_to(start, points[:size].shape))
        work = np.empty_like(start)
        self._parts = []
        for begin in range(0, len(points), size):
            here = points[begin : begin + size]
            parts = (array[begin : begin + size] for array in (total, self._gradients, scale, distance_sq))
            room = work[: len(here)]
            self._parts.append((here, *parts, start[: len(here)], room, _vectors(room)))

    def batches(self, rows: Any) -> Iterator[Any]:
        """The batches of some steps, from their rows (steps, tiles, batch size), each valid until the next."""
        return self._problem.batches(rows)

    def step(
        self,
        batch: Any,
        rows: Any,
        rates: Floats,
        factor: float | None,
        sizes: Callable[[], None] | None,
        wants_distance: bool = True,
    ) -> None:
        """Take a step with all runs, and write ``told``.

        Args:
            batch: What :meth:`batches` makes of the rows.
            rows: The rows of each tile.
            rates: α_t of each run.
            factor: η_t, the weight of the points in the total; None for 1.
            sizes: Writes the models' step sizes to ``told``, from its losses and squared gradients, and indices if it
                wants to; None takes proximal points.
            wants_distance: Whether the distance from the start is to be told.
        """
        problem, points, gradients = self._problem, self.points, self._gradients
        self._loss[...] = problem.loss_and_gradient(points, batch, gradients)
        _norm_sq(self._vectors, self._grad_sq)
        if sizes is not None:
            sizes()
        for here, total, steps, scale, distance_sq, start, work, vectors in self._parts:
            if wants_distance:
                np.subtract(here, start, work)
                _norm_sq(vectors, distance_sq)
            np.add(total, here if factor is None else np.multiply(here, factor, work), total)
            if sizes is not None:
                np.multiply(steps, scale, steps)
                np.subtract(here, steps, here)
        if sizes is None:
            proximal = problem.prox(points, rows, rates)
            np.subtract(proximal.points, points, gradients)
            moved = _norm_sq(self._vectors, np.empty_like(rates))
            self._size[...] = np.where(self._grad_sq > 0, np.sqrt(moved / self._grad_sq), rates)
            self._delta[...] = exact_delta(self._loss, proximal.losses, moved, rates)
            points[...] = proximal.points


def _vectors(points: Floats) -> Floats:
    """Points (tiles, blocks, WIDTH, features), without an axis of one block."""
    return points[:, 0] if points.shape[1] == 1 else points


def _norm_sq(vectors: Floats, out: Floats) -> Floats:
    """Squared norms (tiles, WIDTH) of what :func:`_vectors` gives."""
    if vectors.ndim == 3:
        return np.vecdot(vectors, vectors, out)
    return np.add.reduce(np.vecdot(vectors, vectors), axis=1, out=out)
