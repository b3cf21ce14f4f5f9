"""The best finished bound of a sweep, shared by all its processes: runs that are proved to be worse end early.

While a sweep runs, ``PartialBound(best="shared")`` stands for the smallest bound among the runs that are finished by
then, so that what is spared depends on who is finished when. The result does not. A partial sum never falls, so the run
with the smallest bound Ω of all is never ended and Ω is known at last; and whoever was ended would have been by Ω too,
no later. So every run is cut where ``PartialBound(best=Ω)`` ends it, which is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from surefoot._base.files import remove_whole, replacing
from surefoot._base.states import seal_of
from surefoot.rules import ROUNDING, History, StopRule, first_stop, is_shared, with_best
from surefoot.runs._types import RunPlan, Settings, Trace, close


def live_rules(settings: Settings) -> tuple[StopRule, ...]:
    """The rules as they stand now; nothing is ended that rounding alone puts above the best."""
    if not any(is_shared(rule) for rule in settings.rules):
        return settings.rules
    return with_best(settings.rules, (1 + ROUNDING) * (math.inf if settings.best is None else told_best(settings.best)))


def told_best(path: str) -> float:
    """The best bound so far; ∞ where nobody has told one, or the file is damaged or on another machine."""
    try:
        text, _, seal = Path(path).read_bytes().partition(b" ")
        return float(text) if seal == seal_of(text) else math.inf
    except (OSError, ValueError):
        return math.inf


def tell_best(traces: Iterable[Trace], settings: Settings) -> None:
    """Let all processes know the bounds of finished runs, if one is the best so far."""
    if settings.best is None:
        return
    best = best_of(traces, settings)
    if best < told_best(settings.best):
        file, text = Path(settings.best), repr(best).encode()
        file.parent.mkdir(parents=True, exist_ok=True)
        # Where another process has just removed the folder there is no bound, and all runs come to their end.
        with suppress(FileNotFoundError), replacing(file, "the best bound", sync=False) as to:
            to.write(text + b" " + seal_of(text))


def forget_best(settings: Settings) -> None:
    """Remove the file with the best bound, and what a killed process was writing of it."""
    if settings.best is not None:
        remove_whole(Path(settings.best))


def best_of(traces: Iterable[Trace], settings: Settings) -> float:
    """The smallest bound of the finished runs, ∞ if there are none.

    Where indices are negative a run's bound is its largest partial sum, so that it too is never ended by itself.
    """
    histories = (_history(trace, settings) for trace in traces if trace.status == "finished")
    return min((float(history.partial_noise().max()) + history.bias() for history in histories), default=math.inf)


def cut(found: Trace, run: RunPlan, settings: Settings, best: float, has_validation: bool) -> Trace:
    """End a run where the shared rules end it with the best bound of all."""
    history = _history(found, settings)
    stop = first_stop(with_best([rule for rule in settings.rules if is_shared(rule)], best), history)
    if stop is None:
        return found
    bound, losses = run.method.lower_bound, history.loss[: stop.step // settings.every + 1]
    below = 0 if bound is None else int((losses < bound).sum())
    trace = close(run, settings, found.steps, found.epochs, found.final, -1, stop.step, below, has_validation)
    return trace._replace(key=found.key)


def _history(trace: Trace, settings: Settings) -> History:
    """The steps of a run that are known; the others are ∞."""
    known = int(np.isfinite(trace.steps["loss"]).sum())
    loss, grad_sq, delta = (trace.steps[name][:known] for name in ("loss", "grad_sq", "delta"))
    return History(loss, grad_sq, delta, trace.key.lr * settings.schedule, settings.distance, settings.every)
