"""The figures of the network studies: those of the paper on CIFAR-10, and some of our own.

All figures of a sweep are drawn from the same runs. In every table ``step`` counts from 1, as t does in the paper, and
is −1 where a number belongs to a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from surefoot.paper import presets
from surefoot.paper.curves import Curve, Floats, curves, polyak_units, pool
from surefoot.paper.figures import CIFAR10, title_of
from surefoot.paper.figures import _network_panels as panels
from surefoot.plots.panels import Row, as_columns
from surefoot.plots.style import entitled, legend_below
from surefoot.theory import bounds
from surefoot.theory.arguments import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns
    from surefoot.study import Result

Results = Mapping[str, "Result"]
Rows = Iterable[Row]

DISTANCES = (1.0, 10**0.5, 10.0, 10**1.5, 100.0)
"""Values of D for the paper's ablation, D ∈ [1, 100]."""


@dataclass(frozen=True)
class NetworkFigure:
    """One figure of a sweep; runs are kept in a folder if one is given, and options are those of ``presets.sweep``."""

    name: str
    folder: Path | None = None
    preset: str = presets.DEFAULT
    device: str = "cpu"
    data_path: str | None = None

    def __post_init__(self) -> None:
        if self.name not in KINDS:
            raise unknown("figure", self.name, KINDS)

    @property
    def sweep(self) -> str:
        """Name of the sweep whose runs it shows."""
        return "cifar10" if self.name in CIFAR10 else self.name

    @property
    def TITLE(self) -> str:
        """What the figure shows."""
        return f"{KINDS[self.name].title}, {presets.described(presets.sweep(self.sweep, self.preset))}"

    def data(self) -> Columns:
        """A long table, from runs that are computed if the folder does not hold them."""
        return self.table(self.run())

    def run(self, progress: presets.Progress | None = None) -> dict[str, Result]:
        """The results of the figure's sweep, which other figures of the same sweep can use as well."""
        return presets.run(
            self.sweep, self.preset, self.folder, progress=progress, device=self.device, data=self.data_path
        )

    def table(self, results: Results) -> Columns:
        """The table from the results of the sweep."""
        sweep = presets.sweep(self.sweep, self.preset)
        reference = _first(results).initial_loss if sweep.reference is None else sweep.reference
        described: Row = ("problem", presets.described(sweep), 0.0, -1, 0.0)
        return as_columns([described, _constant("reference", reference), *KINDS[self.name].rows(sweep, results)])

    def draw(self, columns: Columns) -> Figure:
        """The panels of the figure."""
        problem = str(columns["method"][columns["kind"] == "problem"][0])
        figure = KINDS[self.name].draw(columns)
        legend_below(figure, figure.axes)
        return entitled(figure, f"{title_of(self.name, KINDS[self.name].title)}\n{problem}", figure.axes)


def _over_rates(kind: str, curve: Curve, values: Floats) -> Rows:
    return [(kind, curve.label, float(lr), -1, float(value)) for lr, value in zip(curve.lrs, values, strict=True)]


def _with_range(kind: str, curve: Curve, losses: Floats) -> Rows:
    """A loss of every run as mean, smallest and largest over the seeds."""
    with np.errstate(over="ignore"):
        yield from _over_rates(kind, curve, losses.mean(axis=1))
    yield from _over_rates(f"{kind}-low", curve, losses.min(axis=1))
    yield from _over_rates(f"{kind}-high", curve, losses.max(axis=1))


def _constant(name: str, value: float) -> Row:
    return ("constant", name, 0.0, -1, float(value))


def _distance(results: Results) -> Row:
    return _constant("distance", _first(results).settings["distance"])


def _first(results: Results) -> Result:
    return next(iter(results.values()))


def _loss_and_bound(loss: str, _: presets.Sweep, results: Results) -> Rows:
    epochs = _first(results).settings["epochs"] if loss == "valid_loss" else None
    for curve in curves(results).values():
        yield from _with_range("loss", curve, curve.losses(loss, epochs))
        yield from _over_rates("bound", curve, curve.bound())
    yield _distance(results)


def _half(_: presets.Sweep, results: Results) -> Rows:
    settings = _first(results).settings
    epoch = settings["epochs"] // 2
    for curve in curves(results).values():
        yield from _with_range("loss", curve, curve.losses("train_loss", epoch))
        yield from _over_rates("bound", curve, curve.bound(horizon=epoch * settings["steps_per_epoch"]))
    yield _distance(results)
    yield _constant("epochs", epoch)


def _traces(kind: str, sweep: presets.Sweep, results: Results) -> Rows:
    for curve in curves(results).values():
        steps = curve.result.dataset.step.values
        near = [rate for rate in sweep.rates if np.abs(np.log10(curve.lrs / rate)).min() < 0.3]
        for lr, values in dict(curve.trace(kind, wanted) for wanted in near).items():
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                yield kind, curve.label, lr, step + 1, value


def _many_distances(_: presets.Sweep, results: Results) -> Rows:
    for curve in curves(results).values():
        for distance in DISTANCES:
            yield from _over_rates(f"bound D={distance:.3g}", curve, curve.bound(distance))


def _travel(sweep: presets.Sweep, results: Results) -> Rows:
    yield from _traces("distance", sweep, results)
    for curve in curves(results).values():
        yield from _with_range("travel", curve, np.asarray(curve.of("distance").values[..., -1]))
    yield _distance(results)


def _pool_bias(_: presets.Sweep, results: Results) -> Rows:
    points = pool(results.values())
    distance = _first(results).settings["distance"]
    for curve in curves(results).values():
        bias = curve.bias(points)
        yield from _with_range("loss", curve, curve.losses())
        yield from _over_rates("bound", curve, bias + curve.noise)
        yield from _over_rates("bias-pool", curve, bias)
        yield from _over_rates("bias-distance", curve, bounds.distance_bias(curve.result.rates, distance))
    yield _distance(results)
    yield _constant("points", len(points.losses))


def _log_ngn(sweep: presets.Sweep, results: Results) -> Rows:
    found = curves(results)
    for label in panels.MODELS:
        curve = found[label]
        yield from _with_range("loss", curve, curve.losses())
        yield from _over_rates("bound", curve, curve.bound())
        yield from _over_rates("polyak-units", curve, polyak_units(curve))
    yield from _traces("delta", sweep, {"constant": results["constant"]})
    yield _distance(results)


def _losses(sweep: presets.Sweep, results: Results) -> Rows:
    for part, result in results.items():
        for curve in curves({part: result}).values():
            yield (f"part {part}", curve.label, 0.0, -1, 0.0)
            yield from _with_range("loss", curve, curve.losses())
            yield from _with_range("valid", curve, curve.losses("valid_loss", result.settings["epochs"]))
    yield from _traces("delta", sweep, results)


class Kind(NamedTuple):
    """How a figure is made: its title, the rows of its table, and how they are drawn."""

    title: str
    rows: Callable[[presets.Sweep, Results], Rows]
    draw: Callable[[Columns], Figure]


KINDS = {
    "cifar10-loss-and-bound": Kind(
        "training loss and its bound, without and with warmup",
        partial(_loss_and_bound, "last_loss"),
        partial(panels.two_sides, "training loss at the last iterate, $f(x_T)$"),
    ),
    "cifar10-delta": Kind(
        "stability index over time, without and with warmup", partial(_traces, "delta"), panels.delta
    ),
    "cifar10-distances": Kind("the bound for several guesses of D", _many_distances, panels.many_distances),
    "cifar10-half": Kind("training loss and its bound after half the epochs", _half, panels.half),
    "cifar10-validation": Kind(
        "validation loss, and the bound",
        partial(_loss_and_bound, "valid_loss"),
        partial(panels.two_sides, "validation loss at the end"),
    ),
    "cifar10-travel": Kind("how far runs get from their start, and the guess D", _travel, panels.travel),
    "cifar10-pool-bias": Kind("the bound without D, from visited points", _pool_bias, panels.pool_bias),
    "cifar10-log-ngn": Kind("LogNGN beside SPS and NGN", _log_ngn, panels.log_ngn),
    "cifar10-geometries": Kind("averaged gradients, Adam's geometry and Surefoot", _losses, panels.geometries),
    "characters": Kind("SGD, AdamW and NGNAdam over their rates, Surefoot over its cap", _losses, panels.characters),
}
"""Every figure of a network study by its name."""
