"""The search: checks, the choice of the policy, and what is returned."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Literal

from numpy.typing import ArrayLike

from surefoot._base import checks
from surefoot.runs import (
    Bench,
    Keeper,
    Place,
    Run,
    RunFactory,
    Runner,
    SearchError,
    Tell,
    cuts_of,
    reporter,
    tell,
)
from surefoot.search._arguments import OWN_RATES, bias_of, factories_of, schedule_of
from surefoot.search._best_first import BestFirst
from surefoot.search._bias import Bias
from surefoot.search._candidate import Candidate, make_candidate
from surefoot.search._found import Certificate, Found, Row, Table
from surefoot.search._keepers import factories_of_study, keeper_of_factories, warn_of_old_runs
from surefoot.search._loss import LossSearch
from surefoot.search._notes import confidence, notes, spoiled_by
from surefoot.search._race import rungs
from surefoot.study import Study


class NoRateWorks(SearchError):
    """No candidate ended with a finite loss (or bound); the message says how each of them ended."""


FINE = 1.3
"""Ratio of neighbouring rates around the answer, if the search chooses the rates."""
_EXTENSIONS = 8
"""How often rates are added beyond the grid's end."""


def tune(
    run_factory: RunFactory | Mapping[str, RunFactory] | Study,
    lrs: float | Iterable[float] | Mapping[str, float] | None = None,
    horizon: int | None = None,
    *,
    objective: Literal["loss", "bound"] = "loss",
    maximize: bool = False,
    bias: float | str = "auto",
    distance: float | None = None,
    seeds: int | Sequence[int] | None = None,
    tolerance: float | None = None,
    refine: int | None = None,
    extend: bool | None = None,
    schedule: str | ArrayLike | None = None,
    lower_bound: float = 0.0,
    max_states: int = 8,
    store: str | os.PathLike[str] | None = None,
    processes: int | None = None,
    engine: str = "auto",
    address: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    progress: Tell | None = None,
) -> Found:
    """Find the best learning rate of a grid without running the grid.

    * ``objective="loss"`` finds the rate with the smallest loss at the horizon. Runs are compared on the same batches
      as they go, and are left behind once they cannot catch up. There is no proof of the answer, but
      ``found.confidence`` says how surely it is near the best.
    * ``objective="bound"`` finds the rate with the smallest last-iterate bound Ω = bias + Σ w_t δ_t (Theorem 3.4), best
      first: no term is negative, so a part of the sum is a lower bound of the whole. Where the theory allows it,
      ``found.certificate`` proves the answer for the indices measured on these data orders.

    Args:
        run_factory: ``run_factory(lr, seed)`` gives a new run (:class:`~surefoot.search.Run`), such as
            :class:`~surefoot.search.TorchRun` or :class:`~surefoot.search.ProblemRun`; or one such factory a method. A
            function of the rate alone will do for one data order. Or a :class:`~surefoot.study.Study`, which tells
            methods, rates, horizon, schedule and seeds itself.
        lrs: The candidate rates, or ``{"from": 1e-2, "to": 1e2, "count": 9}``, evenly in log. Without them the
            search finds its own range and refines it to a factor of 1.3.
        horizon: T, the steps of a whole run.
        objective: What is minimised.
        maximize: Whether what the runs evaluate at their end is to be large, such as an accuracy. On the way runs are
            compared by their losses in any case.
        bias: D of the bias D²/(2S₁); ``"envelope"``, the Moreau envelope of the full loss at the start, for factories
            that have it; ``"pool"``, the best stand-in for it among all points that any run has visited; or
            ``"auto"``, the envelope if there is one, else the pool. Of the bound only; the loss search needs none.
        distance: D, as in a study and a monitor; ``bias=D`` is the same.
        seeds: How many data orders a candidate (then 0, 1, …), or a list of them; one by default.
        tolerance: For ``"bound"``, the ε of "no other is better by more than a factor 1 + ε" (default 0). For
            ``"loss"``, the share of the gain from the start that does not matter (default 0.005).
        refine: Rounds of refinement: each adds the two rates halfway (in log) between the winner and its neighbours.
        extend: Whether rates are added beyond the grid while the best is at its end.
        schedule: The factors η_t of the rates if they are not constant and the factory does not tell; T numbers > 0, or
            a name as in a study (``"cosine"``).
            The loss search uses them, too: a rate that looks bad before the schedule falls may be the best after it.
        lower_bound: C, a lower bound of the loss; ``found.warnings`` says if losses pass below it.
        max_states: Runs kept in memory; others wait on disk.
        store: A folder that keeps traces and states (of a study, its file). After an interruption, the same call goes
            on where it stopped; finished runs in it count.
        processes: How many compute, this one among them. By default one a core, if a whole run takes more than about
            four seconds, for runs that are not advanced together anyway (``ProblemRun``) and need no GPU. The answer is
            the same, bit for bit: every run uses one thread, and a process that is free works ahead on runs that are
            likely to be asked for.
            Functions, lambdas and classes of a script are sent along; where something cannot be sent, the log
            ``surefoot`` says so, and all runs stay in this process. 1 keeps them here.
        engine: ``"dask"`` takes a Dask cluster, with the same answer, and this and the next as in
            :meth:`Study.run <surefoot.study.Study.run>`. Its workers should see the store, or the folder of temporary
            files: there runs wait for whoever goes on with them, else they begin again.
        address: Of the scheduler of an existing cluster.
        cpus: What a run takes of the ``CPU`` that workers offer.
        gpus: What a run takes of the ``GPU`` that workers offer.
        progress: True shows a bar; a function is called with the steps taken so far, and with those of all runs if it
            takes two arguments.

    Raises:
        NoRateWorks: No candidate ended with a finite loss (or bound).
        RunError: A run raised.

    >>> from surefoot.problems import LinearRegression
    >>> from surefoot.search import ProblemRun, tune
    >>> found = tune(ProblemRun(LinearRegression(), "sgd", batch_size=5), [0.001, 0.01, 0.1, 1.0, 10.0], horizon=100)
    >>> found.lr, found.cost < 0.6
    (0.1, True)
    """
    study: Study | None = None
    if distance is not None:
        if bias != "auto":
            raise ValueError(f"distance and bias={bias!r} exclude each other, got distance={distance!r}")
        bias = checks.number("distance", distance, positive=True)
    if isinstance(run_factory, Study):
        study = run_factory
        if maximize:
            raise ValueError("maximize must be False for a study, whose runs evaluate a loss, got True")
        for name, value in (("lrs", lrs), ("horizon", horizon), ("seeds", seeds), ("schedule", schedule)):
            if value is not None:
                raise TypeError(f"{name} is told by the study; tune takes no {name!r} with one")
        run_factory, lrs, horizon, seeds = factories_of_study(study), study.lrs, study.steps, study.seeds
        if bias == "auto" and study.distance is not None:
            bias = study.distance
    orders = checks.seeds(1 if seeds is None else seeds)
    factories = factories_of(run_factory, len(orders))
    if objective not in ("loss", "bound"):
        raise ValueError(f"objective must be 'loss' or 'bound', got {objective!r}")
    if horizon is None:
        raise ValueError("horizon must be given: the steps of a whole run")
    horizon = checks.whole("horizon", horizon, 1)
    if lrs is None and objective == "bound":
        raise ValueError("lrs must be given for objective='bound', whose certificate speaks of these rates, got None")
    rates = OWN_RATES if lrs is None else list(checks.rates(lrs))
    extend = lrs is None if extend is None else bool(extend)
    factors = schedule_of(schedule, factories, horizon)
    lower_bound = checks.number("lower_bound", lower_bound)
    if tolerance is None:
        tolerance = 0.005 if objective == "loss" else 0.0
    tolerance = checks.number("tolerance", tolerance, least=0)
    rounds = 0 if refine is None else checks.whole("refine", refine, 0)
    max_states = checks.whole("max_states", max_states, 1)
    place = Place(engine, processes, address, cpus, gpus)
    rule = bias_of(bias, factories, horizon)
    if maximize and objective == "bound":
        raise ValueError("maximize must be False for objective='bound', got True")
    if maximize or (objective == "bound" and not rule.is_known):
        _check_runs(factories, rates[0], orders[0], maximize)
    cuts = cuts_of(horizon, rungs(horizon) if objective == "loss" else ())
    path = None if store is None else Path(store)
    keeping: AbstractContextManager[Keeper] = Keeper()
    if path is not None and study is not None:
        warn_of_old_runs(study, path)
        keeping = study._keeping(path, factories)
    elif path is not None:
        shared = hashlib.sha256(factors.astype("<f8").tobytes()).hexdigest()
        settings = {"horizon": horizon, "schedule": shared, "methods": list(factories)}
        keeping = keeper_of_factories(path, factories, settings)

    candidates = [make_candidate(method, lr, factors, orders) for method in factories for lr in rates]
    with ExitStack() as opened:
        keeper = opened.enter_context(keeping)
        report = opened.enter_context(reporter(progress, total=len(candidates) * len(orders) * horizon, unit="steps"))
        bench = Bench(factories, horizon, cuts, keeper.files, max_states)
        finished = None if path is None or study is None else keeper.finish
        runner = opened.enter_context(Runner(bench, keeper=keeper, place=place, finished=finished))

        def restore(candidates: list[Candidate]) -> None:
            keeper.restore(lane for candidate in candidates for lane in candidate.lanes)

        if study is not None and (done := len(keeper.done())):
            tell(None, f"{done} runs are in {store} already; the match rests on {study.identity()}")
        restore(candidates)

        def notify() -> None:
            report(sum(candidate.done for candidate in candidates))

        search: LossSearch | BestFirst
        if objective == "loss":
            search = LossSearch(runner, factors, notify, tolerance, maximize)
        else:
            search = BestFirst(runner, rule, notify, tolerance, math.ceil(horizon / 32))

        def go_on(winner: Candidate, new: list[float]) -> Candidate | None:
            added = [make_candidate(winner.method, lr, factors, orders) for lr in new]
            restore(added)
            candidates.extend(added)
            candidates.sort(key=lambda c: (list(factories).index(c.method), c.lr))
            return search.search(candidates, start=[winner, *added])

        winner = search.search(candidates)
        for _ in range(_EXTENSIONS if extend else 0):
            beyond = [] if winner is None else _beyond(candidates, winner)
            if winner is None or not beyond:
                break
            winner = go_on(winner, beyond)
        while winner is not None and (rounds > 0 or (lrs is None and refine is None)):
            between = _between(candidates, winner, 1.0 if rounds > 0 else FINE)
            if not between:
                break
            rounds -= 1
            winner = go_on(winner, between)
        steps = sum(candidate.done for candidate in candidates)
        if isinstance(search, LossSearch):
            _count_finished(candidates, runner)
            winner = search.best(candidates)
        if winner is None:
            raise NoRateWorks(_failure(candidates, objective))
        return _answer(candidates, winner, search, rule, orders, steps, lower_bound, maximize)


def _count_finished(candidates: list[Candidate], runner: Runner) -> None:
    """Read the runs that a store holds to their end: they count, even where the search has not been."""
    finished = [c for c in candidates if all(lane.recorded == lane.horizon for lane in c.lanes)]
    runner.advance([lane for candidate in finished for lane in candidate.lanes], runner.horizon)


def _check_runs(factories: Mapping[str, RunFactory], lr: float, seed: int, maximize: bool) -> None:
    """Refuse runs that do not tell what the search rests on."""
    for name, factory in factories.items():
        run, where = factory(lr, seed), f"run_factory[{name!r}]" if name else "run_factory"
        if maximize and isinstance(run, Run) and run.evaluate() is None:
            raise TypeError(f"maximize=True needs runs with evaluate(); those of {where} have none")
        if not maximize and isinstance(run, Run) and run.distance() is None:
            raise TypeError(
                "bias='pool' needs runs with distance(), ‖x_t − x_1‖, to find the smallest bound; "
                f"those of {where} have none: give the bias as a distance D instead"
            )


def _answer(
    candidates: list[Candidate],
    winner: Candidate,
    search: LossSearch | BestFirst,
    rule: Bias,
    seeds: tuple[int, ...],
    steps: int,
    lower_bound: float,
    maximize: bool,
) -> Found:
    runner, objective = search.runner, "loss" if isinstance(search, LossSearch) else "bound"
    biases = rule(candidates)
    rows = [_row(candidate, bias, winner, objective) for candidate, bias in zip(candidates, biases, strict=True)]
    bound = next(row for row in rows if row.outcome == "chosen").bound
    certificate = None
    proved = all(lane.certifies for candidate in candidates for lane in candidate.lanes)
    if objective == "bound" and rule.is_known and proved:
        others = tuple(row for row in rows if row.outcome != "chosen")
        certificate = Certificate(winner.method, winner.lr, bound, rule.name, search.tolerance, others)
    sureness: float | None = None
    start, warnings = math.nan, tuple[str, ...]()
    if isinstance(search, LossSearch):
        race, place = search.race(candidates), candidates.index(winner)
        sureness, start = confidence(race, place), race.start()
        warnings = tuple(notes(race, place, lower_bound))
    return Found(
        lr=winner.lr,
        method=winner.method,
        loss=winner.last_loss() if maximize else winner.final_loss(),
        score=winner.final_loss(),
        bound=bound,
        certificate=certificate,
        confidence=sureness,
        warnings=warnings,
        start=start,
        steps=steps,
        cost=steps / (len(candidates) * len(seeds) * runner.horizon),
        horizon=runner.horizon,
        seeds=seeds,
        table=Table(tuple(rows), bounds=objective == "bound"),
        run=runner.run_of(winner.lanes[0]),
    )


def _row(candidate: Candidate, bias: float, winner: Candidate, objective: str) -> Row:
    reason = candidate.reason
    if candidate is winner:
        outcome, reason = "chosen", ""
    elif candidate.diverged:
        outcome, reason = "diverged", f"at step {candidate.ended_at}"
    elif candidate.dead:
        outcome = "dead"
    elif candidate.complete:
        outcome, reason = "finished", ""
    else:
        outcome = "dropped" if candidate.done else "never started"
        if objective == "bound":
            reason = f"{'partial sum' if candidate.done else 'bias'} above the smallest bound"
    loss = candidate.final_loss() if candidate.complete else candidate.recent_loss()
    return Row(candidate.method, candidate.lr, candidate.done, outcome, reason, loss, bias, candidate.noise())


def _failure(candidates: list[Candidate], objective: str) -> str:
    ends = []
    for candidate in candidates:
        if candidate.diverged:
            ends.append(f"{candidate.name}: not finite at step {candidate.ended_at}")
        elif candidate.dead:
            ends.append(f"{candidate.name}: {candidate.reason}")
        else:
            ends.append(f"{candidate.name}: no finite {objective} after {candidate.done} steps")
    spoiled = spoiled_by([lane.ended_at for candidate in candidates for lane in candidate.lanes if lane.done])
    return (
        f"no rate works: none of {len(candidates)} candidates ended with a finite {objective}. {spoiled}"
        + "; ".join(ends)
    )


def _beyond(candidates: list[Candidate], winner: Candidate) -> list[float]:
    """Two rates beyond the end of a method's rates where the winner is, as far apart as its neighbours."""
    lrs = sorted(candidate.lr for candidate in candidates if candidate.method == winner.method)
    if winner.lr not in (lrs[0], lrs[-1]):
        return []
    up = winner.lr == lrs[-1] and (len(lrs) == 1 or winner.lr != lrs[0])
    ratio = 2.0 if len(lrs) == 1 else (lrs[-1] / lrs[-2] if up else lrs[1] / lrs[0])
    new = [winner.lr * (ratio if up else 1.0 / ratio) ** power for power in (1, 2)]
    return sorted(lr for lr in new if 0 < lr < math.inf)


def _between(candidates: list[Candidate], winner: Candidate, ratio: float) -> list[float]:
    """The rates halfway, in log, between the winner and those neighbours that are further apart than a ratio."""
    lrs = sorted(candidate.lr for candidate in candidates if candidate.method == winner.method)
    place = lrs.index(winner.lr)
    beside = lrs[max(0, place - 1) : place] + lrs[place + 1 : place + 2]
    far = [lr for lr in beside if max(lr, winner.lr) > ratio * min(lr, winner.lr)]
    middle = [math.exp(0.5 * (math.log(winner.lr) + math.log(lr))) for lr in far]
    return [lr for lr in middle if lr not in lrs]
