"""What follows from a monitor's numbers: the steps of other models, the optimizer's index, the rates of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from surefoot._base.arguments import one_of, parse_call
from surefoot.rules import Floats
from surefoot.theory.models import NAMED, Linear, Model, Step

SOURCES = {
    "model": "the optimizer's own model",
    "linear": "exact: the step is x − α·g",
    "linear stand-in": "heuristic: that of plain SGD at this rate",
}
"""Where the index of the optimizer itself comes from."""


def parse_models(models: Any, lower_bound: float) -> dict[str, Model]:
    """Models by the names under which a trace shows them; ``lower_bound`` is C of named ones without one of their own.

    >>> parse_models(["sgd", "sps"], lower_bound=-2.0)
    {'sgd': Linear(), 'sps': Truncated(lower_bound=-2.0)}
    """
    if isinstance(models, str | Model) or not isinstance(models, Iterable):
        raise TypeError(f"models must be a sequence of names or models, got {models!r}")
    parsed: dict[str, Model] = {}
    for spec in models:
        name, model = _parse(spec, lower_bound)
        if name in parsed:
            raise ValueError(f"models must be distinct, got {name!r} twice")
        parsed[name] = model
    return parsed


def _parse(spec: Any, lower_bound: float) -> tuple[str, Model]:
    if isinstance(spec, Model):
        names = [name for name, kind in NAMED.items() if type(spec) is kind]
        return (names[0] if names else type(spec).__name__.lower()), spec
    if not isinstance(spec, str):
        raise TypeError(f"models must hold names or models, got {spec!r}")
    name, options = parse_call(spec)
    one_of("model", name, NAMED)
    if name != "sgd":
        options.setdefault("lower_bound", lower_bound)
    try:
        return spec, NAMED[name](**options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"model {spec!r}: {error}") from None


def counterfactual(model: Model, loss: Floats, decrease: Floats, rate: Floats) -> Step:
    """Size and δ of a model's step where the linear model promises the decrease q = Σ_g α_g‖g_g‖² (= α‖g‖²).

    The size is that of the first parameter group, whose rate is ``rate``. What was not measured stays NaN.

    >>> counterfactual(NAMED["ngn"](), np.array([1.0]), np.array([2.0]), np.array([3.0]))
    Step(size=array([1.5]), delta=array([0.5]))
    """
    missing = np.isnan(loss) | np.isnan(decrease) | np.isnan(rate)
    step = model.step(np.where(missing, 1.0, loss), np.where(missing, 1.0, decrease), np.ones_like(rate))
    return Step(np.where(missing, np.nan, step.size * rate), np.where(missing, np.nan, step.delta))


def own_index(columns: Mapping[str, Floats], source: str) -> Floats:
    """δ_t of the optimizer itself, from one of ``SOURCES``."""
    if source == "model":
        return columns["delta"]
    # The linear model's δ needs no loss; one that was not measured must not look like divergence.
    loss = np.where(np.isnan(columns["loss"]), 0.0, columns["loss"])
    return np.asarray(counterfactual(Linear(), loss, columns["decrease"], columns["rate"]).delta)


def planned_rates(measured: Floats, horizon: int | None, schedule: Floats | None) -> Floats:
    """The rates of all steps: those so far, then the schedule's, or the last one again and again.

    >>> planned_rates(np.array([0.1, 0.2]), 4, None).tolist()
    [0.1, 0.2, 0.2, 0.2]
    """
    done = len(measured)
    if not done:
        return np.ones(horizon or 1)
    future = np.full(max((horizon or 0) - done, 0), measured[-1])
    if schedule is not None and done < len(schedule):
        largest = int(np.argmax(schedule[:done]))  # not the first: a warmup may start at 0
        if schedule[largest] > 0:
            future = schedule[done:] * (measured[largest] / schedule[largest])
    return np.concatenate([measured, future])


def peak_rate(planned: Floats, measured: Floats, goals: Iterable[float]) -> float:
    """The largest rate of the run: of those planned, or the one that a warmup is on its way to.

    torch's schedulers leave the latter in the groups, as ``initial_lr`` or ``max_lr``. Far larger ones do not count:
    some schedules start from a rate of 1 and multiply it by the real one.

    >>> peak_rate(np.array([0.1, 0.2, 0.2]), np.array([0.1, 0.2]), [1.0])
    1.0
    """
    largest = float(np.max(planned))
    for goal in goals:
        if len(measured) and measured[0] < measured[-1] and largest < goal < 20 * largest:
            largest = goal
    return largest
