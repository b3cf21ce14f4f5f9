"""One step of tiles: up to WIDTH convex runs of one data order each, as one computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from surefoot.problems import TiledProblem
from surefoot.runs._run import Floats
from surefoot.theory.models import exact_delta

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
        self._problem, self._start = problem, start
        self._points, self._total = points, total
        self._gradients, self._work = np.empty_like(points), np.empty_like(points)

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
        problem, points, gradients, work = self._problem, self._points, self._gradients, self._work
        loss[...] = problem.loss_and_gradient(points, batch, gradients)
        _norm_sq(gradients, grad_sq)
        if distance_sq is not None:
            _norm_sq(np.subtract(points, self._start, out=work), distance_sq)
        self._total += points if factor is None else np.multiply(points, factor, out=work)
        if sizes is not None:
            sizes(loss, grad_sq, size, delta)
            gradients *= size[:, None, :, None]
            points -= gradients
        else:
            found = problem.prox(points, rows, rates)
            moved = _norm_sq(np.subtract(found.points, points, out=work), np.empty_like(rates))
            size[...] = np.where(grad_sq > 0, np.sqrt(moved / grad_sq), rates)
            delta[...] = exact_delta(loss, found.losses, moved, rates)
            points[...] = found.points


def _norm_sq(vectors: Floats, out: Floats) -> Floats:
    """Squared norms (tiles, WIDTH) of vectors (tiles, blocks, WIDTH, features)."""
    if vectors.shape[1] == 1:
        return np.vecdot(vectors[:, 0], vectors[:, 0], out=out)
    return np.add.reduce(np.vecdot(vectors, vectors), axis=1, out=out)
