"""The figures of the convex experiments: loss and bound over the rate, δ_t over time, and the bound without D.

Left: the paper's picture, mean loss f(x_T) over the data orders (solid, with their range) and Ω_T with the paper's D
(dashed). Middle: E[δ_t] over time at three rates. Right: every method, with the Moreau envelope in place of D²/(2S₁).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.figures._style import GREY, colour_of, label_of, new_figure
from surefoot.figures.experiments import Experiment, constants_of, experiment, run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from surefoot.figures import Columns
    from surefoot.study import Result

COLUMNS = ("kind", "method", "lr", "step", "value")


@dataclass(frozen=True)
class SweepFigure:
    """The figure of one experiment; runs are kept in a folder if one is given."""

    name: str
    folder: Path | None = None

    @property
    def experiment(self) -> Experiment:
        """The study behind the figure."""
        return experiment(self.name)

    @property
    def TITLE(self) -> str:
        """What the figure shows."""
        return f"{self.experiment.title}: loss, bound and index"

    def data(self) -> Columns:
        """A long table: losses, bounds, indices and constants of the experiment."""
        result = run(self.name, self.folder)
        rows: list[tuple[str, str, float, int, float]] = []
        losses = result.dataset.last_loss
        with np.errstate(over="ignore"):
            for kind, values in (
                ("loss", losses.mean("seed")),
                ("loss-low", losses.min("seed")),
                ("loss-high", losses.max("seed")),
                ("bound", result.bound().total),
                ("bound-envelope", result.bound(bias="envelope").total),
                ("bound-safe", result.bound(index="safe").total),
            ):
                rows += _table(kind, result, values.values)
            rows += self._indices(result)
        rows += _constants(self.name)
        rows.append(("constant", "initial_loss", 0.0, -1, result.initial_loss))
        rows.append(("constant", "optimal_loss", 0.0, -1, result.optimal_loss))
        return {name: np.array(column) for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True)}

    def _indices(self, result: Result) -> Iterable[tuple[str, str, float, int, float]]:
        for lr in self.experiment.rates:
            chosen = result.dataset.delta.sel(lr=lr, method="nearest").mean("seed")
            for method in self.experiment.shown:
                values = chosen.sel(algorithm=method).values
                for step, value in zip(result.dataset.step.values.tolist(), values.tolist(), strict=True):
                    yield "delta", method, float(chosen.lr), step, value

    def draw(self, columns: Columns) -> Figure:
        """Three panels."""
        figure, (left, middle, right) = new_figure(3)
        start = _constant(columns, "initial_loss")
        every = list(dict.fromkeys(columns["method"][columns["kind"] == "loss"].tolist()))
        _draw_rates(left, columns, self.experiment.shown, "bound", start)
        _draw_rates(right, columns, every, "bound-envelope", start)
        self._draw_indices(middle, columns)
        left.set_title(f"{self.experiment.title}, D = {self.experiment.settings['distance']:g}", fontsize=9)
        middle.set_title("E[$δ_t$] at three rates", fontsize=9)
        named = (_constant(columns, name) for name in ("sigma_sq", "standard_error", "lower_bound_error"))
        sigma, error, gap = (round(value, 12) + 0.0 for value in named)  # what is zero up to rounding is zero
        right.set_title(f"no D; σ² = {sigma:.3g} ± {error:.1g}, $ε_{{lb}}$ = {gap:.3g}", fontsize=9)
        left.set_ylabel("$f(x_T)$ (solid), $Ω_T$ (dashed)")
        right.set_ylabel("$f(x_T)$ (solid), envelope + noise (dashed)")
        return figure

    def _draw_indices(self, ax: Axes, columns: Columns) -> None:
        chosen = columns["kind"] == "delta"
        rates = np.unique(columns["lr"][chosen])
        finite = columns["value"][chosen & np.isfinite(columns["value"]) & (columns["value"] > 0)]
        top = min(finite.max(), 1e6 * np.median(finite))
        for method in self.experiment.shown:
            for lr, style in zip(rates, (":", "--", "-"), strict=True):
                mine = chosen & (columns["method"] == method) & (columns["lr"] == lr)
                values = _drawable(columns["value"][mine], top)
                label = label_of(method) if style == "-" else None
                ax.plot(columns["step"][mine], values, style, color=colour_of(method), linewidth=1.0, label=label)
        ax.set(
            yscale="log",
            ylim=(max(finite.min(), 1e-12, 1e-6 * np.median(finite)), top),
            xlabel="step t",
            ylabel="stability index",
        )
        for lr, style in zip(rates, (":", "--", "-"), strict=True):
            ax.plot([], [], style, color=GREY, linewidth=1.0, label=f"α = {lr:.3g}")
        ax.legend(frameon=False, fontsize=7)


def _draw_rates(ax: Axes, columns: Columns, methods: Iterable[str], bound: str, start: float) -> None:
    """Loss with its range over the seeds, and a bound; what is off the scale or diverged sits at the upper edge."""
    top = 30.0 * start
    shown = [start]
    for method in methods:
        series = {
            kind: columns["value"][(columns["kind"] == kind) & (columns["method"] == method)]
            for kind in ("loss", "loss-low", "loss-high", bound)
        }
        lrs = columns["lr"][(columns["kind"] == "loss") & (columns["method"] == method)]
        colour = colour_of(method)
        inside = series["loss"] <= top
        line: dict[str, Any] = {"color": colour, "markersize": 2.5, "linewidth": 1.4, "label": label_of(method)}
        ax.plot(lrs, _drawable(series["loss"], top), "-o", **line)
        if not inside.all():  # an empty line that is not clipped would upset the layout
            ax.plot(lrs[~inside], np.full((~inside).sum(), top), "o", color=colour, fillstyle="none", clip_on=False)
        low, high = (np.where(inside, series[kind], np.nan) for kind in ("loss-low", "loss-high"))
        ax.fill_between(lrs, np.maximum(low, 1e-12 * start), high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(lrs, _drawable(series[bound], top), "--", color=colour, linewidth=1.1)
        shown += [*series["loss"][inside & (series["loss"] > 0)], *series[bound][series[bound] <= top]]
    ax.axhline(start, color=GREY, linestyle=":", linewidth=0.8)
    ax.set(xscale="log", yscale="log", ylim=(max(min(shown) / 2, 1e-9 * start), top), xlabel="learning rate α")
    ax.legend(frameon=False, fontsize=7)


def _drawable(values: Any, top: float) -> Any:
    """Values for a logarithmic axis that ends at ``top``: a line leaves the picture, but not the float range."""
    return np.where(np.isfinite(values) & (values > 0), np.minimum(values, 1e3 * top), np.nan)


def _table(kind: str, result: Result, values: Any) -> list[tuple[str, str, float, int, float]]:
    return [
        (kind, method, float(lr), -1, float(values[row, column]))
        for row, method in enumerate(result.algorithms)
        for column, lr in enumerate(result.lrs)
    ]


def _constants(name: str) -> list[tuple[str, str, float, int, float]]:
    found = constants_of(name)
    named = {
        "sigma_sq": found.interpolation_constant,
        "lower_bound_error": found.lower_bound_error,
        "standard_error": found.standard_error,
    }
    return [("constant", key, 0.0, -1, value) for key, value in named.items()]


def _constant(columns: Columns, name: str) -> float:
    return float(columns["value"][(columns["kind"] == "constant") & (columns["method"] == name)][0])
