"""Steps of tiles, full losses and proximal points by the compiled library, for whoever has built it (surefoot build).

The functions here return None where the library does not serve, and their callers compute with NumPy then: the library
is not there, or the problem is a class of somebody's own. Its numbers differ from NumPy's in the last digits.

The C sources beside this file say how they compute: ``_tiles.c`` and ``_newton.c``, with ``_lanes.h``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from ctypes import c_double, c_int64, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot._base import kernels
from surefoot.problems._problem import WIDTH, Floats, Rows, TiledProblem

if TYPE_CHECKING:
    from surefoot.problems._linear_predictor import LinearPredictor

SQUARES, CROSS_ENTROPY = "squares", "cross entropy"
"""The losses that the library knows."""
_LOSSES = {(SQUARES, False): 0, (CROSS_ENTROPY, False): 1, (CROSS_ENTROPY, True): 2}
"""The number of each loss in the C source, which tells one block from several."""
_PIECE = 32
"""Rows that the library's full loss has room for, at least."""


class _Sweep(ctypes.Structure):
    """``sweep`` of the C source."""

    _fields_ = (
        *((name, c_int64) for name in ("loss", "tiles", "blocks", "features", "rows")),
        ("ridge", c_double),
        *((name, c_void_p) for name in ("A", "y", "start", "points", "total", "gradients", "told")),
        *((name, c_void_p) for name in ("batch", "predictions")),
    )


class _Newton(ctypes.Structure):
    """``newton`` of the C source."""

    _fields_ = (
        *((name, c_int64) for name in ("runs", "blocks", "rows", "width", "steps", "halvings")),
        ("tolerance", c_double),
        *((name, c_void_p) for name in ("tile", "L", "labels", "weight", "damped", "before", "start")),
        *((name, c_void_p) for name in ("v", "loss", "norm")),
    )


class _Functions(NamedTuple):
    measure: Any
    move: Any
    losses: Any
    newton: Any


@functools.cache
def functions() -> _Functions | None:
    """The library's functions for sweeps, or None if it was not built for this machine."""
    library = kernels.library()
    return None if library is None else _bind(library)


def _bind(library: ctypes.CDLL) -> _Functions:
    measure, move, losses, newton = (
        library.surefoot_measure, library.surefoot_move, library.surefoot_losses, library.surefoot_newton
    )  # fmt: skip
    measure.argtypes = losses.argtypes = [c_void_p, c_void_p]
    move.argtypes, newton.argtypes = [c_void_p, c_double], [c_void_p]
    measure.restype = move.restype = losses.restype = None
    return _Functions(measure, move, losses, newton)


def _functions_for(problem: TiledProblem) -> _Functions | None:
    """The functions, if they serve a problem: what is derived from its class may compute something else."""
    return None if vars(type(problem)).get("compiled_loss") is None else functions()


class CompiledTiles:
    """Tiles whose steps the library takes, with their points in its order of memory: the runs stand innermost.

    Args:
        functions: Of the library.
        problem: What is minimised.
        points: Where the runs are, of shape (tiles, blocks, WIDTH, features); copied.
        total: Σ η_t x_t, of the same shape; copied.
        told: Losses, squared gradients, sizes, indices and squared distances, (5, tiles, WIDTH), used in place.
    """

    def __init__(
        self, functions: _Functions, problem: LinearPredictor, points: Floats, total: Floats, told: Floats
    ) -> None:
        self._measure, self._move = functions.measure, functions.move
        inner_points, inner_total = _inner(points).copy(), _inner(total).copy()
        self.points, self.total = inner_points.swapaxes(2, 3), inner_total.swapaxes(2, 3)
        self._problem, self._told = problem, told
        self._start = problem.initial_point()
        self._y = np.ascontiguousarray(problem.y, float)
        self._gradients = np.empty_like(inner_points)
        self._sweep = _sweep(problem, problem.A, self._y, inner_points)
        self._sweep.start, self._sweep.total = self._start.ctypes.data, inner_total.ctypes.data
        self._sweep.gradients, self._sweep.told = self._gradients.ctypes.data, told.ctypes.data
        self._address = ctypes.addressof(self._sweep)

    def batches(self, rows: Rows) -> Iterator[int]:
        """What :meth:`measure` takes for each of some steps, from rows of shape (steps, tiles, batch size)."""
        rows = np.ascontiguousarray(rows, np.int64)
        steps, _, size = rows.shape
        batch = np.empty((size, self._problem.features))
        predictions = np.empty((self._problem.blocks, size, WIDTH))
        self._sweep.rows = size
        self._sweep.batch, self._sweep.predictions = batch.ctypes.data, predictions.ctypes.data
        first = rows.ctypes.data
        for step in range(steps):
            yield first + step * rows.strides[0]

    def measure(self, batch: int) -> None:
        """Find gradients, and tell losses and squared gradients."""
        self._measure(self._address, batch)

    def move(self, factor: float) -> None:
        """Add ``factor`` times the points to the total, tell their distances, and move them by the sizes told."""
        self._move(self._address, factor)


def compiled_tiles(problem: TiledProblem, points: Floats, total: Floats, told: Floats) -> CompiledTiles | None:
    """Tiles whose steps the library takes; None if it does not serve them."""
    library = _functions_for(problem)
    return None if library is None else CompiledTiles(library, problem, points, total, told)  # type: ignore[arg-type]


def losses(problem: LinearPredictor, features: Floats, y: Floats, points: Floats) -> Floats | None:
    """Losses (tiles, WIDTH) over some rows; None if the library does not serve them."""
    library = _functions_for(problem)
    if library is None or points.shape[2] != WIDTH:
        return None
    targets, inner = np.ascontiguousarray(y, float), _inner(points)
    means, room = np.empty((len(points), WIDTH)), np.empty((problem.blocks, _PIECE, WIDTH))
    sweep = _sweep(problem, features, targets, inner)
    sweep.rows, sweep.predictions = len(targets), room.ctypes.data
    library.losses(ctypes.addressof(sweep), means.ctypes.data)
    return means


def minimisers(
    L: Floats,
    labels: NDArray[Any],
    tile: NDArray[np.intp],
    start: Floats,
    v: Floats,
    numbers: Floats,
    *,
    steps: int,
    halvings: int,
    tolerance: float,
) -> tuple[Floats, Floats, Floats] | None:
    """Newton's method from ``v``: the last ``v`` of some runs, losses and squared gradients; None without the library.

    Args:
        L: Of each tile, (tiles, rows, columns).
        labels: Of each tile, (tiles, rows).
        tile: Of each run; runs of one tile stand together.
        start: Predictions at ``v``, (runs, blocks, rows).
        v: (runs, blocks, columns).
        numbers: Weight, damped weight and first squared gradient of each run, (3, runs).
        steps: Largest number of Newton steps.
        halvings: Largest number of halvings of one step.
        tolerance: Of squared gradients, relative to the first.
    """
    library = functions()
    if library is None:
        return None
    runs, blocks, rows = start.shape
    result = np.array(v, order="C"), np.empty(runs), np.empty(runs)
    arrays = [np.ascontiguousarray(array, kind) for array, kind in ((tile, np.int64), (L, float), (labels, float))]
    arrays += [*np.ascontiguousarray(numbers, float), np.ascontiguousarray(start), *result]
    addresses = [array.ctypes.data for array in arrays]
    newton = _Newton(runs, blocks, rows, L.shape[2], steps, halvings, tolerance, *addresses)
    if library.newton(ctypes.addressof(newton)):
        raise MemoryError(f"no memory for the Newton systems of batches of {rows} rows and {blocks} classes")
    return result


def _sweep(problem: LinearPredictor, features: Floats, targets: Floats, inner: Floats) -> _Sweep:
    assert problem.compiled_loss is not None
    loss = _LOSSES[problem.compiled_loss, problem.blocks > 1]
    sweep = _Sweep(loss, len(inner), problem.blocks, problem.features, 0, problem.ridge)
    sweep.A, sweep.y, sweep.points = (array.ctypes.data for array in (features, targets, inner))
    return sweep


def _inner(points: Floats) -> Floats:
    """Points with the runs innermost: (tiles, blocks, features, WIDTH), copied if they were not."""
    return np.ascontiguousarray(points.swapaxes(2, 3), float)
