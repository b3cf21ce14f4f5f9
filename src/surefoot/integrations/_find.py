"""What the finders of all frameworks share: checks, the search, and a bar on the terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from surefoot import _checks
from surefoot.integrations._trainings import Trainings, check_readable
from surefoot.search import Found, tune

Rates = float | Iterable[float] | Mapping[str, float] | None

OPTIONS = ("extend", "max_states", "maximize", "refine", "seeds", "tolerance")
"""Arguments of :func:`~surefoot.search.tune` that a finder takes."""
_PATIENCE = 2.0
"""Seconds after which a bar is shown."""


def check_arguments(
    lrs: Rates, horizon: int | None, metric: str | None, options: Mapping[str, Any]
) -> list[float] | None:
    """Refuse what cannot be right before anything starts; the rates."""
    for name in options:
        if name == "processes":
            if options[name] not in (None, 1):
                raise ValueError(f"processes must be 1 inside a trainer, which has one model, got {options[name]!r}")
        elif name not in OPTIONS:
            raise TypeError(f"find_lr takes the options {', '.join(OPTIONS)} of surefoot.tune, got {name!r}")
    if horizon is not None:
        _checks.whole("horizon", horizon, 1)
    if metric is not None and not isinstance(metric, str):
        raise TypeError(f"evaluate must be the name of a metric, got {metric!r}")
    if options.get("maximize") and metric is None:
        raise ValueError("maximize=True needs evaluate=, the name of the metric that is to be large")
    return None if lrs is None else _checks.rising_rates(lrs)


def check_module(module: nn.Module) -> None:
    """Refuse parameters that have no shape yet."""
    lazy = [name for name, p in module.named_parameters() if nn.parameter.is_lazy(p)]
    if lazy:
        raise ValueError(
            f"the model must know the shape of its parameters, {lazy[0]!r} is lazy: run a batch through it"
        )


def horizon_of(horizon: int | None, planned: float, how: str) -> int:
    """The steps of a training: those that the trainer plans, or fewer."""
    if horizon is None:
        if not 0 < planned < math.inf:
            raise ValueError(f"horizon must be given: the trainer does not say how many steps it trains. {how}")
        return int(planned)
    if 0 < planned < horizon:
        raise ValueError(f"horizon must be at most the {planned:g} steps that the trainer plans, got {horizon}")
    return horizon


def search(
    trainings: Trainings,
    rates: list[float] | None,
    horizon: int,
    options: Mapping[str, Any],
    *,
    progress: bool | Callable[[int], None] | None,
    notes: Iterable[str] = (),
) -> Found:
    """Tune the trainings' rate."""
    check_readable(trainings.open_data)
    with _reporter(progress, horizon) as tell:
        found = tune(trainings, rates, horizon, progress=tell, **{**options, "processes": 1})
    # Nothing is measured for a bound inside a trainer, and a run would keep the trainer's model.
    return replace(found, bound=math.nan, run=None, warnings=(*found.warnings, *notes))


@contextmanager
def _reporter(progress: bool | Callable[[int], None] | None, horizon: int) -> Iterator[Callable[[int], None]]:
    """A function that is told the steps taken; by default a line on the terminal if it takes more than two seconds."""
    if callable(progress):
        yield progress
        return
    if progress is False:
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("finding the rate: {task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("")
    began, shown = time.monotonic(), False

    def tell(steps: int) -> None:
        nonlocal shown
        if not shown and (progress or time.monotonic() - began > _PATIENCE):
            bar.start()
            shown = True
        bar.update(task, description=f"{steps} steps, {steps / horizon:.1f} trainings")

    try:
        yield tell
    finally:
        if shown:
            bar.stop()
