"""Sweeps on convex problems: all runs advance together, as computations on arrays of shape (tiles, WIDTH, dimension).

Runs of one seed share their batches, so that a step of many of them is a few products of matrices. All products have
the same number of runs, :data:`WIDTH`: so the numbers of a run do not depend on which runs stand beside it, nor on an
interruption. Problems know nothing of that; tiles that are not full are filled up here.

:class:`SweepWork` takes the runs of a study from the first step to the last in one go, in chunks of tiles;
:class:`ProblemRun` is one run that can be advanced by any number of steps, with the same numbers to the last bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._base.processes import cores
from surefoot._identity import Identity, digest, identify, merged
from surefoot.problems import ArrayProblem, Problem, one_blas_thread
from surefoot.rules import History, first_stop
from surefoot.runs._methods import Method, parse_method
from surefoot.runs._row_orders import row_orders
from surefoot.runs._run import Progress, Run
from surefoot.runs._types import (
    EPOCH_FIELDS,
    FINAL_FIELDS,
    STEP_FIELDS,
    TRACED,
    Floats,
    Key,
    Record,
    RunPlan,
    Settings,
    Trace,
    close,
)
from surefoot.runs._work import Stop, Task, Work
from surefoot.theory import level
from surefoot.theory.arrays import NUMPY
from surefoot.theory.models import Linear, Model, Point, exact_delta

NUMERICS_VERSION = 3
"""Changes whenever the numbers of a run do, so that stored runs of other versions are computed anew."""

IDENTITY_RULE = 2
"""How runs are remembered; those of another rule are not used."""

_POINTS = 1 << 16
"""Numbers of one array of points that a chunk should stay below, so that a step works in the processor's cache."""
_TRACE = 1 << 20
"""Numbers of one field of the traces of a chunk."""
_CHUNK_SECONDS = 5.0
_STEP_SECONDS = 1e-4
"""Estimated seconds of one step of a chunk, whatever its size; it only decides how work is divided."""
_PARALLEL_SECONDS = 4.0
"""Sweeps that are estimated to take longer are given to several processes, which need a second to start."""
WIDTH = 16
"""Runs of one tile. It is fixed, and every product of matrices has this width: so the numbers of a run do not depend
on which runs stand beside it."""
_CACHE = 1 << 15
"""Numbers of one array that are updated in one go, so that what belongs to them stays in the processor's cache."""
_TINY = float(np.finfo(np.float64).tiny)
_MAX = float(np.finfo(np.float64).max)
_TOGETHER = 1 << 14
"""Indices that are computed in one go; they stay in the cache."""
_BLOCK = 64
"""Steps between two looks at which runs have diverged; their numbers stay in the cache until they are kept."""

Tile = tuple[RunPlan, ...]
"""At most WIDTH runs of one seed."""


class SweepWork(Work):
    """The runs of a study on a convex problem, in chunks that are taken from the first step to the last in one go.

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

    def groups(self, records: Sequence[Record]) -> list[list[Record]]:
        """The runs in chunks, in the order in which they should be done."""
        plans = [self._plan(record.key) for record in records]
        record_of = {id(plan): record for plan, record in zip(plans, records, strict=True)}
        chunks = chunks_of(self.problem, plans, self.settings)
        return [[record_of[id(run)] for tile in tiles for run in tile] for tiles in chunks]

    def workers(self, tasks: Sequence[Task]) -> int:
        """One process per core for sweeps that take more than a few seconds, else one in all."""
        seconds = 0.0
        for task in tasks:
            tiles = sum(-(-count // WIDTH) for count in Counter(key.seed for key, _, _ in task).values())
            exact = self.methods[task[0][0].method].model is None
            per_tile = _tile_seconds(self.problem, self.settings, exact)
            seconds += self.settings.steps * (_STEP_SECONDS + tiles * per_tile)
        return cores() if seconds > _PARALLEL_SECONDS else 1

    def do(self, task: Task, stop: Stop | None = None) -> list[Record]:
        """Run a chunk to its end."""
        plans = [self._plan(key) for key, _, _ in task]
        # Overflow is how a run diverges: a result, not a warning.
        with one_blas_thread(), np.errstate(all="ignore"):
            chunk = Chunk(self.problem, tiles_of(plans), self.settings)
            chunk.run(stop)
            return [Record(trace.key, self.horizon, trace=trace) for trace in chunk.traces()]

    def _plan(self, key: Key) -> RunPlan:
        return RunPlan(self.methods[key.method], key.lr, key.seed)


def chunks_of(problem: ArrayProblem, runs: Sequence[RunPlan], settings: Settings) -> list[list[Tile]]:
    """The runs in chunks: small enough for the memory and to be lost by an interruption, large enough to be fast."""
    result = []
    for exact in (False, True):
        tiles = tiles_of([run for run in runs if (run.method.model is None) == exact])
        if not tiles:
            continue
        outputs = problem.dimension // problem.features
        size = max(problem.dimension, outputs * settings.batch_size)
        fits = min(_POINTS // (size * WIDTH), _TRACE // (settings.steps // settings.every * WIDTH + 1))
        quick = (_CHUNK_SECONDS / settings.steps - _STEP_SECONDS) / _tile_seconds(problem, settings, exact)
        count = max(1, min(fits, max(int(quick), 1)))
        count = math.ceil(len(tiles) / math.ceil(len(tiles) / count))  # of equal size, as far as possible
        result += [tiles[i : i + count] for i in range(0, len(tiles), count)]
    return result


def _tile_seconds(problem: ArrayProblem, settings: Settings, exact: bool) -> float:
    """A rough estimate of what a tile adds to the time of a step."""
    predictions = problem.dimension // problem.features * settings.batch_size
    per_run = problem.dimension * (3e-9 + 1.6e-10 * settings.batch_size) + 2e-8 * predictions
    return 5e-6 + WIDTH * per_run + (problem.prox_seconds if exact else 0.0)


def tiles_of(runs: Sequence[RunPlan]) -> list[Tile]:
    """Put runs into tiles: those of one seed stand together, in the order given."""
    by_seed: dict[int, list[RunPlan]] = {}
    for run in runs:
        by_seed.setdefault(run.seed, []).append(run)
    return [tuple(group[i : i + WIDTH]) for group in by_seed.values() for i in range(0, len(group), WIDTH)]


class Chunk:
    """Runs that are advanced together, stacked in slots: a tile has one seed and WIDTH slots.

    ``alive`` are the tiles that are still advanced; the arrays of the first group below hold these only. A diverged run
    is put back to the start, where it does no harm, until its tile is taken out; its traces end where it diverged. So
    is one that a rule has ended. What such a slot does afterwards counts nowhere.

    Args:
        problem: What is minimised.
        tiles: Runs of one seed each, which are all exact (SPP) or all have a model.
        settings: What the runs share.
    """

    def __init__(self, problem: ArrayProblem, tiles: Sequence[Tile], settings: Settings) -> None:
        self.problem, self.settings = problem, settings
        # Tiles with the same methods stand together, so that steps of a model are computed without gathering. One that
        # is not full is filled up with copies of its first run.
        tiles = sorted(tiles, key=lambda tile: (not isinstance(tile[0].method.model, Linear), tile[0].method.name))
        self.slots = [run for tile in tiles for run in tile + (tile[0],) * (WIDTH - len(tile))]
        self.is_filler = [slot >= len(tile) for tile in tiles for slot in range(WIDTH)]
        self.is_exact = self.slots[0].method.model is None
        shape = (len(tiles), WIDTH)
        self.first_rates = np.array([run.lr for run in self.slots])
        self.lr = self.first_rates.reshape(shape).copy()

        self.start = problem.initial_point()
        self.alive: Any = slice(None)
        self.points = np.empty((*shape, problem.dimension))
        self.points[...] = self.start
        self.levels = Levels([run.method for run in self.slots])
        self.total = np.zeros_like(self.points)
        self._make_room()
        self.diverged_at = np.full(shape, -1)
        self.stopped_at = np.full(shape, -1)
        self.violations = np.zeros(shape, int)
        self.below = np.zeros((0, *shape), bool)
        """At which steps of the last block a loss was below its bound."""
        # Of a run that ends early the rest is filled with ∞ when all is done.
        self.steps = np.empty((len(TRACED), *shape, settings.kept))
        self.train = np.full((*shape, settings.epochs + 1), np.inf)
        self.valid = np.full((*shape, settings.epochs + 1 if problem.n_valid else 0), np.inf)
        self.last, self.average = np.full(shape, np.inf), np.full(shape, np.inf)
        self.is_plain = bool((settings.schedule == 1.0).all())

    def _make_room(self) -> None:
        """Make what depends on which tiles are alive."""
        tiles = np.arange(len(self.lr))[self.alive]
        self.tiles = Tiles(self.problem, self.points, self.total, exact=self.is_exact)
        self.points, self.total = self.tiles.points, self.tiles.total
        self.block = np.empty((_BLOCK, len(TRACED), len(tiles), WIDTH))
        self.places = (tiles[:, None] * WIDTH + np.arange(WIDTH)).reshape(-1)
        methods = [self.slots[place].method for place in self.places.tolist()]
        told = self.tiles.told.reshape(len(TRACED), -1)
        models = [method.model if method.level is None else None for method in methods]
        self.sizes = None if self.is_exact else StepSizes(models, told)
        bounds = [-np.inf if m.model is None or m.level is not None else m.model.lower_bound for m in methods]
        self.bounds = np.array(bounds).reshape(len(tiles), WIDTH)
        self.seeds = [self.slots[tile * WIDTH].seed for tile in tiles.tolist()]

    def run(self, stop: Callable[[], bool] | None) -> None:
        """Take all steps."""
        settings, problem = self.settings, self.problem
        orders = {
            seed: row_orders(seed, problem.n_rows, settings.batch_size, settings.sampling) for seed in set(self.seeds)
        }
        self._measure({0: self.points[:1]})  # all start alike
        # A block is a part of an epoch or, where these are short, several of them; stop rules are asked after each.
        epochs = 1 if settings.rules else max(_BLOCK // settings.steps_per_epoch, 1)
        for epoch in range(0, settings.epochs, epochs):
            count = min(epochs, settings.epochs - epoch)
            rows = {seed: np.concatenate([next(orders[seed]) for _ in range(count)]) for seed in set(self.seeds)}
            for begin in range(0, count * settings.steps_per_epoch, _BLOCK):
                if stop is not None and stop():
                    raise CancelledError
                self._run_block(
                    epoch * settings.steps_per_epoch + begin,
                    np.stack([rows[seed][begin : begin + _BLOCK] for seed in self.seeds], axis=1),
                )
                if not self.seeds:
                    return
        self.average[self.alive] = problem.full_loss(self.total / settings.schedule.sum())

    def _run_block(self, first: int, rows: NDArray[np.intp]) -> None:
        """Take the steps ``first``, ``first`` + 1, …, one for each entry of ``rows``."""
        every, schedule, per_epoch = self.settings.every, self.settings.schedule, self.settings.steps_per_epoch
        last_step = len(schedule) - 1
        records = self.block[: len(rows)]
        sizes = None if self.sizes is None else self._write_sizes if len(self.levels.slots) else self.sizes.write
        reached: dict[int, Floats] = {}
        batches = self.tiles.batches(rows)
        rates = self.lr[self.alive] * schedule[first : first + len(rows), None, None]
        if self.sizes is not None:
            self.sizes.set_rates(rates[0].reshape(-1))
        tiles, factor = self.tiles, None
        steps = zip(batches, records, rates, strict=True)
        for step, (batch, record, self.rates) in enumerate(steps, first):
            if not self.is_plain:
                factor = float(schedule[step])
                if self.sizes is not None:
                    self.sizes.set_rates(self.rates.reshape(-1))
            if step == last_step:
                self.last[self.alive] = np.where(self._are_over(), np.inf, self.problem.full_loss(self.points))
            tiles.step(batch, self.rates, factor, sizes, step % every == 0)
            record[...] = tiles.told
            if (step + 1) % per_epoch == 0:
                reached[(step + 1) // per_epoch] = self.points.copy()
        self._measure(reached)
        block = records.swapaxes(0, 1)
        if self.sizes is not None:
            loss, grad_sq, _, delta, _ = block
            self.sizes.write_deltas(loss, grad_sq, rates, delta)
        self._keep(first, block)
        if self.settings.rules and self.seeds:
            self._ask_rules(first, len(rows))

    def _write_sizes(self) -> None:
        """Write the sizes of the models, and sizes and indices of the levels."""
        assert self.sizes is not None
        self.sizes.write()
        loss, grad_sq, size, delta, _ = self.tiles.told.reshape(len(TRACED), -1)
        self.levels.step(self.places, loss, grad_sq, self.rates.reshape(-1), size, delta)

    def _keep(self, first: int, block: Floats) -> None:
        """Keep the traces of a block, and look for runs that diverged in it."""
        every, length = self.settings.every, block.shape[1]
        skip = -first % every
        kept = slice((first + skip) // every, (first + length - 1) // every + 1)
        self.steps[:, self.alive, :, kept] = block[:, skip::every].transpose(0, 2, 3, 1)
        loss, grad_sq = block[:2]
        numbers = loss + grad_sq
        is_end = first + length == self.settings.steps
        diverged_at, over = self.diverged_at[self.alive], self._are_over()
        below = (loss < self.bounds) & ~over
        is_sound = bool(np.isfinite(numbers.sum()))
        bad = np.zeros_like(below) if is_sound else ~np.isfinite(numbers)
        if below.any():
            below &= ~np.logical_or.accumulate(bad)
            self.violations[self.alive] += below.sum(axis=0)
        self.below = below
        if is_sound and not (is_end and not np.isfinite(self.points.sum())):
            return
        if is_end:  # the last step may have led to a point that is none; later blocks would have seen it
            bad[-1] |= ~np.isfinite(self.points).all(axis=-1)
        diverged = bad.any(axis=0) & ~over
        diverged_at[diverged] = first + bad.argmax(axis=0)[diverged]
        self.diverged_at[self.alive] = diverged_at
        self._reset(diverged)

    def _ask_rules(self, first: int, length: int) -> None:
        """End the runs that a stop rule gives up."""
        settings, rules = self.settings, self.settings.rules
        kept, since = -(-(first + length) // settings.every), -(-first // settings.every)
        ended = np.zeros(self.diverged_at[self.alive].shape, bool)
        for row, tile in enumerate(np.arange(len(self.lr))[self.alive]):
            for slot in range(WIDTH):
                if self.diverged_at[tile, slot] >= 0 or self.stopped_at[tile, slot] >= 0:
                    continue
                run = self.slots[tile * WIDTH + slot]
                rates = run.lr * settings.schedule
                loss, grad_sq, _, delta, _ = self.steps[:, tile, slot, :kept]
                history = History(loss, grad_sq, delta, rates, settings.distance, settings.every, since)
                stop = first_stop(rules, history)
                if stop is not None:
                    self.stopped_at[tile, slot], ended[row, slot] = stop.step, True
                    self.violations[tile, slot] -= self.below[max(stop.step + 1 - first, 0) :, row, slot].sum()
        if ended.any():
            self._reset(ended)

    def _are_over(self) -> NDArray[np.bool_]:
        """Which of the runs that are advanced have diverged, or were ended by a rule."""
        over: NDArray[np.bool_] = (self.diverged_at[self.alive] >= 0) | (self.stopped_at[self.alive] >= 0)
        return over

    def _reset(self, diverged: NDArray[np.bool_]) -> None:
        """Put diverged runs back to the start; take out tiles without a living run."""
        lr = self.lr[self.alive]
        lr[diverged] = self.lr.min()
        self.lr[self.alive] = lr
        self.points[diverged] = self.start
        self.total[diverged] = 0.0
        left = ~self._are_over().all(axis=1)
        if not left.all():
            self.alive = np.arange(len(self.lr))[self.alive][left]
            self.points, self.total, self.below = self.points[left], self.total[left], self.below[:, left]
            self._make_room()

    def _measure(self, reached: dict[int, Floats]) -> None:
        """Note the full losses at the points that were reached after some epochs."""
        if not reached:
            return
        points, shape = np.concatenate(list(reached.values())), (len(reached), -1, WIDTH)
        epochs = slice(min(reached), max(reached) + 1)
        self.train[self.alive, :, epochs] = self.problem.full_loss(points).reshape(shape).transpose(1, 2, 0)
        if self.problem.n_valid:
            self.valid[self.alive, :, epochs] = self.problem.validation_loss(points).reshape(shape).transpose(1, 2, 0)

    def traces(self) -> list[Trace]:
        """What is kept of each run."""
        settings, count = self.settings, len(self.slots)
        rate = self.first_rates[:, None] * settings.schedule[:: settings.every]
        steps = self.steps.reshape(len(TRACED), count, -1)
        np.sqrt(steps[-1], out=steps[-1])  # distances
        train, valid = self.train.reshape(count, -1), self.valid.reshape(count, -1)
        last, average, diverged, stopped = (
            values.reshape(-1) for values in (self.last, self.average, self.diverged_at, self.stopped_at)
        )
        ends = np.where((diverged < 0) & (stopped >= 0), stopped + 1, diverged)
        for slot in np.flatnonzero(ends >= 0).tolist():
            step = int(ends[slot])
            # A run that a rule ends at the last step of an epoch is not measured any more.
            epoch = (step if diverged[slot] >= 0 else step - 1) // settings.steps_per_epoch
            steps[:, slot, -(-step // settings.every) :] = np.inf
            train[slot, epoch + 1 :] = valid[slot, epoch + 1 :] = np.inf
            average[slot] = np.inf
            if step < settings.steps - 1:
                last[slot] = np.inf
        for array in (last, average, train, valid, steps):
            if not np.isfinite(array.sum()):
                np.copyto(array, np.inf, where=~np.isfinite(array))
        best = np.minimum(train[:, : settings.epochs].min(axis=1), last)
        columns = (diverged, stopped, self.violations.reshape(-1), last, average, best)
        all_numbers = zip(*(values.tolist() for values in columns), strict=True)
        all_arrays = zip(*steps, rate, train, valid, strict=True)
        result = []
        for run, is_filler, numbers, arrays in zip(self.slots, self.is_filler, all_numbers, all_arrays, strict=True):
            if is_filler:
                continue
            diverged_at, stopped_at, violations, *final = numbers
            loss, grad_sq, size, delta, distance, rates, *losses = arrays
            result.append(
                Trace(
                    run.key,
                    "diverged" if diverged_at >= 0 else "stopped" if stopped_at >= 0 else "finished",
                    diverged_at,
                    dict(zip(STEP_FIELDS, (loss, grad_sq, rates, size, delta, distance), strict=True)),
                    dict(zip(EPOCH_FIELDS, losses, strict=True)),
                    dict(zip(FINAL_FIELDS, final, strict=True)),
                    violations,
                )
            )
        return result


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


class Levels:
    """The memory of runs with a level, by slot; slots without a level are left alone.

    Every number belongs to one slot: no run's bits depend on its neighbours.
    """

    def __init__(self, methods: Sequence[Method]) -> None:
        groups: dict[tuple[int, level.Rule], list[int]] = {}
        models: dict[int, Model] = {}
        for slot, method in enumerate(methods):
            if method.level is not None and method.model is not None:
                models[id(method.model)] = method.model
                groups.setdefault((id(method.model), method.level), []).append(slot)
        self._groups: list[tuple[Model, level.Rule, Any]] = [
            (models[key], rule, np.array(slots)) for (key, rule), slots in groups.items()
        ]
        self.slots = np.array([slot for slots in groups.values() for slot in slots], int)
        self._seen = level.Seen(*(np.full(len(methods), value) for value in level.Seen()))

    def step(self, places: Any, loss: Floats, grad_sq: Floats, rates: Floats, size: Floats, delta: Floats) -> None:
        """Write size and index of a step for the slots ``places``; the other arrays stand in their order.

        A loss or gradient that is not finite is not remembered, and gives no step.
        """
        where = np.full(len(self._seen.count), -1)
        where[places] = np.arange(len(places))
        for model, rule, slots in self._groups:
            slots = slots[where[slots] >= 0]
            here = where[slots]
            before = level.Seen(*(values[slots] for values in self._seen))
            value, decrease = loss[here], rates[here] * grad_sq[here]
            seen, (scale, delta[here]) = level.step(model, rule, before, value, decrease)
            size[here] = scale * rates[here]
            for kept, new in zip(self._seen, seen, strict=True):
                kept[slots] = new


class StepSizes:
    """Sizes and indices of the steps of many runs with different models; no run's bits depend on its neighbours.

    At every step only sizes that depend on it are written; those of the linear model are its rates. Most indices can
    wait, and are found for many steps in one go.

    This is :meth:`Model.step` for several models at once, with its guards written for arrays that are used again and
    again: nothing is allocated but what a model itself needs. Only elements that are special (a loss at its bound, an
    overflow) take the way through ``Model.step`` itself.

    Args:
        models: The model of each slot, or None: these are left alone.
        told: Losses, squared gradients, sizes and indices of all slots, of shape (at least 4, slots): the first two
            are read at every step, the others written.
    """

    def __init__(self, models: Sequence[Model | None], told: Floats) -> None:
        self._fixed = _as_slice(np.array([i for i, model in enumerate(models) if type(model) is Linear], np.intp))
        groups: dict[int, list[int]] = {}
        distinct: dict[int, Model] = {}
        for place, model in enumerate(models):
            if model is not None and type(model) is not Linear:
                groups.setdefault(id(model), []).append(place)
                distinct[id(model)] = model
        self._order = np.array([place for group in groups.values() for place in group], np.intp)
        self._places = _as_slice(self._order)
        self._told = told[:4]
        self._gathers = not isinstance(self._places, slice)
        # Neighbours are read and written where they are; others are gathered, and put back.
        self._numbers = np.zeros((4, len(self._order))) if self._gathers else self._told[:, self._places]
        self._loss, self._grad_sq, self._size, self._delta = self._numbers
        self._rate, self._half, self._zeros, self._bounds = (np.zeros(len(self._order)) for _ in range(4))
        self._checked = np.zeros((2, len(self._order)))
        self._decrease, self._z = self._checked
        ends = np.cumsum([len(group) for group in groups.values()]).tolist()
        parts = [slice(end - len(group), end) for group, end in zip(groups.values(), ends, strict=True)]
        for model, part in zip(distinct.values(), parts, strict=True):
            self._bounds[part] = model.lower_bound
        has_own = [type(model).height is not Model.height for model in distinct.values()]
        self._is_bounded = any(has_own) or bool(self._bounds.any())
        self._height = np.zeros(len(self._order)) if self._is_bounded else self._loss  # f − 0 is f
        self._parts: list[tuple[Any, slice, Point, Floats, Floats | None]] = []
        self._left_out: list[tuple[Model, Any]] = [(Linear(), self._fixed)]
        """Models that know their size without their index, which waits, each with its slots."""
        for model, part in zip(distinct.values(), parts, strict=True):
            point = Point(
                self._height[part], self._grad_sq[part], self._rate[part], self._half[part], self._z[part], True
            )
            waits = _knows_size(model)
            if waits:
                self._left_out.append((model, _as_slice(self._order[part])))
            self._parts.append((model, part, point, self._size[part], None if waits else self._delta[part]))
        self._own_heights = [part for part, is_own in zip(self._parts, has_own, strict=True) if is_own]
        self._has_deltas = any(delta is not None for *_, delta in self._parts)

    def set_rates(self, rates: Floats) -> None:
        """Take the rates of the steps to come; those of the linear model are its sizes."""
        self._told[2][self._fixed] = rates[self._fixed]
        self._rate[...] = rates[self._order]

    def write(self) -> None:
        """Write the sizes of a step, and those of its indices that do not wait; floating-point warnings are off."""
        if not len(self._order):
            return
        if self._gathers:
            self._told[:2].take(self._places, axis=1, out=self._numbers[:2], mode="clip")
        if self._is_bounded:
            np.subtract(self._loss, self._bounds, out=self._height)
            for model, part, point, _, _ in self._own_heights:
                point.height[...] = model.height(self._loss[part], model.lower_bound)
        np.multiply(self._rate, self._grad_sq, self._decrease)
        np.divide(self._decrease, self._height, self._z)
        if self._has_deltas:
            np.multiply(self._decrease, 0.5, out=self._half)
        for model, _, point, sizes, deltas in self._parts:
            if deltas is None:
                sizes[...] = model.size(NUMPY, point)
            else:
                sizes[...], deltas[...] = model.solve(NUMPY, point)
        if not (np.minimum.reduce(self._checked, axis=None) > _TINY and np.dot(self._z, self._zeros) == 0.0):
            self._write_special()  # 0·∞ is NaN
        if self._gathers:
            self._told[2, self._places] = self._size
            if self._has_deltas:
                self._told[3, self._places] = self._delta

    def _write_special(self) -> None:
        special = ~_are_regular(self._decrease, self._z)
        for model, part, _, sizes, deltas in self._parts:
            here = special[part]
            if here.any():
                sizes[here], special_deltas = model.step(
                    self._loss[part][here], self._grad_sq[part][here], self._rate[part][here]
                )
                if deltas is not None:
                    deltas[here] = special_deltas

    def write_deltas(self, loss: Floats, grad_sq: Floats, rates: Floats, delta: Floats) -> None:
        """Write the indices that have waited, from losses, squared gradients and rates of several steps."""
        arrays = (loss, grad_sq, rates, delta)
        loss, grad_sq, rates, delta = (values.reshape(len(values), -1) for values in arrays)
        size = max(_TOGETHER // max(loss.shape[1], 1), 1)
        for begin in range(0, len(loss), size):
            for model, places in self._left_out:
                here = (slice(begin, begin + size), places)
                delta[here] = _deltas(model, loss[here], grad_sq[here], rates[here])


def _as_slice(places: NDArray[np.intp]) -> Any:
    """Places in an array, as a slice if they are neighbours: that is faster."""
    if len(places) and places[-1] - places[0] == len(places) - 1 and (places[1:] > places[:-1]).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _knows_size(model: Model) -> bool:
    """Whether the class that finds the steps of a model can find their sizes alone."""
    return "size" in vars(next(cls for cls in type(model).__mro__ if "solve" in vars(cls)))


def _deltas(model: Model, loss: Floats, grad_sq: Floats, rate: Floats) -> Floats:
    if type(model) is Linear:  # what is not finite shows in the loss or the gradient
        half: Floats = model.solve(NUMPY, Point(1.0, 0.0, 0.0, (0.5 * rate) * grad_sq, 1.0, True))[1]
        return half  # the sizes are known: they are not found again
    height, decrease = model.height(loss, model.lower_bound), rate * grad_sq
    z = decrease / height
    deltas: Floats = model.solve(NUMPY, Point(height, grad_sq, rate, 0.5 * decrease, z, True))[1]
    if not (decrease.size and decrease.min() > _TINY and z.min() > _TINY and z.max() <= _MAX):
        special = ~_are_regular(decrease, z)
        deltas[special] = model.step(loss[special], grad_sq[special], rate[special]).delta
    return deltas


def _are_regular(decrease: Floats, z: Floats) -> NDArray[np.bool_]:
    regular: NDArray[np.bool_] = (np.minimum(z, decrease) > _TINY) & (z <= _MAX)
    return regular


class ProblemRun(Run):
    """A run of a method on a problem of :mod:`surefoot.problems`, and the factory of such runs.

    Without ``lr`` it is a factory: call it with a rate and a seed. Runs that are advanced together share the products
    of matrices, as in a study, and a run's numbers are those of the study's run with the same settings.

    Args:
        problem: What is minimised.
        method: A method's name (``"sgd"``, ``"sps(lower_bound=-2)"``, …) or a model.
        batch_size: Rows of a step.
        sampling: ``"shuffle"`` or ``"iid"``, which is what the theorems need.
        schedule: Factors of the rate, one a step; constant by default.
        lr: The rate; None makes a factory.
        seed: Of the data order.

    >>> from surefoot.problems import LinearRegression
    >>> run = ProblemRun(LinearRegression(), "sgd", batch_size=5)(lr=0.01, seed=0)
    >>> losses, deltas = run.advance(20)
    >>> len(losses), run.step, bool(losses[-1] < losses[0])
    (20, 20, True)
    """

    numbers: dict[str, Floats]
    """One number a step, as in a study."""
    epochs: dict[str, list[float]]
    """Full losses at the start and after every epoch."""

    def __init__(
        self,
        problem: ArrayProblem,
        method: str | Model | Method,
        *,
        batch_size: int,
        sampling: str = "shuffle",
        schedule: ArrayLike | None = None,
        lr: float | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(problem, ArrayProblem):
            raise TypeError(f"problem must be a surefoot.problems.ArrayProblem, got {problem!r}")
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size <= problem.n_rows:
            raise ValueError(f"batch_size must be a whole number from 1 to {problem.n_rows}, got {batch_size!r}")
        if sampling not in ("shuffle", "iid"):
            raise ValueError(f"sampling must be 'shuffle' or 'iid', got {sampling!r}")
        self.problem, self.method = problem, parse_method(method)
        if self.method.level is not None:
            raise ValueError(
                f"method must have a number for its lower_bound, got {self.method.name!r}: indices with a level "
                "certify nothing, so that a search by them proves nothing; compare its rates in a Study"
            )
        if self.method.model is None and not problem.has_prox:
            raise ValueError(f"method must not be 'spp' on {problem.name!r}, a problem without prox")
        self.batch_size, self.sampling = batch_size, sampling
        self.schedule: Floats | None = None if schedule is None else np.asarray(schedule, float)
        self.lr, self.seed = lr, seed
        self._orders: dict[int, _Order] = {}
        self._study: Settings | None = None
        if lr is not None:
            self._begin()

    def __call__(self, lr: float, seed: int = 0) -> ProblemRun:
        """A new run with this rate and data order."""
        run = type(self)(
            self.problem,
            self.method,
            batch_size=self.batch_size,
            sampling=self.sampling,
            schedule=self.schedule,
            lr=lr,
            seed=seed,
        )
        run._orders, run._study = self._orders, self._study
        return run

    @classmethod
    def of_study(cls, problem: ArrayProblem, method: Method, settings: Settings) -> ProblemRun:
        """The factory of a study's runs, which tell what the study keeps of them."""
        batch_size, sampling, schedule = settings.batch_size, settings.sampling, settings.schedule
        factory = cls(problem, method, batch_size=batch_size, sampling=sampling, schedule=schedule)
        factory._study = settings
        return factory

    @property
    def envelope(self) -> Callable[[ArrayLike], Any] | None:
        """Moreau envelopes of the full loss at the start, as a function of their parameter; None if not known."""
        return None if type(self.problem).envelope is Problem.envelope else self.problem.envelope

    def identity(self) -> Identity:
        """What the numbers of the runs depend on, and what that rests on."""
        parts = [self.problem.fingerprint(), self.method.identity, self.batch_size, self.sampling]
        settings = [np.__version__, [] if self.schedule is None else self.schedule.tolist()]
        return merged([self.problem.identity(), self.method.code, identify(parts, settings)])

    def fingerprint(self) -> str:
        """A hash of all that the numbers of the runs depend on."""
        return digest(self.identity().digest, NUMERICS_VERSION)

    def advance(self, k: int) -> Progress:
        """Take k steps."""
        return self.advance_together([self], k)[0]

    def advance_together(self, runs: Sequence[ProblemRun], k: int) -> list[Progress]:
        """Take k steps with each of some runs, those at the same step of the same data order in one go."""
        groups: dict[tuple[int, int], list[ProblemRun]] = {}
        for run in runs:
            groups.setdefault((run.seed, run.step), []).append(run)
        with np.errstate(all="ignore"), one_blas_thread():
            for group in groups.values():
                for begin in range(0, len(group), WIDTH):
                    self._advance_tile(group[begin : begin + WIDTH], k)
        return [run._progress(k) for run in runs]

    def _progress(self, k: int) -> Progress:
        """The last k steps; a run ends where loss or gradient is not finite, as in a study."""
        recent = {name: self.numbers[name][-k:] for name in ("loss", "grad_sq", "delta")}
        bad = ~np.isfinite(recent["loss"] + recent["grad_sq"])
        return Progress(np.where(bad, np.inf, recent["loss"]), recent["delta"])

    @np.errstate(over="ignore", invalid="ignore")
    def distance(self) -> float:
        """‖x_t − x_1‖."""
        return float(np.linalg.norm(self.point - self.problem.initial_point()))

    def evaluate(self) -> float:
        """The full loss at the point before the last step, which is what the last-iterate bound speaks of."""
        return self.full_loss(self.before)

    def trace(self) -> Trace | None:
        """What a study keeps of a run that has come to its end, equal to the last bit; None of any other."""
        settings = self._study
        if settings is None:
            return None
        bad = ~np.isfinite(self.numbers["loss"] + self.numbers["grad_sq"])
        ended = int(bad.argmax()) if bad.any() else -1
        if ended < 0 and self.step < settings.steps:
            return None
        bound, counted = self.method.lower_bound, settings.steps if ended < 0 else ended
        if ended < 0 and not np.isfinite(self.point).all():
            ended = settings.steps - 1
        assert self.lr is not None
        return close(
            RunPlan(self.method, float(self.lr), self.seed),
            settings,
            self.numbers,
            {"train_loss": self.epochs["train"], "valid_loss": self.epochs["valid"]},
            {
                "last_loss": self.evaluate(),
                "average_loss": self.full_loss(self.total / settings.schedule.sum()) if ended < 0 else np.inf,
            },
            ended,
            -1,
            0 if bound is None else int((self.numbers["loss"][:counted] < bound).sum()),
            self.problem.n_valid > 0,
        )

    def full_loss(self, point: Floats) -> float:
        """The loss over all training rows."""
        with np.errstate(all="ignore"), one_blas_thread():
            return float(self.problem.full_loss(tile_of([point]))[0, 0])

    def state_dict(self) -> dict[str, Any]:
        """Point, sum of points, and what was recorded."""
        return {
            "step": self.step,
            "point": self.point,
            "before": self.before,
            "total": self.total,
            "trace": dict(self.numbers),
            "epochs": dict(self.epochs),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.step = int(state["step"])
        self.point, self.before, self.total = (np.array(state[name]) for name in ("point", "before", "total"))
        self.numbers = {name: np.array(values) for name, values in state["trace"].items()}
        self.epochs = {name: list(values) for name, values in state["epochs"].items()}

    def _begin(self) -> None:
        self.step = 0
        self.point = self.problem.initial_point()
        self.before = self.point.copy()
        self.total = np.zeros_like(self.point)
        """Σ η_t x_t."""
        self.numbers = {name: np.empty(0) for name in TRACED}
        self.epochs = {"train": [], "valid": []}
        self._measure([self], tile_of([self.point]))

    def _advance_tile(self, runs: Sequence[ProblemRun], k: int) -> None:
        """Advance at most WIDTH runs of one seed; the tile is filled up with copies of the last."""
        problem, model, first = self.problem, self.method.model, runs[0]
        points, totals = (tile_of([getattr(run, name) for run in runs]) for name in ("point", "total"))
        tiles = Tiles(problem, points, totals, exact=model is None)
        kept = np.empty((len(TRACED), k, WIDTH))
        lr = np.array([run.lr for run in (*runs, *[runs[-1]] * (WIDTH - len(runs)))], float)
        factors = np.ones(k) if self.schedule is None else self.schedule[first.step : first.step + k]
        rates = lr * factors[:, None]
        sizes = None if model is None else StepSizes([model] * WIDTH, tiles.told[:, 0])
        per_epoch = problem.n_rows // self.batch_size
        is_plain = self.schedule is None or bool((self.schedule == 1.0).all())
        rows = self._order(first.seed).rows(first.step, k)
        for index, batch in enumerate(tiles.batches(rows[:, None])):
            if sizes is not None:
                sizes.set_rates(rates[index])
            if index == k - 1:
                before = points.copy()
            weight = None if is_plain else float(factors[index])
            tiles.step(batch, rates[index][None], weight, None if sizes is None else sizes.write)
            kept[:, index] = tiles.told[:, 0]
            if (first.step + index + 1) % per_epoch == 0:
                self._measure(runs, points)
        if sizes is not None:
            loss, grad_sq, _, delta, _ = kept
            sizes.write_deltas(loss, grad_sq, rates, delta)
        np.sqrt(kept[-1], out=kept[-1])
        for slot, run in enumerate(runs):
            run.point, run.before, run.total = (tile[0, slot].copy() for tile in (points, before, totals))
            numbers = zip(TRACED, kept, strict=True)
            run.numbers = {name: np.concatenate([run.numbers[name], values[:, slot]]) for name, values in numbers}
            run.step += k

    def _order(self, seed: int) -> _Order:
        if seed not in self._orders:
            orders = row_orders(seed, self.problem.n_rows, self.batch_size, self.sampling)
            self._orders[seed] = _Order(orders)
        return self._orders[seed]

    def _measure(self, runs: Sequence[ProblemRun], tile: Floats) -> None:
        """Note the full losses of runs at the points of a tile."""
        measures = {"train": self.problem.full_loss}
        if self.problem.n_valid:
            measures["valid"] = self.problem.validation_loss
        with np.errstate(all="ignore"), one_blas_thread():
            for name, measure in measures.items():
                losses = measure(tile)[0].tolist()
                for slot, run in enumerate(runs):
                    run.epochs[name].append(losses[slot])


class _Order:
    """The batches of one data order, remembered as far as they were asked for."""

    def __init__(self, epochs: Iterator[Any]) -> None:
        self._epochs = epochs
        self._known: list[Any] = []
        self._steps = 0

    def rows(self, step: int, k: int) -> Any:
        """Rows (k, batch size) of the steps from ``step``."""
        while self._steps < step + k:
            self._known.append(next(self._epochs))
            self._steps += len(self._known[-1])
        per_epoch = len(self._known[0])
        begin, end = step // per_epoch, -(-(step + k) // per_epoch)
        rows = np.concatenate(self._known[begin:end])
        return rows[step - begin * per_epoch :][:k]
