"""One chunk of a sweep: some tiles of runs, advanced together from the first step to the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.problems import WIDTH, TiledProblem
from surefoot.rules import History, first_stop
from surefoot.runs._best_bound import live_rules
from surefoot.runs._levels import Levels
from surefoot.runs._model_steps import Steps, StepSizes
from surefoot.runs._row_orders import row_orders
from surefoot.runs._tile import Tiles
from surefoot.runs._types import Floats, RunPlan, Settings, Trace
from surefoot.runs._workers import Stopped

_BLOCK = 128
"""Steps between two looks at which runs have diverged."""


@dataclass(frozen=True)
class Chunk:
    """Tiles of runs: each tile has one seed and up to WIDTH runs, which are all exact (SPP) or all have a model."""

    tiles: tuple[tuple[RunPlan, ...], ...]

    @property
    def is_exact(self) -> bool:
        """Whether the runs take proximal points."""
        return self.tiles[0][0].method.model is None


def tiles_of(runs: Sequence[RunPlan]) -> list[tuple[RunPlan, ...]]:
    """Runs in tiles: those of one seed stand together, in the order given."""
    by_seed: dict[int, list[RunPlan]] = {}
    for run in runs:
        by_seed.setdefault(run.seed, []).append(run)
    return [tuple(group[i : i + WIDTH]) for group in by_seed.values() for i in range(0, len(group), WIDTH)]


def advance(
    problem: TiledProblem, chunk: Chunk, settings: Settings, stop: Callable[[], bool] | None = None
) -> list[Trace]:
    """Run a chunk to its end; :class:`Stopped` if ``stop`` says so on the way."""
    with np.errstate(all="ignore"):  # overflow is how a run diverges: a result, not a warning
        state = _State(problem, chunk, settings)
        state.run(stop)
        return state.traces()


class _State:
    """The runs of a chunk, stacked in slots: a tile has WIDTH of them.

    ``alive`` are the tiles that are still advanced; the arrays of the first group below hold these only. A diverged run
    is put back to the start, where it does no harm, until its tile is taken out; its traces end where it diverged.
    """

    def __init__(self, problem: TiledProblem, chunk: Chunk, settings: Settings) -> None:
        self.problem, self.chunk, self.settings = problem, chunk, settings
        # A tile that is not full is filled up with copies of its first run.
        self.slots = [run for tile in chunk.tiles for run in tile + (tile[0],) * (WIDTH - len(tile))]
        shape = (len(chunk.tiles), WIDTH)
        self.lr = np.array([run.lr for run in self.slots]).reshape(shape)

        point = problem.initial_point().reshape(problem.blocks, 1, problem.features)
        self.start = np.repeat(point, WIDTH, axis=1)  # as a tile: broadcasting inside of one would be slow
        self.alive: Any = slice(None)
        self.points = np.empty((shape[0], problem.blocks, WIDTH, problem.features))
        self.points[...] = self.start
        self.levels = Levels([run.method for run in self.slots])
        self.total = np.zeros_like(self.points)
        self._make_room()

        self.diverged_at = np.full(shape, -1)
        self.stopped_at = np.full(shape, -1)
        self.violations = np.zeros(shape, int)
        names = (
            "loss",
            "grad_sq",
            "size",
            "distance",
            *(("delta",) if chunk.is_exact or len(self.levels.slots) else ()),
        )
        self.steps = {name: np.full((*shape, settings.kept), np.inf) for name in names}
        self.block = {name: np.empty((min(_BLOCK, settings.steps_per_epoch), *shape)) for name in names}
        self.train = np.full((*shape, settings.epochs + 1), np.inf)
        self.valid = np.full((*shape, settings.epochs + 1 if problem.n_valid else 0), np.inf)
        self.last, self.average = np.full(shape, np.inf), np.full(shape, np.inf)

    def _make_room(self) -> None:
        """What depends on which tiles are alive."""
        tiles = np.arange(len(self.lr))[self.alive]
        self.tiles = Tiles(self.problem, self.points, self.total, self.start)
        self.rates = self.lr[tiles]
        self.factor = np.nan
        models = [self.slots[tile * WIDTH + slot].method.model for tile in tiles for slot in range(WIDTH)]
        self.sizes = None if self.chunk.is_exact else StepSizes([model for model in models if model is not None])
        self.places = (tiles[:, None] * WIDTH + np.arange(WIDTH)).reshape(-1)
        methods = [self.slots[place].method for place in self.places]
        bounds = [-np.inf if m.model is None or m.level is not None else m.model.lower_bound for m in methods]
        self.bounds = np.array(bounds).reshape(len(tiles), WIDTH)
        self.seeds = [self.slots[tile * WIDTH].seed for tile in tiles]

    def run(self, stop: Callable[[], bool] | None) -> None:
        """All steps."""
        settings, problem = self.settings, self.problem
        orders = {
            seed: row_orders(seed, problem.n_rows, settings.batch_size, settings.sampling) for seed in set(self.seeds)
        }
        self._measure(0)
        for epoch in range(settings.epochs):
            rows = {seed: next(orders[seed]) for seed in set(self.seeds)}
            for begin in range(0, settings.steps_per_epoch, _BLOCK):
                if stop is not None and stop():
                    raise Stopped
                self._run_block(
                    epoch * settings.steps_per_epoch + begin,
                    np.stack([rows[seed][begin : begin + _BLOCK] for seed in self.seeds], axis=1),
                )
                if not self.seeds:
                    return
            self._measure(epoch + 1)
        self.average[self.alive] = problem.full_loss(self.total / settings.schedule.sum())

    def _run_block(self, first: int, rows: NDArray[np.intp]) -> None:
        """The steps ``first``, ``first`` + 1, …, one for each entry of ``rows``."""
        problem, every, schedule = self.problem, self.settings.every, self.settings.schedule
        block = {name: values[: len(rows), : len(self.points)] for name, values in self.block.items()}
        loss, grad_sq, size, distance = block["loss"], block["grad_sq"], block["size"], block["distance"]
        delta = block.get("delta", size)  # that of a model is computed at the end, for all steps
        is_constant = bool((schedule == schedule[0]).all())
        last_step = len(schedule) - 1
        sizes = None if self.sizes is None else self._write_sizes
        for index, batch in enumerate(problem.batches(rows)):
            step = first + index
            if schedule[step] != self.factor:
                self._set_factor(schedule[step])
            if step == last_step:
                self.last[self.alive] = problem.full_loss(self.points)
            self.tiles.step(
                batch,
                rows[index],
                self.rates,
                None if is_constant else schedule[step],
                sizes,
                loss[index],
                grad_sq[index],
                size[index],
                delta[index],
                distance[index] if step % every == 0 else None,
            )
        self._keep(first, block)
        if self.settings.rules and self.seeds:
            self._ask_rules(first, len(rows))

    def _write_sizes(self, loss: Floats, grad_sq: Floats, size: Floats, delta: Floats) -> None:
        """The sizes of the models, and those of levels with their indices."""
        assert self.sizes is not None
        size[...] = self.sizes(loss.reshape(-1), grad_sq.reshape(-1)).reshape(-1, WIDTH)
        if len(self.levels.slots):
            flat = (loss, grad_sq, self.rates, size, delta)
            self.levels.step(self.places, *(values.reshape(-1) for values in flat))

    def _set_factor(self, factor: float) -> None:
        """The rates of the steps to come."""
        self.factor = factor
        self.rates = self.lr[self.alive] * factor
        if self.sizes is not None:
            self.sizes.set_rates(self.rates.reshape(-1))

    def _keep(self, first: int, block: dict[str, Floats]) -> None:
        """Keep the traces of a block, and look for runs that diverged in it."""
        every, length = self.settings.every, len(block["loss"])
        skip = -first % every
        place = slice((first + skip) // every, (first + length - 1) // every + 1)
        for name, values in block.items():
            self.steps[name][self.alive, :, place] = values[skip::every].transpose(1, 2, 0)
        numbers = block["loss"] + block["grad_sq"]
        is_end = first + length == self.settings.steps
        when = self.diverged_at[self.alive]
        below = (block["loss"] < self.bounds) & (when < 0)
        if np.isfinite(numbers.sum()) and not (is_end and not np.isfinite(self.points.sum())):
            self.violations[self.alive] += below.sum(axis=0)
            return
        bad = ~np.isfinite(numbers)
        self.violations[self.alive] += (below & ~np.logical_or.accumulate(bad)).sum(axis=0)
        if is_end:  # the last step may have led to a point that is none; later blocks would have seen it
            bad[-1] |= ~np.isfinite(self.points).all(axis=(1, 3))
        died = bad.any(axis=0) & (when < 0)
        when[died] = first + bad.argmax(axis=0)[died]
        self.diverged_at[self.alive] = when
        self._bury(died)

    def _ask_rules(self, first: int, length: int) -> None:
        """End the runs that a stop rule gives up; the rules see δ as the method defines it."""
        settings, rules = self.settings, live_rules(self.settings)
        kept, since = -(-(first + length) // settings.every), -(-first // settings.every)
        ended = np.zeros(self.diverged_at[self.alive].shape, bool)
        for row, tile in enumerate(np.arange(len(self.lr))[self.alive]):
            for slot in range(WIDTH):
                if self.diverged_at[tile, slot] >= 0 or self.stopped_at[tile, slot] >= 0:
                    continue
                run = self.slots[tile * WIDTH + slot]
                rates = run.lr * settings.schedule
                loss, grad_sq = (self.steps[name][tile, slot, :kept] for name in ("loss", "grad_sq"))
                if run.method.model is None or run.method.level is not None:
                    delta = self.steps["delta"][tile, slot, :kept]
                else:
                    delta = run.method.model.step(loss, grad_sq, rates[:: settings.every][:kept]).delta
                history = History(loss, grad_sq, delta, rates, settings.distance, settings.every, since)
                stop = first_stop(rules, history)
                if stop is not None:
                    self.stopped_at[tile, slot], ended[row, slot] = stop.step, True
        if ended.any():
            self._bury(ended)

    def _bury(self, died: NDArray[np.bool_]) -> None:
        """Put runs that died back to the start; take out tiles without a living run."""
        dead = (self.diverged_at[self.alive] >= 0) | (self.stopped_at[self.alive] >= 0)
        lr = self.lr[self.alive]
        lr[died] = self.lr.min()
        self.lr[self.alive] = lr
        for tile, slot in zip(*np.nonzero(died), strict=True):
            self.points[tile, :, slot] = self.start[:, slot]
            self.total[tile, :, slot] = 0.0
        self.factor = np.nan  # the rates are to be set again
        left = ~dead.all(axis=1)
        if not left.all():
            self.alive = np.arange(len(self.lr))[self.alive][left]
            self.points, self.total = self.points[left], self.total[left]
            self._make_room()

    def _measure(self, place: int) -> None:
        """The full losses, as entry ``place`` of the epochs."""
        self.train[self.alive, :, place] = self.problem.full_loss(self.points)
        if self.problem.n_valid:
            self.valid[self.alive, :, place] = self.problem.validation_loss(self.points)

    def traces(self) -> list[Trace]:
        """What is kept of each run."""
        settings, count = self.settings, len(self.slots)
        rate = np.array([run.lr for run in self.slots])[:, None] * settings.schedule[:: settings.every]
        arrays = {name: values.reshape(count, -1) for name, values in self.steps.items()}
        if not self.chunk.is_exact:
            models = [run.method.model for run in self.slots if run.method.model is not None]
            steps = Steps(models, range(count), rate.shape[1:])
            steps.loss[...] = arrays["loss"][steps.order]
            steps.grad_sq[...] = arrays["grad_sq"][steps.order]
            steps.rate[...] = rate[steps.order]
            steps.solve(deltas=True)
            recorded, arrays["delta"] = arrays.get("delta"), np.empty_like(rate)
            arrays["delta"][steps.order] = steps.delta
            if recorded is not None:
                arrays["delta"][self.levels.slots] = recorded[self.levels.slots]
        np.sqrt(arrays["distance"], out=arrays["distance"])
        arrays |= {"train": self.train.reshape(count, -1), "valid": self.valid.reshape(count, -1)}
        last, average, diverged, stopped = (
            values.reshape(-1) for values in (self.last, self.average, self.diverged_at, self.stopped_at)
        )
        ends = np.where((diverged < 0) & (stopped >= 0), stopped + 1, diverged)
        for slot in np.flatnonzero(ends >= 0).tolist():
            step = int(ends[slot])
            # A run that a rule ends at the last step of an epoch is not measured any more.
            epoch = (step if diverged[slot] >= 0 else step - 1) // settings.steps_per_epoch
            for name, values in arrays.items():
                values[slot, epoch + 1 if name in ("train", "valid") else -(-step // settings.every) :] = np.inf
            average[slot] = np.inf
            if step < settings.steps - 1:
                last[slot] = np.inf
        numbers: tuple[Floats, ...] = (last, average, *arrays.values())
        for array in numbers:
            if not np.isfinite(array.sum()):
                array[~np.isfinite(array)] = np.inf
        best = np.minimum(arrays["train"][:, : settings.epochs].min(axis=1), last)
        columns = (diverged, stopped, self.violations.reshape(-1), last, average, best)
        rows = zip(*(values.tolist() for values in columns), strict=True)
        result = []
        for slot, (run, row) in enumerate(zip(self.slots, rows, strict=True)):
            end, halted, below, at_last, at_average, at_best = row
            if slot % WIDTH >= len(self.chunk.tiles[slot // WIDTH]):
                continue
            kept = {
                "loss": arrays["loss"][slot],
                "grad_sq": arrays["grad_sq"][slot],
                "rate": rate[slot],
                "size": arrays["size"][slot],
                "delta": arrays["delta"][slot],
                "distance": arrays["distance"][slot],
            }
            epochs = {"train_loss": arrays["train"][slot], "valid_loss": arrays["valid"][slot]}
            final = {"last_loss": at_last, "average_loss": at_average, "best_loss": at_best}
            status = "diverged" if end >= 0 else "stopped" if halted >= 0 else "finished"
            result.append(Trace(run, status, end, kept, epochs, final, below))
        return result
