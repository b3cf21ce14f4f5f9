"""The batched engine: all runs of a convex study advance together, in tiles that share their batches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot._base.processes import cores
from surefoot.problems import ArrayProblem, one_blas_thread
from surefoot.runs._chunk import Chunk, advance, tiles_of
from surefoot.runs._lane import Lane, Told
from surefoot.runs._methods import Method
from surefoot.runs._tile import WIDTH
from surefoot.runs._types import Key, RunPlan, Settings
from surefoot.runs._work import Piece, Stop, Work

NUMERICS_VERSION = 3
"""Changes whenever the numbers of a run do, so that stored runs of other versions are computed anew."""

IDENTITY_RULE = 2
"""How runs are remembered; those of another rule are not used."""

_CACHE = 1 << 16
"""Numbers of one array of points that a chunk should stay below, so that a step works in the processor's cache."""
_TRACE = 1 << 20
"""Numbers of one field of the traces of a chunk."""
_CHUNK_SECONDS = 5.0
_STEP_SECONDS = 1e-4
"""Estimated seconds of one step of a chunk, whatever its size; it only decides how work is divided."""
_PARALLEL_SECONDS = 4.0
"""Sweeps that are estimated to take longer are given to several processes, which need a second to start."""


class Chunks(Work):
    """The runs of a study on a tiled problem, in chunks that are taken from the first step to the last in one go.

    Args:
        problem: What is minimised.
        methods: The methods, by name.
        settings: What the runs share.
    """

    def __init__(self, problem: ArrayProblem, methods: Mapping[str, Method], settings: Settings) -> None:
        self.horizon = settings.steps
        self.problem, self.methods, self.settings = problem, methods, settings

    def fingerprint(self) -> str:
        """What the numbers depend on, as text."""
        return self.problem.fingerprint()

    def groups(self, lanes: Sequence[Lane]) -> list[list[Lane]]:
        """The runs in chunks, in the order in which they should be done."""
        plans = [self._plan(lane.key) for lane in lanes]
        lane_of = {id(plan): lane for plan, lane in zip(plans, lanes, strict=True)}
        chunks = chunks_of(self.problem, plans, self.settings)
        return [[lane_of[id(run)] for tile in chunk.tiles for run in tile] for chunk in chunks]

    def workers(self, tasks: Sequence[Sequence[Piece]]) -> int:
        """One process a core for sweeps that take more than a few seconds, else one in all."""
        seconds = 0.0
        for task in tasks:
            tiles = sum(-(-count // WIDTH) for count in Counter(piece.key.seed for piece in task).values())
            exact = self.methods[task[0].key.method].model is None
            per_tile = _tile_seconds(self.problem, self.settings, exact)
            seconds += self.settings.steps * (_STEP_SECONDS + tiles * per_tile)
        return cores() if seconds > _PARALLEL_SECONDS else 1

    def do(self, task: Sequence[Piece], stop: Stop | None = None) -> list[Told]:
        """Run a chunk to its end."""
        plans = [self._plan(piece.key) for piece in task]
        with one_blas_thread():
            traces = advance(self.problem, Chunk(tuple(tiles_of(plans))), self.settings, stop)
        trace_of = {trace.key: trace for trace in traces}
        nothing = np.empty(0)
        return [Told(0, nothing, trace=trace_of[piece.key]) for piece in task]

    def _plan(self, key: Key) -> RunPlan:
        return RunPlan(self.methods[key.method], key.lr, key.seed)


def chunks_of(problem: ArrayProblem, runs: Sequence[RunPlan], settings: Settings) -> list[Chunk]:
    """The runs in chunks: small enough for the memory and to be lost by an interruption, large enough to be fast."""
    result = []
    for exact in (False, True):
        tiles = tiles_of([run for run in runs if (run.method.model is None) == exact])
        if not tiles:
            continue
        outputs = problem.dimension // problem.features
        size = max(problem.dimension, outputs * settings.batch_size)
        fits = min(_CACHE // (size * WIDTH), _TRACE // (settings.steps // settings.every * WIDTH + 1))
        quick = (_CHUNK_SECONDS / settings.steps - _STEP_SECONDS) / _tile_seconds(problem, settings, exact)
        count = max(1, min(fits, max(int(quick), 1)))
        count = math.ceil(len(tiles) / math.ceil(len(tiles) / count))  # of equal size, as far as possible
        result += [Chunk(tuple(tiles[i : i + count])) for i in range(0, len(tiles), count)]
    return result


def _tile_seconds(problem: ArrayProblem, settings: Settings, exact: bool) -> float:
    """A rough estimate of what a tile adds to the time of a step."""
    predictions = problem.dimension // problem.features * settings.batch_size
    per_run = problem.dimension * (3e-9 + 1.6e-10 * settings.batch_size) + 2e-8 * predictions
    return 5e-6 + WIDTH * per_run + (problem.prox_seconds if exact else 0.0)
