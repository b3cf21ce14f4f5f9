"""The best finished bound of a sweep, shared by all its processes: runs that are proved to be worse end early.

While a sweep runs, ``PartialBound(best="shared")`` stands for the smallest bound among the runs that are finished by
then, so that what is spared depends on who is finished when. The result does not. A partial sum never falls, so the run
with the smallest bound Ω of all is never ended and Ω is known at last; and whoever was ended would have been by Ω too,
no later. So every run is cut where ``PartialBound(best=Ω)`` ends it, which is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from surefoot.rules import History, first_stop, is_shared, with_best
from surefoot.runs import RunPlan, Settings, Trace, closed_trace, lower_bound_of


def best_of(traces: Iterable[Trace], settings: Settings) -> float:
    """The smallest bound of the finished runs, ∞ if there are none."""
    return min((_bound(found, settings) for found in traces if found.status == "finished"), default=math.inf)


def _bound(found: Trace, settings: Settings) -> float:
    """Ω of a run. Where indices are negative its largest partial sum, so that it too is never ended by itself."""
    history = _history(found, settings)
    return float(history.partial_noise().max()) + history.bias()


def cut(found: Trace, run: RunPlan, settings: Settings, best: float, has_validation: bool) -> Trace:
    """A run ended where the shared rules end it with the best bound of all."""
    history = _history(found, settings)
    stop = first_stop(with_best([rule for rule in settings.rules if is_shared(rule)], best), history)
    if stop is None:
        return found
    bound, losses = lower_bound_of(run.method), history.loss[: stop.step // settings.every + 1]
    trace = closed_trace(
        run,
        settings,
        found.steps,
        found.epochs,
        found.final,
        -1,
        stop.step,
        0 if bound is None else int((losses < bound).sum()),
        has_validation,
    )
    return trace._replace(key=found.key)


def _history(found: Trace, settings: Settings) -> History:
    """The steps of a run that are known; the others are ∞."""
    known = int(np.isfinite(found.steps["loss"]).sum())
    loss, grad_sq, delta = (found.steps[name][:known] for name in ("loss", "grad_sq", "delta"))
    return History(loss, grad_sq, delta, found.key.lr * settings.schedule, settings.distance, settings.every)
