"""Runs on the batched convex problems, with the numbers of a study's runs to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot._identity import Identity, digest, identify, merged
from surefoot.problems import ArrayProblem, Problem, one_blas_thread
from surefoot.runs._engine import NUMERICS_VERSION
from surefoot.runs._methods import Method, parse_method
from surefoot.runs._model_steps import Steps
from surefoot.runs._row_orders import row_orders
from surefoot.runs._run import Floats, Progress, Run
from surefoot.runs._tile import WIDTH, Tiles, tile_of
from surefoot.runs._types import TRACED, RunPlan, Settings, Trace, close
from surefoot.theory.models import Model


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
        """Advance at most WIDTH runs of one data order; the tile is filled up with copies of the last."""
        problem, model, first = self.problem, self.method.model, runs[0]
        points, totals = (tile_of([getattr(run, name) for run in runs]) for name in ("point", "total"))
        tiles = Tiles(problem, points, totals, exact=model is None)
        points, totals = tiles.points, tiles.total
        kept = np.empty((len(TRACED), k, WIDTH))
        lr = np.array([run.lr for run in (*runs, *[runs[-1]] * (WIDTH - len(runs)))], float)
        solver = None if model is None else Steps(dict.fromkeys(range(WIDTH), model), tiles.told[:, 0])
        factor = np.nan
        per_epoch = problem.n_rows // self.batch_size
        is_plain = self.schedule is None or bool((self.schedule == 1.0).all())
        rows = self._order(first.seed).rows(first.step, k)
        for index, batch in enumerate(tiles.batches(rows[:, None])):
            step = first.step + index
            eta = 1.0 if self.schedule is None else float(self.schedule[step])
            if eta != factor:
                factor, rates = eta, lr * eta
                if solver is not None:
                    solver.rate[:] = rates
            if index == k - 1:
                before = points.copy()
            weight = None if is_plain else eta
            tiles.step(batch, rates[None], weight, None if solver is None else solver.write)
            kept[:, index] = tiles.told[:, 0]
            if (step + 1) % per_epoch == 0:
                self._measure(runs, points)
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
