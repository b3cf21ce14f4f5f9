"""The search: checks, the choice of the bias, and what is returned."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from surefoot.search._arguments import bias_of, factories_of, number_from, rates_of, schedule_of
from surefoot.search._best_first import BestFirst
from surefoot.search._bias import Bias
from surefoot.search._candidate import Candidate, make_candidate
from surefoot.search._found import Certificate, Dropped, Found, Row, Table
from surefoot.search._identity import identities_of
from surefoot.search._journal import Journal
from surefoot.search._race import Race
from surefoot.search._run import Floats, NoRateWorks, RunFactory
from surefoot.search._runner import Runner
from surefoot.study import _checks

Objective = Literal["loss", "bound"]
Factories = RunFactory | Mapping[str, RunFactory]


def tune(
    run_factory: Factories,
    lrs: float | Iterable[float] | Mapping[str, float],
    horizon: int,
    *,
    objective: Objective = "loss",
    slack: float = 3.0,
    bias: float | str = "auto",
    seeds: int | Sequence[int] = 1,
    tolerance: float | None = None,
    refine: int = 0,
    schedule: ArrayLike | None = None,
    lower_bound: float = 0.0,
    factor: float = 3.0,
    max_states: int = 8,
    store: str | os.PathLike[str] | Journal | None = None,
    progress: Callable[[int], None] | None = None,
) -> Found:
    """Find the best learning rate of a grid without running the grid.

    The noise of the last-iterate bound (Theorem 3.4) is a sum of terms w_t δ_t ≥ 0, so a part of it is a lower bound
    of the whole, and rules rates out long before their runs end.

    * ``objective="bound"`` finds the rate with the smallest Ω = bias + Σ w_t δ_t, best first. Where the theory allows
      it, ``found.certificate`` proves the answer for the indices measured on these data orders.
    * ``objective="loss"`` finds the rate with the smallest loss at the horizon. The bound only drops rates beyond
      ``slack`` × the best; a race on the measured losses decides. There is no proof of that.

    Args:
        run_factory: ``run_factory(lr, seed)`` gives a new run (:class:`~surefoot.search.Run`), such as
            :class:`~surefoot.search.TorchRun` or :class:`~surefoot.search.ProblemRun`; or one such factory a method. A
            function of the rate alone will do for one data order.
        lrs: The candidate rates, rising, or ``{"from": 1e-2, "to": 1e2, "count": 9}``, evenly in log.
        horizon: T, the steps of a whole run.
        objective: What is minimised.
        slack: How far a candidate's bound may be above the best one, for ``objective="loss"``.
        bias: D of the bias D²/(2S₁); ``"envelope"``, the Moreau envelope of the full loss at the start, for factories
            that have it; ``"pool"``, the best stand-in for it among all points that any run has visited; or
            ``"auto"``, the envelope if there is one, else the pool.
        seeds: How many data orders a candidate (then 0, 1, …), or a list of them.
        tolerance: For ``"bound"``, the ε of "no other is better by more than a factor 1 + ε" (default 0). For
            ``"loss"``, the share of f(x₁) − C that does not matter (default 0.01).
        refine: Rounds of refinement: each adds the two rates halfway (in log) between the winner and its neighbours.
        schedule: The factors η_t of the rates if they are not constant and the factory does not tell; T numbers > 0.
        lower_bound: C, a lower bound of the loss.
        factor: Ratio of two rungs of the race.
        max_states: Runs kept in memory; others wait on disk.
        store: A folder that keeps traces and states. After an interruption, the same call goes on where it stopped.
        progress: Called with the number of steps taken so far, after each advance.

    Raises:
        NoRateWorks: No candidate ended with a finite loss (or bound).
        RunError: A run raised.

    >>> from surefoot.problems import LinearRegression
    >>> from surefoot.search import ProblemRun, tune
    >>> found = tune(ProblemRun(LinearRegression(), "sgd", batch_size=5), [0.001, 0.01, 0.1, 1.0, 10.0], horizon=100)
    >>> found.lr, found.cost < 0.5
    (0.1, True)
    """
    orders = _checks.seeds(seeds)
    factories = factories_of(run_factory, len(orders))
    horizon = _checks.whole("horizon", horizon, 1)
    rates = rates_of(lrs)
    factors = schedule_of(schedule, factories, horizon)
    if objective not in ("loss", "bound"):
        raise ValueError(f"objective must be 'loss' or 'bound', got {objective!r}")
    slack = number_from("slack", slack, 1.0)
    factor = number_from("factor", factor, 1.5)
    lower_bound = _checks.number("lower_bound", lower_bound)
    if tolerance is None:
        tolerance = 0.01 if objective == "loss" else 0.0
    tolerance = number_from("tolerance", tolerance, 0.0)
    refine = _checks.whole("refine", refine, 0)
    max_states = _checks.whole("max_states", max_states, 1)
    rule = bias_of(bias, factories, horizon)
    if store is not None and not isinstance(store, Journal):
        store = Journal(Path(store), _settings(factories, horizon, factors), identities_of(factories, Path(store)))
    piece = math.ceil(horizon / 32)

    candidates = [make_candidate(method, lr, factors, orders) for method in factories for lr in rates]
    needs_distance = objective == "bound" and not rule.is_known
    with Runner(
        factories, horizon, max_states=max_states, piece=piece, journal=store, needs_distance=needs_distance
    ) as runner:
        for candidate in candidates:
            runner.restore(candidate)

        def notify() -> None:
            if progress is not None:
                progress(sum(candidate.done for candidate in candidates))

        search: Race | BestFirst
        if objective == "loss":
            search = Race(runner, rule, notify, tolerance, slack, factor, lower_bound)
        else:
            search = BestFirst(runner, rule, notify, tolerance, piece, watch=not rule.is_known)
        winner = search.search(candidates)
        for _ in range(refine):
            if winner is None:
                break
            added = [make_candidate(winner.method, lr, factors, orders) for lr in _between(candidates, winner)]
            for candidate in added:
                runner.restore(candidate)
            candidates.extend(added)
            candidates.sort(key=lambda c: (list(factories).index(c.method), c.lr))
            winner = search.search(candidates, start=[winner, *added])
        if winner is None:
            raise NoRateWorks(_failure(candidates, objective))
        return _found(candidates, winner, runner, rule, orders, tolerance, objective)


def _found(
    candidates: list[Candidate],
    winner: Candidate,
    runner: Runner,
    rule: Bias,
    seeds: tuple[int, ...],
    tolerance: float,
    objective: Objective,
) -> Found:
    biases = rule(candidates)
    rows, dropped = [], []
    for candidate, bias in zip(candidates, biases, strict=True):
        noise = candidate.noise()
        rows.append(_row(candidate, bias, noise, winner, runner.horizon, objective))
        if candidate is winner:
            own = bias + noise
        else:
            dropped.append(Dropped(candidate.method, candidate.lr, candidate.done, bias, noise))
    certificate = None
    proved = all(lane.certifies for candidate in candidates for lane in candidate.lanes)
    if objective == "bound" and rule.is_known and proved:
        certificate = Certificate(winner.method, winner.lr, own, rule.name, tolerance, tuple(dropped))
    steps = sum(candidate.done for candidate in candidates)
    return Found(
        lr=winner.lr,
        method=winner.method,
        loss=winner.final_loss(-(-runner.horizon // 10)),
        bound=own,
        certificate=certificate,
        steps=steps,
        cost=steps / (len(candidates) * len(seeds) * runner.horizon),
        horizon=runner.horizon,
        seeds=seeds,
        table=Table(tuple(rows)),
        run=runner.run_of(winner),
    )


def _row(candidate: Candidate, bias: float, noise: float, winner: Candidate, horizon: int, objective: Objective) -> Row:
    window = -(-horizon // 10)
    reason = candidate.reason
    if candidate is winner:
        outcome, reason = "chosen", ""
    elif candidate.diverged:
        step = min(lane.ended_at for lane in candidate.lanes if lane.ended_at is not None)
        outcome, reason = "diverged", f"at step {step}"
    elif candidate.dead:
        outcome = "dead"
    elif candidate.complete:
        outcome, reason = "finished", ""
    else:
        outcome = "dropped" if candidate.done else "never started"
        if objective == "bound":
            reason = f"{'partial sum' if candidate.done else 'bias'} above the smallest bound"
    loss = candidate.final_loss(window) if candidate.complete else candidate.recent_loss(window)
    return Row(candidate.method, candidate.lr, candidate.done, outcome, reason, loss, bias, noise)


def _failure(candidates: list[Candidate], objective: str) -> str:
    ends = []
    for candidate in candidates:
        lanes = [lane.ended_at for lane in candidate.lanes if lane.ended_at is not None]
        if lanes:
            ends.append(f"{candidate.name}: not finite at step {min(lanes)}")
        elif candidate.dead:
            ends.append(f"{candidate.name}: {candidate.reason}")
        else:
            ends.append(f"{candidate.name}: no finite {objective} after {candidate.done} steps")
    return f"no rate works: none of {len(candidates)} candidates ended with a finite {objective}. " + "; ".join(ends)


def _between(candidates: list[Candidate], winner: Candidate) -> list[float]:
    """The rates halfway, in log, between the winner and its neighbours."""
    lrs = sorted(candidate.lr for candidate in candidates if candidate.method == winner.method)
    place = lrs.index(winner.lr)
    beside = lrs[max(0, place - 1) : place] + lrs[place + 1 : place + 2]
    middle = [math.exp(0.5 * (math.log(winner.lr) + math.log(other))) for other in beside]
    return [lr for lr in middle if lr not in lrs]


def _settings(factories: Mapping[str, RunFactory], horizon: int, factors: Floats) -> dict[str, Any]:
    return {
        "horizon": horizon,
        "schedule": hashlib.sha256(factors.astype("<f8").tobytes()).hexdigest(),
        "methods": list(factories),
    }
