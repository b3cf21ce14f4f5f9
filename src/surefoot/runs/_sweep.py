"""Sweeps on convex problems: all runs advance together, as computations on arrays of shape (tiles, WIDTH, dimension).

Runs of one seed share their batches, so that a step of many of them is a few products of matrices. All products have
the same number of runs, :data:`WIDTH`: so the numbers of a run do not depend on which runs stand beside it, nor on an
interruption. Problems know nothing of that; tiles that are not full are filled up here.

A :class:`Chunk` takes runs from any step to any other. :class:`SweepWork` takes the runs of a study from the first step
to the last in chunks of tiles; :class:`ProblemRun` is a run of a search, whose chunk is one tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from copy import copy
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._base import checks
from surefoot._base.processes import cores
from surefoot._identity import Identity, digest, identify, merged
from surefoot.problems import ArrayProblem, one_blas_thread
from surefoot.rules import History, first_stop
from surefoot.runs._methods import Method, parse_method
from surefoot.runs._row_orders import row_orders
from surefoot.runs._run import Progress, Run
from surefoot.runs._types import TRACED, Floats, Key, Record, Settings, Trace, closed
from surefoot.runs._work import Stop, Task
from surefoot.theory import level
from surefoot.theory.arrays import NUMPY
from surefoot.theory.models import Linear, Model, Point, are_regular, exact_delta

NUMERICS_VERSION = 4
"""Changes whenever the numbers of a run do, so that stored runs of other versions are computed anew."""

IDENTITY_RULE = 2
"""How runs are remembered; those of another rule are not used."""

WIDTH = 16
"""Runs of one tile. It is fixed, and every product of matrices has this width: so the numbers of a run do not depend
on which runs stand beside it."""
_POINTS = 1 << 16
"""Numbers of one array of points that a chunk should stay below, so that a step works in the processor's cache."""
_TRACE = 1 << 20
"""Numbers of one field of the traces of a chunk."""
_CHUNK_SECONDS = 5.0
_STEP_SECONDS = 1e-4
"""Estimated seconds of one step of a chunk, whatever its size; it only decides how work is divided."""
_PARALLEL_SECONDS = 4.0
"""Sweeps that are estimated to take longer are given to several processes, which need a second to start."""
_BLOCK = 64
"""Steps between two looks at which runs have diverged; their numbers stay in the cache until they are kept."""
_CACHE = 1 << 15
"""Numbers of one array that are updated in one go, so that what belongs to them stays in the processor's cache."""
_TOGETHER = 1 << 14
"""Indices that are computed in one go; they stay in the cache."""
_TINY = float(np.finfo(np.float64).tiny)

Tile = Sequence[Key]
"""At most WIDTH runs of one seed."""


class SweepWork:
    """The runs of a study on a convex problem, in chunks that are taken from the first step to the last in one go.

    Args:
        problem: What is minimised.
        methods: The methods, by name.
        settings: What the runs share.
    """

    takes_all = True

    def __init__(self, problem: ArrayProblem, methods: Mapping[str, Method], settings: Settings) -> None:
        self.horizon = settings.steps
        self.problem, self.methods, self.settings = problem, methods, settings

    def fingerprint(self) -> str:
        """What the numbers depend on, as text."""
        return self.problem.fingerprint()

    def copy(self, _: int) -> SweepWork:
        """Itself: every process can have it."""
        return self

    def leave(self) -> None:
        """Nothing is at hand that could be saved."""

    def tasks(self, records: Sequence[Record], step: int) -> list[Task]:
        """The runs in chunks: small enough for the memory and to be lost when interrupted, large enough to be fast."""
        chunks: list[list[Tile]] = []
        for exact in (False, True):
            tiles = tiles_of([record.key for record in records if self._is_exact(record.key) == exact])
            if not tiles:
                continue
            problem, settings = self.problem, self.settings
            size = max(problem.dimension, problem.dimension // problem.features * settings.batch_size)
            fits = min(_POINTS // (size * WIDTH), _TRACE // (settings.steps // settings.every * WIDTH + 1))
            quick = (_CHUNK_SECONDS / settings.steps - _STEP_SECONDS) / self._tile_seconds(exact)
            most = max(1, min(fits, max(int(quick), 1)))
            most = math.ceil(len(tiles) / math.ceil(len(tiles) / most))  # of equal size, as far as possible
            chunks += [tiles[begin : begin + most] for begin in range(0, len(tiles), most)]
        return [([key for tile in chunk for key in tile], 0, step) for chunk in chunks]

    def workers(self, tasks: Sequence[Task]) -> int:
        """One process per core for sweeps that take more than a few seconds, else one in all."""
        seconds = 0.0
        for keys, _, _ in tasks:
            per_step = _STEP_SECONDS + len(tiles_of(keys)) * self._tile_seconds(self._is_exact(keys[0]))
            seconds += self.settings.steps * per_step
        return cores() if seconds > _PARALLEL_SECONDS else 1

    def do(self, task: Task, stop: Stop | None = None) -> list[Record]:
        """Take a chunk to its end."""
        with one_blas_thread(), np.errstate(all="ignore"):  # overflow is how a run diverges: a result, not a warning
            chunk = Chunk(self.problem, tiles_of(task[0]), self.methods, self.settings)
            chunk.advance(self.horizon, stop)
            return [Record(trace.key, self.horizon, trace=trace) for trace in chunk.traces()]

    def _is_exact(self, key: Key) -> bool:
        return self.methods[key.method].model is None

    def _tile_seconds(self, exact: bool) -> float:
        """A rough estimate of what a tile adds to the time of a step."""
        problem, batch_size = self.problem, self.settings.batch_size
        predictions = problem.dimension // problem.features * batch_size
        per_run = problem.dimension * (3e-9 + 1.6e-10 * batch_size) + 2e-8 * predictions
        return 5e-6 + WIDTH * per_run + (problem.prox_seconds if exact else 0.0)


def tiles_of(keys: Sequence[Key]) -> list[Tile]:
    """Put runs into tiles: those of one seed stand together, in the order given."""
    by_seed: dict[int, list[Key]] = {}
    for key in keys:
        by_seed.setdefault(key.seed, []).append(key)
    return [group[i : i + WIDTH] for group in by_seed.values() for i in range(0, len(group), WIDTH)]


class Chunk:
    """Runs that are advanced together, stacked in slots: a tile has one seed and WIDTH slots.

    ``alive`` are the tiles that are still advanced; ``points``, ``total`` and what belongs to them hold these only. A
    diverged run is put back to the start, where it does no harm, until its tile is taken out; its traces end where it
    diverged. So is one that a rule has ended. What such a slot does afterwards counts nowhere.

    Args:
        problem: What is minimised.
        tiles: Runs of one seed each, which are all exact (SPP) or all have a model. A tile that is not full is filled
            up with copies of its first run.
        methods: The methods, by name.
        settings: What the runs share.
    """

    def __init__(
        self,
        problem: ArrayProblem,
        tiles: Sequence[Tile],
        methods: Mapping[str, Method],
        settings: Settings,
    ) -> None:
        # Tiles with the same methods stand together, so that steps of a model are computed without gathering.
        if len(tiles) > 1:
            tiles = sorted(tiles, key=lambda t: (not isinstance(methods[t[0].method].model, Linear), t[0].method))
        self.problem, self.settings, self.step = problem, settings, 0
        self.keys = [key for tile in tiles for key in (*tile, *[tile[0]] * (WIDTH - len(tile)))]
        self.methods = [methods[key.method] for key in self.keys]
        self.is_filler = [slot >= len(tile) for tile in tiles for slot in range(WIDTH)]
        self.is_exact = self.methods[0].model is None
        order = settings.batch_size, settings.sampling
        seeds = {tile[0].seed for tile in tiles}
        self.batches = {s: chain.from_iterable(row_orders(s, problem.n_rows, *order)) for s in seeds}
        """The rows of the steps to come, of each seed."""
        shape = (len(tiles), WIDTH)
        self.lr = np.array([key.lr for key in self.keys]).reshape(shape)

        self.start = problem.initial_point()
        self.alive: Any = slice(None)
        self.points = np.empty((*shape, problem.dimension))
        self.points[...] = self.start
        self.total = np.zeros_like(self.points)
        """Σ η_t x_t."""
        self.memory = level.Seen(*(np.full(len(self.methods), float(value)) for value in level.Seen()))
        """What methods with a level remember, one number per slot: no run's bits depend on its neighbours."""
        self._allocate()
        self.diverged_at, self.stopped_at = np.full(shape, -1), np.full(shape, -1)
        self.violations = np.zeros(shape, int)
        self._below = np.zeros((0, *shape), bool)
        """At which steps of the last block a loss was below its bound."""
        # Of a run that ends early the rest is filled with ∞ when all is done.
        self.steps = np.empty((len(TRACED), *shape, settings.kept))
        self.train = np.full((*shape, settings.epochs + 1), np.inf)
        self.valid = np.full((*shape, settings.epochs + 1 if problem.n_valid else 0), np.inf)
        self.last, self.average = np.full(shape, np.inf), np.full(shape, np.inf)
        self._is_plain = bool((settings.schedule == 1.0).all())

    def _allocate(self) -> None:
        """Make what depends on which tiles are alive."""
        tiles = np.arange(len(self.lr))[self.alive]
        self.places = (tiles[:, None] * WIDTH + np.arange(WIDTH)).reshape(-1)
        methods = [self.methods[place] for place in self.places.tolist()]
        self.seeds = [self.keys[tile * WIDTH].seed for tile in tiles.tolist()]
        self._block = np.empty((_BLOCK, len(TRACED), len(tiles), WIDTH))
        self._numbers = np.empty((len(TRACED), len(tiles), WIDTH))
        """The numbers of the last step, always in the same memory; the distance as its square."""
        models = [method.model if method.level is None else None for method in methods]
        self.sizes = None if self.is_exact else StepSizes(models, self._numbers.reshape(len(TRACED), -1))
        levels: dict[tuple[int, level.Rule], list[int]] = {}
        for place, method in enumerate(methods):
            if method.level is not None:
                levels.setdefault((id(method.model), method.level), []).append(place)
        self._levels = [(methods[here[0]].model, rule, np.array(here)) for (_, rule), here in levels.items()]
        """The slots, among those that are advanced, whose model has a level in place of a lower bound."""
        bounds = [-np.inf if m.model is None or m.level is not None else m.model.lower_bound for m in methods]
        self.bounds = np.array(bounds).reshape(len(tiles), WIDTH)
        size = max(_CACHE // (self.points[0].size or 1), 1) if len(tiles) else 1
        # As long as a part: broadcasting inside of one would be slow.
        start = np.ascontiguousarray(np.broadcast_to(self.start, self.points[:size].shape))
        work = np.empty_like(start)
        self._parts = []
        """Views of some tiles each: points, totals, sizes, squared distances, the start, and room to work in."""
        _, _, scale, _, distance_sq = self._numbers
        for begin in range(0, len(tiles), size):
            part = slice(begin, begin + size)
            here, room = self.points[part], work[: len(self.points[part])]
            views = here, self.total[part], scale[part, :, None], distance_sq[part], start[: len(here)], room
            self._parts.append((part, *views))

    def advance(self, end: int, stop: Stop | None = None) -> None:
        """Take all steps before ``end``."""
        if self.step == 0:
            self._measure({0: self.points[:1]})  # all start alike
        while self.step < end and self.seeds:
            if stop is not None and stop():
                raise CancelledError
            length = min(_BLOCK, end - self.step)
            rows = {seed: np.stack(list(islice(self.batches[seed], length))) for seed in set(self.seeds)}
            self._advance_block(np.stack([rows[seed] for seed in self.seeds], axis=1), end)
        if self.step == self.settings.steps and self.seeds:
            self.average[self.alive] = self.problem.full_loss(self.total / self.settings.schedule.sum())

    def _advance_block(self, rows: NDArray[np.intp], end: int) -> None:
        """Take a step for each entry of ``rows``."""
        first, length, settings = self.step, len(rows), self.settings
        records = self._block[:length]
        schedule = settings.schedule[first : first + length]
        reached: dict[int, Floats] = {}
        rates = self.lr[self.alive] * schedule[:, None, None]
        if self.sizes is not None:
            self.sizes.set_rates(rates[0].reshape(-1))
        # Tiles of one seed share their rows if they can.
        steps = zip(rows[:, : _period(rows)], records, rates, schedule.tolist(), strict=True)
        for batch, record, now, factor in steps:
            if self.sizes is not None and not self._is_plain:
                self.sizes.set_rates(now.reshape(-1))
            if self.step == end - 1:
                self.last[self.alive] = np.where(self._are_over(), np.inf, self.problem.full_loss(self.points))
            self._take_step(batch, now, factor)
            record[...] = self._numbers
            self.step += 1
            if self.step % settings.steps_per_epoch == 0:
                reached[self.step // settings.steps_per_epoch] = self.points.copy()
        self._measure(reached)
        block = records.swapaxes(0, 1)
        if self.sizes is not None:
            self.sizes.write_waiting(block, rates)
        before = self._are_over()
        over = self._keep(first, block)
        if settings.rules:
            over |= self._ask_rules(first, before)
        if (new := over & ~before).any():
            self._reset(new)

    def _take_step(self, rows: Any, rates: Floats, factor: float) -> None:
        """Take a step with all runs, at rates α_t and with the weight η_t in the total, and write what it tells."""
        problem, points = self.problem, self.points
        loss, grad_sq, size, delta, _ = self._numbers
        shape = (len(points) // len(rows), len(rows), *points.shape[1:])
        losses, gradients = problem.loss_and_gradient(points.reshape(shape), rows)
        loss[...], gradients = losses.reshape(loss.shape), gradients.reshape(points.shape)
        np.vecdot(gradients, gradients, grad_sq)
        if self.sizes is not None:
            self.sizes.write()
            for model, rule, here in self._levels:
                self._take_levels(model, rule, here, rates)
        wants_distance = self.step % self.settings.every == 0
        for part, here, total, scale, distance_sq, start, work in self._parts:
            if wants_distance:
                np.subtract(here, start, work)
                np.vecdot(work, work, distance_sq)
            np.add(total, here if self._is_plain else np.multiply(here, factor, work), total)
            if self.sizes is not None:
                np.subtract(here, np.multiply(gradients[part], scale, work), here)
        if self.sizes is None:
            proximal = problem.prox(points.reshape(shape), rows, rates.reshape(shape[:-1]))
            new = proximal.points.reshape(points.shape)
            np.subtract(new, points, gradients)
            moved = np.vecdot(gradients, gradients)
            # The size of a step along g that is as long.
            size[...] = np.where(grad_sq > 0, np.sqrt(moved / grad_sq), rates)
            delta[...] = exact_delta(loss, proximal.losses.reshape(moved.shape), moved, rates)
            points[...] = new

    def _take_levels(self, model: Any, rule: level.Rule, here: NDArray[np.intp], rates: Floats) -> None:
        """Write sizes and indices of methods with a level.

        A loss or gradient that is not finite is not remembered, and gives no step.
        """
        loss, grad_sq, size, delta, _ = self._numbers.reshape(len(TRACED), -1)
        slots, now = self.places[here], rates.reshape(-1)[here]
        before = level.Seen(*(values[slots] for values in self.memory))
        seen, (scale, delta[here]) = level.step(model, rule, before, loss[here], now * grad_sq[here])
        size[here] = scale * now
        for kept, new in zip(self.memory, seen, strict=True):
            kept[slots] = new

    def _keep(self, first: int, block: Floats) -> NDArray[np.bool_]:
        """Keep the traces of a block; which of the runs have diverged by now, or were ended."""
        every = self.settings.every
        skip = -first % every
        begin = (first + skip) // every
        kept = block[:, skip::every].transpose(0, 2, 3, 1)
        self.steps[:, self.alive, :, begin : begin + kept.shape[-1]] = kept
        loss, grad_sq = block[:2]
        numbers = loss + grad_sq
        over = self._are_over()
        below = (loss < self.bounds) & ~over
        is_sound = bool(np.isfinite(numbers.sum()))
        bad = np.zeros_like(below) if is_sound else ~np.isfinite(numbers)
        if below.any():
            below &= ~np.logical_or.accumulate(bad)
            self.violations[self.alive] += below.sum(axis=0)
        self._below = below
        is_end = self.step == self.settings.steps
        if is_sound and not (is_end and not np.isfinite(self.points.sum())):
            return over
        if is_end:  # the last step may have led to a point that is not finite; later blocks would have seen it
            bad[-1] |= ~np.isfinite(self.points).all(axis=-1)
        diverged, diverged_at = bad.any(axis=0) & ~over, self.diverged_at[self.alive]
        diverged_at[diverged] = first + bad.argmax(axis=0)[diverged]
        self.diverged_at[self.alive] = diverged_at
        over |= diverged
        return over

    def _ask_rules(self, first: int, over: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which runs a stop rule ends in the last block, before they diverge; those that were over are not asked."""
        settings, ended, tiles = self.settings, np.zeros_like(over), np.arange(len(self.lr))[self.alive]
        for row, slot in np.argwhere(~over).tolist():
            place = int(tiles[row]), slot
            end = self.step if self.diverged_at[place] < 0 else int(self.diverged_at[place])
            kept, since = -(-end // settings.every), -(-first // settings.every)
            loss, grad_sq, _, delta, _ = self.steps[:, *place, :kept]
            rates = self.keys[place[0] * WIDTH + slot].lr * settings.schedule
            history = History(loss, grad_sq, delta, rates, settings.distance, settings.every, since)
            if kept > since and (stop := first_stop(settings.rules, history)) is not None:
                self.stopped_at[place], self.diverged_at[place], ended[row, slot] = stop.step, -1, True
                self.violations[place] -= self._below[max(stop.step + 1 - first, 0) :, row, slot].sum()
        return ended

    def _are_over(self) -> NDArray[np.bool_]:
        """Which of the runs that are advanced have diverged, or were ended by a rule."""
        over: NDArray[np.bool_] = (self.diverged_at[self.alive] >= 0) | (self.stopped_at[self.alive] >= 0)
        return over

    def _reset(self, slots: NDArray[np.bool_]) -> None:
        """Put runs back to the start, at the smallest rate; take out tiles without a living run."""
        lr = self.lr[self.alive]
        lr[slots] = self.lr.min()
        self.lr[self.alive] = lr
        self.points[slots] = self.start
        self.total[slots] = 0.0
        left = ~self._are_over().all(axis=1)
        if not left.all():
            self.alive = np.arange(len(self.lr))[self.alive][left]
            self.points, self.total = self.points[left], self.total[left]
            self._allocate()

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
        slots = len(self.keys)
        steps = self.steps.reshape(len(TRACED), slots, -1).copy()
        np.sqrt(steps[-1], out=steps[-1])  # distances
        average = np.where(np.isfinite(self.average), self.average, np.inf)
        measured = (self.last, average, self.diverged_at, self.stopped_at, self.violations)
        train, valid = (losses.reshape(slots, -1).copy() for losses in (self.train, self.valid))
        columns = [values.reshape(-1).copy() for values in measured]
        traces = closed(self.settings, self.keys, steps, train, valid, *columns)
        return [trace for trace, is_filler in zip(traces, self.is_filler, strict=True) if not is_filler]


def _period(rows: Any) -> int:
    """After how many tiles the rows repeat, at every step; the number of tiles if they do not."""
    tiles: int = rows.shape[1]
    for period in range(1, tiles // 2 + 1):
        if tiles % period == 0 and np.array_equal(rows[:, period:], rows[:, :-period]):
            return period
    return tiles


class StepSizes:
    """Sizes and indices of the steps of many runs with different models; no run's bits depend on its neighbours.

    This is :meth:`Model.step` for several models at once, with its guards written for arrays that are used again and
    again: what is common to all models is computed once, and nothing is allocated but what a model itself needs. Only
    elements that are special (a loss at its bound, an overflow) take the way through ``Model.step`` itself. So do the
    indices of models that know their size alone: they are found for many steps in one go.

    Args:
        models: The model of each slot, or None: these are left alone.
        values: Losses, squared gradients, sizes and indices of all slots, of shape (at least 4, slots): the first two
            are read at every step, the others written.
    """

    def __init__(self, models: Sequence[Model | None], values: Floats) -> None:
        linear = [place for place, model in enumerate(models) if type(model) is Linear]
        groups: dict[int, tuple[Any, list[int]]] = {}
        for place, model in enumerate(models):
            if model is not None and type(model) is not Linear:
                groups.setdefault(id(model), (model, []))[1].append(place)
        order = [place for _, group in groups.values() for place in group]
        self._values, self._linear, self._places = values[:4], _as_slice(linear), _as_slice(order)
        # Neighbours are read and written where they are; others are gathered, and put back.
        self._gathers = not isinstance(self._places, slice)
        self._numbers = np.zeros((4, len(order))) if self._gathers else self._values[:, self._places]
        loss, grad_sq, *_ = self._numbers
        self._rate, self._half, self._zeros = np.zeros((3, len(order)))
        self._is_plain = all(type(m).height is Model.height and m.lower_bound == 0.0 for m, _ in groups.values())
        self._height = loss if self._is_plain else np.zeros(len(order))  # f − 0 is f
        self._checked = np.zeros((2, len(order)))
        self._decrease, self._z = self._checked
        self._parts: list[tuple[Any, bool, slice, Point]] = []
        self._waiting: list[tuple[Model, Any]] = [(Linear(), self._linear)] if linear else []
        end = 0
        for found, group in groups.values():
            part = slice(end, end := end + len(group))
            arrays = self._height, grad_sq, self._rate, self._half, self._z
            height, grad, rate, half, z = (array[part] for array in arrays)
            # Whether the class that finds its steps can find their sizes alone.
            waits = "size" in vars(next(cls for cls in type(found).__mro__ if "solve" in vars(cls)))
            self._waiting += [(found, _as_slice(group))] if waits else []
            self._parts.append((found, waits, part, Point(height, grad, rate, half, z, True)))

    def set_rates(self, rates: Floats) -> None:
        """Take the rates of the steps to come; those of the linear model are its sizes."""
        self._values[2][self._linear] = rates[self._linear]
        self._rate[...] = rates[self._places]

    def write(self) -> None:
        """Write the sizes of a step, and the indices that do not wait; floating-point warnings are off."""
        if not self._parts:
            return
        loss, grad_sq, sizes, deltas = self._numbers
        if self._gathers:
            self._values[:2].take(self._places, axis=1, out=self._numbers[:2], mode="clip")
        for model, _, part, point in self._parts if not self._is_plain else ():
            point.height[...] = model.height(loss[part], model.lower_bound)
        np.multiply(self._rate, grad_sq, self._decrease)
        np.divide(self._decrease, self._height, self._z)
        np.multiply(self._decrease, 0.5, self._half)
        for model, waits, part, point in self._parts:
            if waits:
                sizes[part] = model.size(NUMPY, point)
            else:
                sizes[part], deltas[part] = model.solve(NUMPY, point)
        if not (np.minimum.reduce(self._checked, axis=None) > _TINY and np.dot(self._z, self._zeros) == 0.0):
            special = ~are_regular(self._decrease, self._z, NUMPY.limits(self._z))  # 0·∞ is NaN
            for model, _, part, point in self._parts:
                if (here := special[part]).any():
                    numbers = loss[part][here], point.grad_sq[here], point.lr[here]
                    sizes[part][here], deltas[part][here] = model.step(*numbers)
        if self._gathers:
            self._values[2:, self._places] = self._numbers[2:]

    def write_waiting(self, block: Floats, rates: Floats) -> None:
        """Write the indices that have waited, of several steps."""
        loss, grad_sq, rates, delta = (values.reshape(len(rates), -1) for values in (*block[:2], rates, block[3]))
        size = max(_TOGETHER // loss.shape[1], 1)
        for begin in range(0, len(loss), size):
            for model, places in self._waiting:
                here = (slice(begin, begin + size), places)
                delta[here] = model.step(loss[here], grad_sq[here], rates[here]).delta


def _as_slice(places: list[int]) -> Any:
    """Places in an array, as a slice if they are neighbours: that is faster."""
    begin = places[0] if places else 0
    end = begin + len(places)
    return slice(begin, end) if places == list(range(begin, end)) else np.array(places, np.intp)


class ProblemRun(Run):
    """A run of a method on a problem of :mod:`surefoot.problems`, and the factory of such runs.

    Without ``lr`` it is a factory: call it with a rate and a seed. A run's numbers are those of the study's run with
    the same settings.

    Args:
        problem: What is minimised.
        method: A method's name (``"sgd"``, ``"sps(lower_bound=-2)"``, …) or a model.
        batch_size: Rows of a step.
        sampling: ``"shuffle"`` or ``"iid"``, which is what the theorems need.
        schedule: Factors of the rate, one per step; constant by default.
        lr: The rate; None makes a factory.
        seed: Of the batches' order.

    >>> from surefoot.problems import LinearRegression
    >>> run = ProblemRun(LinearRegression(), "sgd", batch_size=5)(lr=0.01, seed=0)
    >>> losses, deltas = run.advance(20)
    >>> len(losses), run.step, bool(losses[-1] < losses[0])
    (20, 20, True)
    """

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
        self.problem, self.method = problem, parse_method(method)
        if self.method.model is None and not problem.has_prox:
            raise ValueError(f"method must not be 'spp' on {problem.name!r}, a problem without prox")
        self.batch_size, self.sampling = batch_size, checks.sampling(sampling)
        self.schedule: Floats | None = None if schedule is None else np.asarray(schedule, float)
        self.lr, self.seed = lr, seed
        self._study: Settings | None = None
        if lr is not None:
            self._chunk = self._begun(0)

    def __call__(self, lr: float, seed: int = 0) -> ProblemRun:
        """A new run with this rate and order of the batches."""
        run = copy(self)
        run.lr, run.seed = lr, seed
        run._chunk = run._begun(0)
        return run

    @classmethod
    def of_study(cls, problem: ArrayProblem, method: Method, settings: Settings) -> ProblemRun:
        """The factory of a study's runs, which tell what the study keeps of them."""
        factory = cls(problem, method, batch_size=settings.batch_size, sampling=settings.sampling)
        factory.schedule, factory._study = settings.schedule, settings
        return factory

    @property
    def step(self) -> int:
        """How many steps it has taken."""
        return self._chunk.step

    def identity(self) -> Identity:
        """What the numbers of the runs depend on, and what that rests on."""
        parts = [self.problem.fingerprint(), self.method.identity, self.batch_size, self.sampling]
        settings = [np.__version__, [] if self.schedule is None else self.schedule.tolist()]
        return merged([self.problem.identity(), self.method.code, identify(parts, settings)])

    def fingerprint(self) -> str:
        """A hash of all that the numbers of the runs depend on."""
        return digest(self.identity().digest, NUMERICS_VERSION)

    def advance(self, k: int) -> Progress:
        """Take k steps; after divergence all numbers are ∞."""
        since, end = self.step, self.step + k
        if end > self._chunk.settings.steps:
            state, self._chunk = self.state_dict(), self._begun(2 * end)
            self.load_state_dict(state)
        chunk = self._chunk
        with np.errstate(all="ignore"), one_blas_thread():
            chunk.advance(end)
        numbers = np.full((len(TRACED), k), np.inf)
        taken = (self.step if chunk.diverged_at[0, 0] < 0 else int(chunk.diverged_at[0, 0])) - since
        if taken > 0:
            numbers[:, :taken] = chunk.steps[:, 0, 0, since : since + taken]
        return Progress(numbers[0], numbers[3])

    def distance(self) -> float:
        """‖x_t − x_1‖."""
        return float(np.linalg.norm(self._chunk.points[0, 0] - self._chunk.start))

    def evaluate(self) -> float:
        """The full loss at the point before the last step, which is what the last-iterate bound speaks of."""
        return float(self._chunk.last[0, 0])

    def trace(self) -> Trace | None:
        """What a study keeps of a run that has come to its end, equal to the last bit; None of any other."""
        chunk = self._chunk
        is_over = chunk.diverged_at[0, 0] >= 0 or chunk.step == chunk.settings.steps
        return chunk.traces()[0] if self._study is not None and is_over else None

    def state_dict(self) -> dict[str, Any]:
        """Point, sum of points, and what was recorded; of a run that has diverged nothing is left."""
        chunk = self._chunk
        epochs = chunk.step // chunk.settings.steps_per_epoch + 1
        return {
            "step": chunk.step,
            "points": [chunk.points[0, 0].copy(), chunk.total[0, 0].copy()],
            "level": [float(values[0]) for values in chunk.memory],
            "steps": chunk.steps[:, 0, 0, : chunk.step].copy(),
            "epochs": [losses[0, 0, :epochs].copy() for losses in (chunk.train, chunk.valid)],
            "ends": [values[0, 0].item() for values in (chunk.last, chunk.average, chunk.violations)],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        if state["step"] > self._chunk.settings.steps or self.step:
            self._chunk = self._begun(state["step"])
        chunk = self._chunk
        chunk.step = state["step"]
        next(islice(chunk.batches[self.seed], chunk.step, chunk.step), None)
        chunk.steps[..., : chunk.step] = state["steps"][:, None, None]
        for losses, known in zip((chunk.train, chunk.valid), state["epochs"], strict=True):
            losses[..., : len(known)] = known
        arrays: Any = (chunk.points, chunk.total, *chunk.memory, chunk.last, chunk.average, chunk.violations)
        for array, value in zip(arrays, (*state["points"], *state["level"], *state["ends"]), strict=True):
            array[...] = value

    def _begun(self, steps: int) -> Chunk:
        """The run at its start, with room for some steps at least; only in a study it is known how many there are."""
        settings = self._study
        if settings is None:
            per_epoch = self.problem.n_rows // self.batch_size
            epochs = steps // per_epoch + 1
            factors = np.ones(epochs * per_epoch)
            if self.schedule is not None:
                known = self.schedule[: len(factors)]
                factors[: len(known)] = known
            settings = Settings(per_epoch, epochs, self.batch_size, factors, self.sampling, 1)
        key = Key(self.method.name, float(self.lr or 0.0), self.seed)
        return Chunk(self.problem, [[key]], {key.method: self.method}, settings)
