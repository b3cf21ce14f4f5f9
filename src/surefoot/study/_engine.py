"""The batched engine: all runs of a sweep advance together, in tiles that share their batches."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from surefoot.monitor import StopRule
from surefoot.problems import WIDTH, Problem
from surefoot.problems._threads import one_blas_thread
from surefoot.study._chunk import Chunk, Settings, Stopped, advance, tiles_of
from surefoot.study._runs import Floats, Run, Trace

NUMERICS_VERSION = 1
"""Changes whenever the numbers of a run do, so that stored runs of other versions are computed anew."""

_CACHE = 1 << 16
"""Numbers of one array of points that a chunk should stay below, so that a step works in the processor's cache."""
_TRACE = 1 << 20
"""Numbers of one field of the traces of a chunk."""
_CHUNK_SECONDS = 1.5
_PARALLEL_SECONDS = 4.0
"""Sweeps that are estimated to take longer are given to several processes, which need a second to start."""


def run_batched(
    problem: Problem,
    runs: Sequence[Run],
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
    settings = _settings(problem, steps_per_epoch, epochs, batch_size, schedule, sampling, every)
    settings = replace(settings, rules=tuple(rules), distance=distance)
    if any(run.method.model is None for run in runs) and not problem.has_prox:
        raise ValueError(f"the method spp needs a prox, which the problem {problem.name!r} does not have")
    chunks = chunks_of(problem, runs, settings)
    finished = 0

    def deliver(traces: list[Trace]) -> None:
        nonlocal finished
        on_chunk(traces)
        finished += len(traces)
        if progress is not None:
            progress(finished)

    workers = _workers(problem, chunks, settings, processes)
    if workers > 1:
        from surefoot.study._processes import run_parallel

        chunks = run_parallel(problem, chunks, settings, workers, stop, deliver)
    with one_blas_thread():
        for chunk in chunks:
            try:
                traces = advance(problem, chunk, settings, stop)
            except Stopped:
                return
            deliver(traces)


def chunks_of(problem: Problem, runs: Sequence[Run], settings: Settings) -> list[Chunk]:
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


def _tile_seconds(problem: Problem, settings: Settings, exact: bool) -> float:
    """A rough estimate of what a tile adds to the time of a step."""
    a_run = problem.dimension * (3e-9 + 1.6e-10 * settings.batch_size) + 2e-8 * problem.blocks * settings.batch_size
    return 5e-6 + WIDTH * a_run + (problem.prox_seconds if exact else 0.0)


def _workers(problem: Problem, chunks: list[Chunk], settings: Settings, processes: int | None) -> int:
    if processes is not None:
        if not isinstance(processes, int) or processes < 1:
            raise ValueError(f"processes must be a whole number of at least 1, got {processes!r}")
        return min(processes, len(chunks))
    seconds = sum(
        settings.steps * (_STEP_SECONDS + len(chunk.tiles) * _tile_seconds(problem, settings, chunk.is_exact))
        for chunk in chunks
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, len(chunks)) if seconds > _PARALLEL_SECONDS else 1


def _settings(
    problem: Problem,
    steps_per_epoch: int,
    epochs: int,
    batch_size: int,
    schedule: ArrayLike,
    sampling: str,
    every: int,
) -> Settings:
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
