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
from surefoot.paper.figures import _network_panels as panels
from surefoot.paper.figures import title_of
from surefoot.plots.panels import Row, as_columns
from surefoot.plots.style import entitled, legend_below
from surefoot.theory import bounds
from surefoot.theory.arguments import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns
    from surefoot.study import Result

Results = Mapping[str, "Result"]

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

    @property
    def sweep(self) -> str:
        """Name of the sweep whose runs it shows."""
        return self.kind.sweep

    @property
    def kind(self) -> _Kind:
        """How the figure is made."""
        if self.name not in KINDS:
            raise unknown("figure", self.name, KINDS)
        return KINDS[self.name]

    @property
    def TITLE(self) -> str:
        """What the figure shows."""
        return f"{self.kind.title}, {presets.described(presets.sweep(self.sweep, self.preset))}"

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
        rows: list[Row] = [
            ("problem", presets.described(sweep), 0.0, -1, 0.0),
            _constant("reference", reference),
            *self.kind.rows(sweep, results),
        ]
        return as_columns(rows)

    def draw(self, columns: Columns) -> Figure:
        """The panels of the figure."""
        problem = str(columns["method"][columns["kind"] == "problem"][0])
        figure = self.kind.draw(columns)
        legend_below(figure, figure.axes)
        return entitled(figure, f"{title_of(self.name, self.kind.title)}\n{problem}", figure.axes)


class _Kind(NamedTuple):
    sweep: str
    title: str
    rows: Callable[[presets.Sweep, Results], Iterable[Row]]
    draw: Callable[[Columns], Figure]


def _over_rates(kind: str, curve: Curve, values: Floats) -> Iterable[Row]:
    return [(kind, curve.label, float(lr), -1, float(value)) for lr, value in zip(curve.lrs, values, strict=True)]


def _with_range(kind: str, curve: Curve, losses: Floats) -> Iterable[Row]:
    """A loss of every run as mean, smallest and largest over the seeds."""
    with np.errstate(over="ignore"):
        yield from _over_rates(kind, curve, losses.mean(axis=1))
    yield from _over_rates(f"{kind}-low", curve, losses.min(axis=1))
    yield from _over_rates(f"{kind}-high", curve, losses.max(axis=1))


def _constant(name: str, value: float) -> Row:
    return ("constant", name, 0.0, -1, float(value))


def _loss_and_bound(_: presets.Sweep, results: Results) -> Iterable[Row]:
    for curve in curves(results).values():
        yield from _with_range("loss", curve, curve.losses())
        yield from _over_rates("bound", curve, curve.bound())
    yield _constant("distance", _first(results).settings["distance"])


def _half(_: presets.Sweep, results: Results) -> Iterable[Row]:
    settings = _first(results).settings
    epoch = settings["epochs"] // 2
    for curve in curves(results).values():
        yield from _with_range("loss", curve, curve.losses("train_loss", epoch))
        yield from _over_rates("bound", curve, curve.bound(horizon=epoch * settings["steps_per_epoch"]))
    yield _constant("distance", settings["distance"])
    yield _constant("epochs", epoch)


def _validation(_: presets.Sweep, results: Results) -> Iterable[Row]:
    settings = _first(results).settings
    for curve in curves(results).values():
        yield from _with_range("loss", curve, curve.losses("valid_loss", settings["epochs"]))
        yield from _over_rates("bound", curve, curve.bound())
    yield _constant("distance", settings["distance"])


def _traces(kind: str, sweep: presets.Sweep, results: Results) -> Iterable[Row]:
    for curve in curves(results).values():
        steps = curve.result.dataset.step.values
        near = [rate for rate in sweep.rates if np.abs(np.log10(curve.lrs / rate)).min() < 0.3]
        for lr, values in dict(curve.trace(kind, wanted) for wanted in near).items():
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                yield kind, curve.label, lr, step + 1, value


def _many_distances(_: presets.Sweep, results: Results) -> Iterable[Row]:
    for curve in curves(results).values():
        for distance in DISTANCES:
            yield from _over_rates(f"bound D={distance:.3g}", curve, curve.bound(distance))


def _travel(sweep: presets.Sweep, results: Results) -> Iterable[Row]:
    yield from _traces("distance", sweep, results)
    for curve in curves(results).values():
        yield from _with_range("travel", curve, np.asarray(curve.of("distance").values[..., -1]))
    yield _constant("distance", _first(results).settings["distance"])


def _pool_bias(_: presets.Sweep, results: Results) -> Iterable[Row]:
    points = pool(results.values())
    distance = _first(results).settings["distance"]
    for curve in curves(results).values():
        bias = curve.bias(points)
        yield from _with_range("loss", curve, curve.losses())
        yield from _over_rates("bound", curve, bias + curve.noise)
        yield from _over_rates("bias-pool", curve, bias)
        yield from _over_rates("bias-distance", curve, bounds.distance_bias(curve.result.rates, distance))
    yield _constant("distance", distance)
    yield _constant("points", len(points.losses))


def _log_ngn(sweep: presets.Sweep, results: Results) -> Iterable[Row]:
    found = curves(results)
    for label in panels.MODELS:
        curve = found[label]
        yield from _with_range("loss", curve, curve.losses())
        yield from _over_rates("bound", curve, curve.bound())
        yield from _over_rates("polyak-units", curve, polyak_units(curve))
    yield from _traces("delta", sweep, {"constant": results["constant"]})
    yield _constant("distance", _first(results).settings["distance"])


def _losses(sweep: presets.Sweep, results: Results) -> Iterable[Row]:
    for part, result in results.items():
        for curve in curves({part: result}).values():
            yield (f"part {part}", curve.label, 0.0, -1, 0.0)
            yield from _with_range("loss", curve, curve.losses())
            yield from _with_range("valid", curve, curve.losses("valid_loss", result.settings["epochs"]))
    yield from _traces("delta", sweep, results)


def _first(results: Results) -> Result:
    return next(iter(results.values()))


KINDS = {
    name: _Kind(sweep, title, rows, draw)
    for name, sweep, title, rows, draw in (
        (
            "cifar10-loss-and-bound",
            "cifar10",
            "training loss and its bound, without and with warmup",
            _loss_and_bound,
            panels.loss_and_bound,
        ),
        (
            "cifar10-delta",
            "cifar10",
            "stability index over time, without and with warmup",
            partial(_traces, "delta"),
            panels.delta,
        ),
        ("cifar10-distances", "cifar10", "the bound for several guesses of D", _many_distances, panels.many_distances),
        ("cifar10-half", "cifar10", "training loss and its bound after half the epochs", _half, panels.half),
        ("cifar10-validation", "cifar10", "validation loss, and the bound", _validation, panels.validation),
        ("cifar10-travel", "cifar10", "how far runs get from their start, and the guess D", _travel, panels.travel),
        ("cifar10-pool-bias", "cifar10", "the bound without D, from visited points", _pool_bias, panels.pool_bias),
        ("cifar10-log-ngn", "cifar10", "LogNGN beside SPS and NGN", _log_ngn, panels.log_ngn),
        (
            "cifar10-geometries",
            "cifar10-geometries",
            "averaged gradients, Adam's geometry and Surefoot",
            _losses,
            panels.geometries,
        ),
        (
            "characters",
            "characters",
            "SGD, AdamW and NGNAdam over their rates, Surefoot over its cap",
            _losses,
            panels.characters,
        ),
    )
}
"""Every figure of a network study by its name."""
