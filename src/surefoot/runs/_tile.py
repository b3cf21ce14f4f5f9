"""One step of tiles: up to WIDTH convex runs of one data order each, as one computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from surefoot.problems import ArrayProblem
from surefoot.runs._run import Floats
from surefoot.runs._types import TRACED
from surefoot.theory.models import exact_delta

WIDTH = 16
"""Runs of one tile. It is fixed, and every product of matrices has this width: so the numbers of a run do not depend
on which runs stand beside it."""
_CACHE = 1 << 15
"""Numbers of one array that are updated in one go, so that what belongs to them stays in the processor's cache."""


class Tiles:
    """Tiles of a problem, with room for the numbers on the way.

    ``told`` is what the last step has told, of shape (fields of TRACED, tiles, WIDTH): f(x_t, s_t), ‖g_t‖², the
    multiple of g_t (for a proximal point that of a step along g_t that is as long), δ_t and ‖x_t − x_1‖², the square
    of the field. It is the same memory at every step, so that whoever finds the sizes has views of it.

    Args:
        problem: What is minimised.
        points: Where the runs are, of shape (tiles, WIDTH, dimension). From now on that is ``self.points``.
        total: Σ η_t x_t, of the same shape. From now on that is ``self.total``.
        exact: Whether the runs take proximal points.
    """

    def __init__(self, problem: ArrayProblem, points: Floats, total: Floats, *, exact: bool) -> None:
        self.told = np.empty((len(TRACED), len(points), WIDTH))
        self._problem = problem
        self.points, self.total = points, total
        self._loss, self._grad_sq, self._size, self._delta, distance_sq = self.told
        scale = self._size[..., None]
        size = max(_CACHE // (points[0].size or 1), 1) if len(points) else 1
        # As long as a part: broadcasting inside of one would be slow.
        start = np.ascontiguousarray(np.broadcast_to(problem.initial_point(), points[:size].shape))
        work = np.empty_like(start)
        self._parts = []
        for begin in range(0, len(points), size):
            place = slice(begin, begin + size)
            here, room = points[place], work[: len(points[place])]
            self._parts.append((place, here, total[place], scale[place], distance_sq[place], start[: len(here)], room))

    def batches(self, rows: Any) -> Iterator[Any]:
        """The rows of some steps (steps, tiles, batch size), where tiles of one data order share them if they can."""
        return iter(rows[:, : _period(rows)])

    def step(
        self,
        rows: Any,
        rates: Floats,
        factor: float | None,
        sizes: Callable[[], None] | None,
        wants_distance: bool = True,
    ) -> None:
        """Take a step with all runs, and write ``told``.

        Args:
            rows: One of :meth:`batches`.
            rates: α_t of each run.
            factor: η_t, the weight of the points in the total; None for 1.
            sizes: Writes the models' step sizes to ``told``, from its losses and squared gradients, and indices if it
                wants to; None takes proximal points.
            wants_distance: Whether the distance from the start is to be told.
        """
        problem, points = self._problem, self.points
        shape = (len(points) // len(rows), len(rows), *points.shape[1:])
        losses, gradients = problem.loss_and_gradient(points.reshape(shape), rows)
        self._loss[...], gradients = losses.reshape(self._loss.shape), gradients.reshape(points.shape)
        np.vecdot(gradients, gradients, self._grad_sq)
        if sizes is not None:
            sizes()
        for place, here, total, scale, distance_sq, start, work in self._parts:
            if wants_distance:
                np.subtract(here, start, work)
                np.vecdot(work, work, distance_sq)
            np.add(total, here if factor is None else np.multiply(here, factor, work), total)
            if sizes is not None:
                np.subtract(here, np.multiply(gradients[place], scale, work), here)
        if sizes is None:
            proximal = problem.prox(points.reshape(shape), rows, rates.reshape(shape[:-1]))
            new = proximal.points.reshape(points.shape)
            np.subtract(new, points, gradients)
            moved = np.vecdot(gradients, gradients)
            self._size[...] = np.where(self._grad_sq > 0, np.sqrt(moved / self._grad_sq), rates)
            self._delta[...] = exact_delta(self._loss, proximal.losses.reshape(moved.shape), moved, rates)
            points[...] = new


def tile_of(points: Sequence[Floats]) -> Floats:
    """Points of at most WIDTH runs as one tile, which is filled up with copies of the last."""
    return np.stack([*points, *[points[-1]] * (WIDTH - len(points))])[None]


def _period(rows: Any) -> int:
    """After how many tiles the rows repeat, at every step; the number of tiles if they do not."""
    tiles: int = rows.shape[1]
    for period in range(1, tiles // 2 + 1):
        if tiles % period == 0 and np.array_equal(rows[:, period:], rows[:, :-period]):
            return period
    return tiles
