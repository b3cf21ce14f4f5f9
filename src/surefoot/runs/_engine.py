"""The batched engine: all runs of a sweep advance together, in tiles that share their batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from surefoot.problems import WIDTH, Problem, TiledProblem
from surefoot.problems._threads import one_blas_thread
from surefoot.rules import StopRule
from surefoot.runs._chunk import Chunk, advance, tiles_of
from surefoot.runs._execute import cores, execute
from surefoot.runs._nouns import Floats, RunPlan, Settings, Trace

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


def run_batched(
    problem: TiledProblem,
    runs: Sequence[RunPlan],
    *,
    steps_per_epoch: int,
    epochs: int,
    batch_size: int,
    schedule: ArrayLike,
    sampling: str = "shuffle",
    every: int = 1,
    stop: Callable[[], bool] | None = None,
    rules: Sequence[StopRule] = (),
    distance: float | None = None,
    on_chunk: Callable[[list[Trace]], None],
    progress: Callable[[int], None] | None = None,
    processes: int | None = None,
) -> None:
    """Run a sweep, and hand over the traces of finished runs chunk by chunk.

    The numbers of a run depend on nothing but the run and the settings: not on its neighbours, the order of the runs,
    the chunks or the number of processes.

    Args:
        problem: What is minimised.
        runs: The runs, in any order.
        steps_per_epoch: ⌊n/batch_size⌋.
        epochs: Passes; T = steps_per_epoch·epochs.
        batch_size: Rows of a step.
        schedule: T positive factors of the learning rates.
        sampling: ``"shuffle"`` or ``"iid"``.
        every: Keep the steps 0, k, 2k, ….
        stop: Asked now and then; once it says True the call returns, and unfinished chunks are dropped.
        rules: Stop rules, asked about every run after each block of steps; a run that ends has the status ``stopped``.
        distance: D, for rules that want the bias of the bound.
        on_chunk: Takes the finished runs of a chunk; always called in this process and thread.
        progress: Takes the number of runs finished so far.
        processes: Worker processes; by default one a core for sweeps that take more than a few seconds, else none.
    """
    settings = settings_of(problem, steps_per_epoch, epochs, batch_size, schedule, sampling, every)
    job = BatchedJob(problem, replace(settings, rules=tuple(rules), distance=distance))
    finished = 0

    def deliver(traces: list[Trace]) -> None:
        nonlocal finished
        on_chunk(traces)
        finished += len(traces)
        if progress is not None:
            progress(finished)

    execute(job, job.tasks(runs), deliver, processes=processes, stop=stop)


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


def settings_of(
    problem: Problem,
    steps_per_epoch: int,
    epochs: int,
    batch_size: int,
    schedule: ArrayLike,
    sampling: str,
    every: int,
) -> Settings:
    """What the runs of a sweep share, checked."""
    if not 1 <= batch_size <= problem.n_rows:
        raise ValueError(f"batch_size must lie in 1 … {problem.n_rows}, the rows of {problem.name!r}, got {batch_size}")
    if steps_per_epoch != problem.n_rows // batch_size:
        raise ValueError(f"steps_per_epoch must be {problem.n_rows // batch_size}, got {steps_per_epoch}")
    for name, value in (("epochs", epochs), ("every", every)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if sampling not in ("shuffle", "iid"):
        raise ValueError(f"sampling must be 'shuffle' or 'iid', got {sampling!r}")
    factors: Floats = np.array(schedule, float)
    if factors.shape != (steps_per_epoch * epochs,):
        raise ValueError(f"schedule must have {steps_per_epoch * epochs} factors, one a step, got {factors.shape}")
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ValueError(f"schedule must have finite, positive factors, got {factors.min()} … {factors.max()}")
    return Settings(steps_per_epoch, epochs, batch_size, factors, sampling, every)
