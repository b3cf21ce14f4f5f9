"""The search: checks its arguments, advances the runs that the policy asks for, and returns the answer."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base import checks
from surefoot.runs import Executor, Floats, Key, Record, Run, RunFactory, RunWork, SearchError, Tell, reporter, tell
from surefoot.search._arguments import OWN_RATES, factories_of, schedule_of
from surefoot.search._candidate import Candidate
from surefoot.search._found import Found, Row, Table
from surefoot.search._keepers import Kept, factories_of_study, kept_in
from surefoot.search._notes import confidence, notes
from surefoot.search._race import Race
from surefoot.study import Study


class NoRateWorks(SearchError):
    """No candidate ended with a finite loss; the message says how each of them ended."""


_FINE = 1.3
"""Ratio of neighbouring rates around the answer, if the search chooses the rates."""
_EXTENSIONS = 8
"""How often rates are added beyond the grid's end."""


def tune(
    run_factory: RunFactory | Mapping[str, RunFactory] | Study,
    lrs: float | Iterable[float] | Mapping[str, float] | None = None,
    horizon: int | None = None,
    *,
    maximize: bool = False,
    seeds: int | Sequence[int] | None = None,
    refine: int | None = None,
    extend: bool | None = None,
    schedule: str | ArrayLike | None = None,
    max_states: int = 8,
    store: str | os.PathLike[str] | None = None,
    processes: int | None = None,
    engine: str = "auto",
    address: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    progress: Tell | None = None,
) -> Found:
    """Find the rate of a grid with the smallest loss at the horizon, without running the grid.

    Runs are compared on the same batches as they go, and are dropped once they cannot catch up. There is no proof of
    the answer, but ``found.confidence`` says how surely it is near the best.

    Args:
        run_factory: ``run_factory(lr, seed)`` gives a new run (:class:`~surefoot.search.Run`), such as
            :class:`~surefoot.search.TorchRun` or :class:`~surefoot.search.ProblemRun`; or one such factory per method.
            Or a :class:`~surefoot.study.Study`, which brings its methods, rates, horizon, schedule and seeds.
        lrs: The candidate rates, or ``{"from": 1e-2, "to": 1e2, "count": 9}``, evenly in log. Without them the
            search finds its own range and refines it to a factor of 1.3.
        horizon: T, the steps of a whole run.
        maximize: Whether what the runs evaluate at their end is to be large, such as an accuracy. On the way runs are
            compared by their losses in any case.
        seeds: How many seeds per candidate (then 0, 1, …), or a list of them; one by default.
        refine: Rounds of refinement: each adds the two rates halfway (in log) between the winner and its neighbours.
        extend: Whether rates are added beyond the grid while the best is at its end.
        schedule: The factors η_t of the rates if they are not constant and the factory has none; T numbers > 0, or a
            name as in a study (``"cosine"``). A rate that looks bad before the schedule falls may be the best after it.
        max_states: Runs kept in memory; others wait on disk.
        store: A file that keeps the search, with a folder ``STORE.states`` beside it (of a study, its file). After an
            interruption, the same call goes on where it stopped; finished runs in it count.
        processes: How many compute, this one among them. By default one per core, if a whole run takes more than about
            four seconds and needs no GPU. The answer is the same, bit for bit: every run uses one thread. Functions,
            lambdas and classes of a script are sent along; where something cannot be sent, the log ``surefoot`` says
            so, and all runs stay in this process. 1 keeps them here.
        engine: ``"dask"`` takes a Dask cluster, with the same answer, and this and the next as in
            :meth:`Study.run <surefoot.study.Study.run>`. Its workers should see the store, or the folder of temporary
            files: there runs wait for whoever goes on with them, else they begin again.
        address: Of the scheduler of an existing cluster.
        cpus: What a run takes of the ``CPU`` that workers offer.
        gpus: What a run takes of the ``GPU`` that workers offer.
        progress: True shows a bar; a function is called with the steps taken so far, and with those of all runs.

    Raises:
        NoRateWorks: No candidate ended with a finite loss.
        RunError: A run raised.

    >>> from surefoot.problems import LinearRegression
    >>> from surefoot.search import ProblemRun, tune
    >>> found = tune(ProblemRun(LinearRegression(), "sgd", batch_size=5), [0.001, 0.01, 0.1, 1.0, 10.0], horizon=100)
    >>> found.lr, found.cost < 0.6
    (0.1, True)
    """
    study: Study | None = None
    if isinstance(run_factory, Study):
        study = run_factory
        if maximize:
            raise ValueError("maximize must be False for a study, whose runs evaluate a loss, got True")
        for name, value in (("lrs", lrs), ("horizon", horizon), ("seeds", seeds), ("schedule", schedule)):
            if value is not None:
                raise TypeError(f"{name} is set by the study; tune takes no {name!r} with one")
        run_factory, lrs, horizon, seeds = factories_of_study(study), study.lrs, study.steps, study.seeds
    all_seeds = checks.seeds(1 if seeds is None else seeds)
    factories = factories_of(run_factory)
    if horizon is None:
        raise ValueError("horizon must be given: the steps of a whole run")
    horizon = checks.horizon(horizon)
    rates = OWN_RATES if lrs is None else list(checks.rates(lrs))
    extend = lrs is None if extend is None else bool(extend)
    factors = schedule_of(schedule, factories, horizon)
    rounds = 0 if refine is None else checks.whole("refine", refine, 0)
    max_states = checks.whole("max_states", max_states, 1)
    executor = Executor(engine, processes, address, cpus, gpus)
    for name, factory in factories.items() if maximize else ():
        run, where = factory(rates[0], all_seeds[0]), f"run_factory[{name!r}]" if name else "run_factory"
        if isinstance(run, Run) and run.evaluate() is None:
            raise TypeError(f"maximize=True needs runs with evaluate(); those of {where} have none")
    shared = hashlib.sha256(factors.astype("<f8").tobytes()).hexdigest()
    settings = {"horizon": horizon, "schedule": shared, "methods": list(factories)}

    with ExitStack() as opened:
        kept = opened.enter_context(kept_in(None if store is None else Path(store), study, factories, settings))
        total = len(factories) * len(rates) * len(all_seeds) * horizon
        report = opened.enter_context(reporter(progress, total=total, unit="steps"))
        work = RunWork(factories, horizon, kept.states, max_states)
        opened.enter_context(executor)
        if study is not None and (done := len(kept.done())):
            tell(None, f"{done} runs are in {store} already; the match rests on {study.identity()}")
        search = Search(executor, work, kept, list(factories), all_seeds, factors, maximize, report)
        for method in factories:
            search.add(method, rates)
        winner, extensions = search.run(), _EXTENSIONS if extend else 0
        while winner is not None:
            known = [candidate.lr for candidate in search.candidates if candidate.method == winner.method]
            new, extensions = _beyond(known, winner.lr) if extensions > 0 else [], extensions - 1
            if not new:
                extensions = 0
                if rounds > 0 or (lrs is None and refine is None):
                    new, rounds = _between(known, winner.lr, 1.0 if rounds > 0 else _FINE), rounds - 1
            if not new:
                break
            winner = search.run([winner, *search.add(winner.method, new)])
        steps = search.steps
        search.read_finished()
        winner = search.best()
        if winner is None:
            raise NoRateWorks(_failure(search.candidates))
        return _answer(search, winner, steps)


@dataclass
class Search:
    """Advances the candidates that the race asks for, and chooses among those that got to the end."""

    executor: Executor
    work: RunWork
    kept: Kept
    methods: Sequence[str]
    seeds: tuple[int, ...]
    schedule: Floats
    maximize: bool
    """Whether what the runs evaluate is to be large."""
    report: Callable[[int], None]
    candidates: list[Candidate] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Steps taken, over all candidates."""
        return sum(candidate.done for candidate in self.candidates)

    def add(self, method: str, lrs: Sequence[float]) -> list[Candidate]:
        """Add candidates, with what the store has of their runs."""
        horizon = self.work.horizon
        new = [Candidate(method, lr, [Record(Key(method, lr, seed), horizon) for seed in self.seeds]) for lr in lrs]
        self.kept.restore(record for candidate in new for record in candidate.records)
        self.candidates = sorted([*self.candidates, *new], key=lambda c: (self.methods.index(c.method), c.lr))
        return new

    def run(self, start: Sequence[Candidate] = ()) -> Candidate | None:
        """Race the candidates, from ``start`` on if given; the best one at the horizon, None if none got there."""
        race = self.race()
        with np.errstate(over="ignore", invalid="ignore"):
            for places, step in race.requests([self.candidates.index(candidate) for candidate in start]):
                self._advance([self.candidates[i] for i in places], step)
                for i in places:
                    race.histories[i] = self.candidates[i].history()
                self.report(self.steps)
        for place, candidate in enumerate(self.candidates):
            candidate.reason = race.reasons.get(place, "")
        return self.best()

    def race(self) -> Race:
        """The policy with all that is known of the candidates."""
        return Race(
            [candidate.lr for candidate in self.candidates],
            [candidate.method for candidate in self.candidates],
            self.work.horizon,
            self.schedule,
            [candidate.history() for candidate in self.candidates],
        )

    def read_finished(self) -> None:
        """Read the runs that a store has finished: they count, even where the race has not been."""
        finished = [c for c in self.candidates if all(record.taken == record.horizon for record in c.records)]
        self._advance(finished, self.work.horizon)

    def _advance(self, candidates: Sequence[Candidate], step: int) -> None:
        records = [record for candidate in candidates for record in candidate.records]
        self.executor.advance(self.work, records, step, self.kept.finish if self.kept.states.lasts else None)

    def best(self) -> Candidate | None:
        """The best of those that are complete."""
        sign = -1.0 if self.maximize else 1.0
        complete = [candidate for candidate in self.candidates if math.isfinite(candidate.score())]
        return min(complete, key=lambda candidate: sign * candidate.score(), default=None)


def _answer(search: Search, winner: Candidate, steps: int) -> Found:
    race, place, horizon = search.race(), search.candidates.index(winner), search.work.horizon
    return Found(
        lr=winner.lr,
        method=winner.method,
        loss=winner.recent_loss() if search.maximize else winner.score(),
        score=winner.score(),
        confidence=confidence(race, place, is_evaluated=all(one.evaluation is not None for one in winner.records)),
        warnings=tuple(notes(race, place)),
        start=race.start(),
        steps=steps,
        cost=steps / (len(search.candidates) * len(search.seeds) * horizon),
        horizon=horizon,
        seeds=search.seeds,
        table=Table(_row(candidate, winner, search.maximize) for candidate in search.candidates),
        run=search.work.run_of(winner.records[0]),
    )


def _row(candidate: Candidate, winner: Candidate, maximize: bool) -> Row:
    score = "score" if maximize else "loss"
    outcome, reason = "dropped" if candidate.done else "never started", candidate.reason
    if candidate is winner:
        outcome, reason = "chosen", f"{'largest' if maximize else 'smallest'} {score} at the end"
    elif candidate.diverged_at is not None:
        outcome, reason = "diverged", f"at step {candidate.diverged_at}"
    elif candidate.complete:
        outcome, reason = "finished", f"{'smaller' if maximize else 'larger'} {score} at the end"
    loss = candidate.score() if candidate.complete else candidate.recent_loss()
    return Row(candidate.method, candidate.lr, candidate.done, outcome, reason, loss)


def _failure(candidates: list[Candidate]) -> str:
    ends = [
        f"{candidate}: no finite loss after {candidate.done} steps"
        if candidate.diverged_at is None
        else f"{candidate}: not finite at step {candidate.diverged_at}"
        for candidate in candidates
    ]
    steps = [record.ended_at for candidate in candidates for record in candidate.records if record.done]
    same = len(steps) > 1 and steps[0] is not None and len(set(steps)) == 1
    spoiled = f"All of them ended at step {steps[0]}: look at the batch of that step. " if same else ""
    return f"no rate works: none of {len(candidates)} candidates ended with a finite loss. {spoiled}{'; '.join(ends)}"


def _beyond(lrs: Sequence[float], best: float) -> list[float]:
    """Two rates beyond the end of a method's rates where the best is, as far apart as its neighbours."""
    if best not in (lrs[0], lrs[-1]):
        return []
    up = best == lrs[-1] and (len(lrs) == 1 or best != lrs[0])
    ratio = 2.0 if len(lrs) == 1 else (lrs[-1] / lrs[-2] if up else lrs[1] / lrs[0])
    new = [best * (ratio if up else 1.0 / ratio) ** power for power in (1, 2)]
    return sorted(lr for lr in new if 0 < lr < math.inf)


def _between(lrs: Sequence[float], best: float, ratio: float) -> list[float]:
    """The rates halfway, in log, between the best and those neighbours that are further apart than a ratio."""
    place = lrs.index(best)
    beside = [*lrs[max(0, place - 1) : place], *lrs[place + 1 : place + 2]]
    far = [lr for lr in beside if max(lr, best) > ratio * min(lr, best)]
    middle = [math.exp(0.5 * (math.log(best) + math.log(lr))) for lr in far]
    return [lr for lr in middle if lr not in lrs]
