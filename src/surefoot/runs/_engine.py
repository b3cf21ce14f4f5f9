"""The batched engine: all runs of a sweep advance together, in tiles that share their batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from surefoot._spawn import cores
from surefoot.problems import WIDTH, TiledProblem, one_blas_thread
from surefoot.runs._chunk import Chunk, advance, tiles_of
from surefoot.runs._types import RunPlan, Settings, Trace

NUMERICS_VERSION = 3
"""Changes whenever the numbers of a run do, so that stored runs of other versions are computed anew."""

IDENTITY_RULE = 2
"""How runs are remembered; those of another rule are used on request only. 1 was that of surefoot 0.1."""

_CACHE = 1 << 16
"""Numbers of one array of points that a chunk should stay below, so that a step works in the processor's cache."""
_TRACE = 1 << 20
"""Numbers of one field of the traces of a chunk."""
_CHUNK_SECONDS = 5.0
_PARALLEL_SECONDS = 4.0
"""Sweeps that are estimated to take longer are given to several processes, which need a second to start."""


@dataclass(frozen=True)
class BatchedJob:
    """A sweep on a tiled problem; a task is a chunk of runs that advance together."""

    problem: TiledProblem
    settings: Settings
    needs_torch: ClassVar[bool] = False

    def tasks(self, runs: Sequence[RunPlan]) -> list[Chunk]:
        """The runs in chunks, in the order in which they should be done."""
        for run in runs:
            if run.method.optimizer is not None:
                raise ValueError(f"the method {run.method.name!r} is for networks, not for {self.problem.name!r}")
            if run.method.model is None and not self.problem.has_prox:
                raise ValueError(f"the method spp needs a prox, which the problem {self.problem.name!r} does not have")
        return chunks_of(self.problem, runs, self.settings)

    def runs_of(self, task: Chunk) -> list[RunPlan]:
        """The runs of a chunk."""
        return [run for tile in task.tiles for run in tile]

    def do(self, task: Chunk, stop: Callable[[], bool] | None = None) -> list[Trace]:
        """Run a chunk to its end."""
        with one_blas_thread():
            return advance(self.problem, task, self.settings, stop)

    def workers(self, tasks: Sequence[Chunk]) -> int:
        """One process a core for sweeps that take more than a few seconds, else none."""
        problem, settings = self.problem, self.settings
        seconds = sum(
            settings.steps * (_STEP_SECONDS + len(chunk.tiles) * _tile_seconds(problem, settings, chunk.is_exact))
            for chunk in tasks
        )
        return cores() if seconds > _PARALLEL_SECONDS else 1

    def finish(self, run: RunPlan) -> None:
        """Chunks leave nothing behind."""

    def underway(self) -> float:
        """Chunks are short: what is not finished is not counted."""
        return 0.0


def chunks_of(problem: TiledProblem, runs: Sequence[RunPlan], settings: Settings) -> list[Chunk]:
    """The runs in chunks: small enough for the memory and to be lost by an interruption, large enough to be fast."""
    result = []
    for exact in (False, True):
        tiles = tiles_of([run for run in runs if (run.method.model is None) == exact])
        if not tiles:
            continue
        size = max(problem.dimension, problem.blocks * settings.batch_size)
        fits = min(_CACHE // (size * WIDTH), _TRACE // (settings.steps // settings.every * WIDTH + 1))
        quick = (_CHUNK_SECONDS / settings.steps - _STEP_SECONDS) / _tile_seconds(problem, settings, exact)
        count = max(1, min(fits, max(int(quick), 1)))
        count = math.ceil(len(tiles) / math.ceil(len(tiles) / count))  # of equal size, as far as possible
        result += [Chunk(tuple(tiles[i : i + count])) for i in range(0, len(tiles), count)]
    return result


_STEP_SECONDS = 1e-4
"""Of one step of a chunk, whatever its size. This and the next only decide how work is divided."""


def _tile_seconds(problem: TiledProblem, settings: Settings, exact: bool) -> float:
    """A rough estimate of what a tile adds to the time of a step."""
    a_run = problem.dimension * (3e-9 + 1.6e-10 * settings.batch_size) + 2e-8 * problem.blocks * settings.batch_size
    return 5e-6 + WIDTH * a_run + (problem.prox_seconds if exact else 0.0)
