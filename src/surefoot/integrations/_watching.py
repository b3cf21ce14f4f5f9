"""A monitor inside a trainer: attaching it, asking it for an end, and its numbers with names for all loggers."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from surefoot.monitor import StabilityMonitor, State, Verdict

if TYPE_CHECKING:
    import xarray as xr

_log = logging.getLogger(__name__)

_STATES = {State.TOO_SMALL: -1.0, State.HOLDS: 0.0, State.AT_THE_EDGE: 1.0, State.TOO_LARGE: 2.0}
"""The verdict as a number: from too small to too large."""


def by_step(trace: xr.Dataset) -> Iterator[tuple[int, dict[str, float]]]:
    """The numbers of every step under names such as ``stability/size/sps``; those that are not finite are left out."""
    columns = {name: values.values.tolist() for name, values in trace.data_vars.items() if values.dims == ("step",)}
    for algorithm in trace.algorithm.values.tolist():
        method = trace.sel(algorithm=algorithm)
        for name in ("size", "delta"):
            columns[f"{name}/{algorithm}"] = method[f"counterfactual_{name}"].values.tolist()
    for place, step in enumerate(trace.step.values.tolist()):
        numbers = {f"stability/{name}": values[place] for name, values in columns.items()}
        yield step, {name: value for name, value in numbers.items() if math.isfinite(value)}


def of_verdict(verdict: Verdict) -> dict[str, float]:
    """The verdict as numbers: ``stability/state`` is −1 for too small, 0 holds, 1 at the edge, 2 too large."""
    numbers = {} if verdict.state is State.UNKNOWN else {"stability/state": _STATES[verdict.state]}
    if verdict.lr_range is not None:
        numbers["stability/lr_low"], numbers["stability/lr_high"] = verdict.lr_range
    return numbers


def latest(monitor: StabilityMonitor) -> dict[str, float]:
    """The numbers of the last step that was looked at, and the verdict."""
    last: Any = monitor.trace().isel(step=slice(-1, None))
    return {name: value for _, row in by_step(last) for name, value in row.items()} | of_verdict(monitor.verdict())


def attached(optimizer: Optimizer, steps: float, options: Mapping[str, Any]) -> StabilityMonitor:
    """A monitor of the optimizer; its horizon are the steps that a trainer plans, unless ``options`` say more."""
    planned = {"horizon": int(steps)} if "schedule" not in options and 0 < steps < math.inf else {}
    return StabilityMonitor(optimizer, **{**planned, **options}).attach()


def stops(monitor: StabilityMonitor) -> bool:
    """Whether a stop rule holds; the log is told."""
    if monitor.stopped is not None:
        _log.warning("training ends at step %d: %s", monitor.steps, monitor.stopped.reason)
    return monitor.should_stop
