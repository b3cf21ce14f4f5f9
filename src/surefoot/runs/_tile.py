"""One step of tiles: up to WIDTH convex runs of one data order each, as one computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from surefoot.problems import TiledProblem
from surefoot.runs._run import Floats
from surefoot.theory.models import exact_delta

_CACHE = 1 << 15
"""Numbers of one array that are updated in one go, so that what belongs to them stays in the processor's cache."""

Sizes = Callable[[Floats, Floats, Floats, Floats], None]
"""Writes the sizes of a step, the third array, from losses and squared gradients, the first two; it may write the
indices, the fourth."""


class Tiles:
    """Tiles of a problem, with room for the numbers on the way.

    Args:
        problem: What is minimised.
        points: Where the runs are, of shape (tiles, blocks, WIDTH, features); moved in place.
        total: Σ η_t x_t, of the same shape; summed up in place.
        start: x_1, in a shape that fits.
    """

    def __init__(self, problem: TiledProblem, points: Floats, total: Floats, start: Floats) -> None:
        self._problem, self._points, self._gradients = problem, points, np.empty_like(points)
        size = max(_CACHE // (points[0].size or 1), 1) if len(points) else 1
        # As long as a part: broadcasting inside of one would be slow.
        start = np.ascontiguousarray(np.broadcast_to(start, points[:size].shape))
        work = np.empty_like(start)
        self._parts = []
        for begin in range(0, len(points), size):
            part = slice(begin, begin + size)
            here = points[part]
            mine = (here, total[part], self._gradients[part], start[: len(here)], work[: len(here)])
            self._parts.append((part, *mine))

    def step(
        self,
        batch: Any,
        rows: Any,
        rates: Floats,
        factor: float | None,
        sizes: Sizes | None,
        loss: Floats,
        grad_sq: Floats,
        size: Floats,
        delta: Floats,
        distance_sq: Floats | None,
    ) -> None:
        """Take a step with all runs; what it tells is written to the last arrays, of shape (tiles, WIDTH).

        Args:
            batch: What the problem makes of the rows.
            rows: The rows of each tile.
            rates: α_t of each run.
            factor: η_t, the weight of the points in the total; None for 1.
            sizes: The models' step sizes; None takes proximal points.
            loss: f(x_t, s_t).
            grad_sq: ‖g_t‖².
            size: The multiple of g_t, or of the proximal point that of a step along g_t that is as long.
            delta: δ_t of a proximal point; of a model, what ``sizes`` writes.
            distance_sq: ‖x_t − x_1‖², unless it is not wanted.
        """
        problem, points, gradients = self._problem, self._points, self._gradients
        loss[...] = problem.loss_and_gradient(points, batch, gradients)
        _norm_sq(gradients, grad_sq)
        if sizes is not None:
            sizes(loss, grad_sq, size, delta)
        scale = size[:, None, :, None]
        for part, here, total, steps, start, work in self._parts:
            if distance_sq is not None:
                _norm_sq(np.subtract(here, start, out=work), distance_sq[part])
            total += here if factor is None else np.multiply(here, factor, out=work)
            if sizes is not None:
                steps *= scale[part]
                here -= steps
        if sizes is None:
            found = problem.prox(points, rows, rates)
            moved = _norm_sq(np.subtract(found.points, points, out=gradients), np.empty_like(rates))
            size[...] = np.where(grad_sq > 0, np.sqrt(moved / grad_sq), rates)
            delta[...] = exact_delta(loss, found.losses, moved, rates)
            points[...] = found.points


def _norm_sq(vectors: Floats, out: Floats) -> Floats:
    """Squared norms (tiles, WIDTH) of vectors (tiles, blocks, WIDTH, features)."""
    if vectors.shape[1] == 1:
        return np.vecdot(vectors[:, 0], vectors[:, 0], out=out)
    return np.add.reduce(np.vecdot(vectors, vectors), axis=1, out=out)
