"""The numbers that a monitor keeps of every step, and what is made of them: indices, rates, a labelled trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surefoot._base.arguments import one_of
from surefoot.monitor._counterfactual import counterfactual
from surefoot.rules import Floats, History
from surefoot.theory.models import Linear, Model

if TYPE_CHECKING:
    import xarray as xr

TRACKED = ("loss", "grad_sq", "step", "interval", "update_norm", "distance")
"""What can be asked for; the last three cost copies of the parameters and passes over them."""

COLUMNS = (
    "loss",
    "grad_sq",
    "decrease",  # q = Σ_g α_g‖g_g‖²
    "rate",  # of the first parameter group
    "size",  # of the first parameter group
    "delta",  # what the optimizer itself says
    "inner",  # ⟨g, Δ⟩ with Δ = x_t − x_{t+1}
    "update_sq",  # ‖Δ‖²
    "scaled_update_sq",  # Σ_g ‖Δ_g‖²/α_g
    "distance_sq",  # ‖x_t − x_1‖²
    "sample_sq",  # from here on: of a sample of the parameters. ‖g‖²
    "slope",  # ⟨g, Δ⟩
    "moved_sq",  # ‖Δ‖²
    "carried",  # ⟨g, Δ⟩ with the step before: the slope that is left at its end, on another batch
    "point_sq",  # ‖x_t‖²
    "away_sq",  # ‖x_t − x_1‖²
    "back",  # ⟨g, x_t − x_1⟩: above 0 where the way from the start leads uphill
)
SAMPLED = COLUMNS[-7:]

SOURCES = {
    "model": "the optimizer's own model",
    "linear": "exact: the step is x − α·g",
    "interval": "heuristic: midpoint of the interval around the foreign step, cut off at 0",
    "linear stand-in": "heuristic: that of plain SGD at this rate; track 'interval' for the step that was taken",
}
"""Where the index of the optimizer itself comes from."""


def named(rows: Floats) -> dict[str, Floats]:
    """Rows of numbers as columns with their names."""
    return dict(zip(COLUMNS, rows.T, strict=True))


def tracked(track: Any) -> tuple[str, ...]:
    """The names of what to track, each of them checked."""
    if isinstance(track, str) or not isinstance(track, Sequence) or not track:
        raise TypeError(f"track must be a sequence of {', '.join(TRACKED)}, got {track!r}")
    return tuple(one_of("track", name, TRACKED) for name in track)


class Interval(NamedTuple):
    """The interval in which the index of a foreign step lies."""

    low: Floats
    middle: Floats
    high: Floats


def foreign_interval(inner: Floats, scaled_update_sq: Floats) -> Interval:
    """δ of any step Δ = x_t − x_{t+1} that comes from a convex model lies in

        [‖Δ‖²/(2α), ⟨g, Δ⟩ − ‖Δ‖²/(2α)],    with the midpoint ½⟨g, Δ⟩

    The midpoint is exact for SGD and NGN. With momentum, weight decay or another metric there is no such model: the
    upper end can be below the lower one, the midpoint is cut off at 0, and all three are a heuristic.

    >>> foreign_interval(np.array([4.0]), np.array([4.0]))
    Interval(low=array([2.]), middle=array([2.]), high=array([2.]))
    """
    low = 0.5 * scaled_update_sq
    return Interval(low, np.maximum(0.5 * inner, 0.0), np.maximum(inner - low, 0.0))


def own_index(columns: Mapping[str, Floats], source: str) -> Floats:
    """δ_t of the optimizer itself, from one of ``SOURCES``."""
    if source == "model":
        return columns["delta"]
    if source == "interval":
        return foreign_interval(columns["inner"], columns["scaled_update_sq"]).middle
    # The linear model's δ needs no loss; one that was not measured must not look like divergence.
    loss = np.where(np.isnan(columns["loss"]), 0.0, columns["loss"])
    return np.asarray(counterfactual(Linear(), loss, columns["decrease"], columns["rate"]).delta)


def build_trace(
    columns: Mapping[str, Floats],
    history: History,
    models: Mapping[str, Model],
    track: tuple[str, ...],
    attributes: dict[str, Any],
) -> xr.Dataset:
    """The trace of :meth:`StabilityMonitor.trace`."""
    import xarray as xr

    variables: dict[str, Any] = {name: ("step", columns[name]) for name in ("loss", "grad_sq", "rate", "size")}
    variables |= {"delta": ("step", history.delta), "noise": ("step", history.partial_noise())}
    if "interval" in track:
        interval = foreign_interval(columns["inner"], columns["scaled_update_sq"])
        variables |= {"delta_low": ("step", interval.low), "delta_high": ("step", interval.high)}
    if "update_norm" in track:
        variables["update_norm"] = ("step", np.sqrt(columns["update_sq"]))
    if "distance" in track:
        variables["distance"] = ("step", np.sqrt(columns["distance_sq"]))
    steps = [counterfactual(model, columns["loss"], columns["decrease"], columns["rate"]) for model in models.values()]
    count = len(history.delta)
    for name in ("size", "delta"):
        values = np.stack([getattr(step, name) for step in steps]) if steps else np.empty((0, count))
        variables[f"counterfactual_{name}"] = (("algorithm", "step"), values)
    coordinates = {"step": np.arange(count) * history.every, "algorithm": list(models)}
    return xr.Dataset(variables, coordinates, attributes)


def planned_rates(seen: Floats, every: int, horizon: int | None, schedule: Floats | None) -> Floats:
    """The rates of all steps: those seen, then the schedule's, or the last one again and again.

    >>> planned_rates(np.array([0.1, 0.2]), 1, 4, None).tolist()
    [0.1, 0.2, 0.2, 0.2]
    """
    steps = max(horizon or 0, (len(seen) - 1) * every + 1, 1)
    done = np.repeat(seen, every)[:steps]
    if not len(done):
        return np.ones(steps)
    future = np.full(steps - len(done), done[-1])
    if schedule is not None and len(done) < len(schedule):
        largest = every * int(np.argmax(schedule[: len(done) : every]))  # not the first: a warmup may start at 0
        if schedule[largest] > 0:
            future = schedule[len(done) :] * (done[largest] / schedule[largest])
    return np.concatenate([done, future])


def peak_rate(planned: Floats, seen: Floats, group: Mapping[str, Any]) -> float:
    """The largest rate of the run: of those planned, or the one that a warmup is on its way to.

    torch's schedulers leave the latter in the groups, as ``initial_lr`` or ``max_lr``. Far larger ones do not count:
    some schedules start from a rate of 1 and multiply it by the real one.

    >>> peak_rate(np.array([0.1, 0.2, 0.2]), np.array([0.1, 0.2]), {"initial_lr": 1.0})
    1.0
    """
    largest = float(np.max(planned))
    for name in ("initial_lr", "max_lr"):
        goal = float(group.get(name, 0.0))
        if len(seen) and seen[0] < seen[-1] and largest < goal < 20 * largest:
            largest = goal
    return largest
