"""One chunk of a sweep: some tiles of runs, advanced together from the first step to the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.problems import ArrayProblem
from surefoot.rules import History, first_stop
from surefoot.runs._levels import Levels
from surefoot.runs._model_steps import StepSizes
from surefoot.runs._row_orders import row_orders
from surefoot.runs._tile import WIDTH, Tiles
from surefoot.runs._types import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, TRACED, Floats, RunPlan, Settings, Trace
from surefoot.runs._work import Stopped
from surefoot.theory.models import Linear

_BLOCK = 64
"""Steps between two looks at which runs have diverged; their numbers stay in the cache until they are kept."""


@dataclass(frozen=True)
class Chunk:
    """Tiles of runs: each tile has one seed and up to WIDTH runs, which are all exact (SPP) or all have a model."""

    tiles: tuple[tuple[RunPlan, ...], ...]

    @property
    def is_exact(self) -> bool:
        """Whether the runs take proximal points."""
        return self.tiles[0][0].method.model is None


def tiles_of(runs: Sequence[RunPlan]) -> list[tuple[RunPlan, ...]]:
    """Put runs into tiles: those of one seed stand together, in the order given."""
    by_seed: dict[int, list[RunPlan]] = {}
    for run in runs:
        by_seed.setdefault(run.seed, []).append(run)
    return [tuple(group[i : i + WIDTH]) for group in by_seed.values() for i in range(0, len(group), WIDTH)]


def advance(
    problem: ArrayProblem, chunk: Chunk, settings: Settings, stop: Callable[[], bool] | None = None
) -> list[Trace]:
    """Run a chunk to its end; raise :class:`Stopped` if ``stop`` says so on the way."""
    with np.errstate(all="ignore"):  # overflow is how a run diverges: a result, not a warning
        state = _State(problem, chunk, settings)
        state.run(stop)
        return state.traces()


class _State:
    """The runs of a chunk, stacked in slots: a tile has WIDTH of them.

    ``alive`` are the tiles that are still advanced; the arrays of the first group below hold these only. A diverged run
    is put back to the start, where it does no harm, until its tile is taken out; its traces end where it diverged. So
    is one that a rule has ended. What such a slot does afterwards counts nowhere.
    """

    def __init__(self, problem: ArrayProblem, chunk: Chunk, settings: Settings) -> None:
        self.problem, self.settings = problem, settings
        # Tiles with the same methods stand together, so that steps of a model are computed without gathering. One that
        # is not full is filled up with copies of its first run.
        tiles = sorted(
            chunk.tiles, key=lambda tile: (not isinstance(tile[0].method.model, Linear), tile[0].method.name)
        )
        self.slots = [run for tile in tiles for run in tile + (tile[0],) * (WIDTH - len(tile))]
        self.is_filler = [slot >= len(tile) for tile in tiles for slot in range(WIDTH)]
        self.is_exact = chunk.is_exact
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
                    raise Stopped
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
        died = bad.any(axis=0) & ~over
        diverged_at[died] = first + bad.argmax(axis=0)[died]
        self.diverged_at[self.alive] = diverged_at
        self._bury(died)

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
            self._bury(ended)

    def _are_over(self) -> NDArray[np.bool_]:
        """Which of the runs that are advanced have diverged, or were ended by a rule."""
        over: NDArray[np.bool_] = (self.diverged_at[self.alive] >= 0) | (self.stopped_at[self.alive] >= 0)
        return over

    def _bury(self, died: NDArray[np.bool_]) -> None:
        """Put runs that died back to the start; take out tiles without a living run."""
        lr = self.lr[self.alive]
        lr[died] = self.lr.min()
        self.lr[self.alive] = lr
        self.points[died] = self.start
        self.total[died] = 0.0
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
