"""The figures of the convex experiments: loss and bound over the rate, δ_t over time, and the bound without D.

Left: the paper's picture, mean loss f(x_T) over the data orders (solid, with their range) and its bound f⋆ + Ω_T with
the paper's D (dashed). Middle: E[δ_t] over time at three rates. Right: every method, with the Moreau envelope in place
of D²/(2S₁), which bounds f itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.paper.experiments import Experiment, constants_of, experiment, run
from surefoot.plots.panels import Row, as_columns, constant, draw_rates, draw_traces, methods_of
from surefoot.plots.style import legend_below, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns
    from surefoot.study import Result


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
        return self.experiment.title

    def data(self) -> Columns:
        """A long table: losses, bounds, indices and constants of the experiment."""
        result = run(self.name, self.folder)
        rows: list[Row] = []
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
        return as_columns(rows)

    def _indices(self, result: Result) -> Iterable[Row]:
        for lr in self.experiment.rates:
            chosen = result.dataset.delta.sel(lr=lr, method="nearest").mean("seed")
            for method in self.experiment.shown:
                values = chosen.sel(algorithm=method).values
                for step, value in zip(result.dataset.step.values.tolist(), values.tolist(), strict=True):
                    yield "delta", method, float(chosen.lr), step, value

    def draw(self, columns: Columns) -> Figure:
        """Three panels."""
        figure, (left, middle, right) = new_figure(3)
        start, lowest = constant(columns, "initial_loss"), constant(columns, "optimal_loss")
        draw_rates(left, columns, self.experiment.shown, start, lowest=lowest)
        draw_rates(right, columns, methods_of(columns, "loss"), start, bound="bound-envelope")
        draw_traces(middle, columns, self.experiment.shown)
        distance = self.experiment.settings["distance"]
        zero = abs(lowest) < 1e-9 * start  # Ω bounds f − f⋆
        words = f"Ω (D = {distance:g})" if zero else f"f⋆ + Ω (f⋆ = {lowest:.3g}, D = {distance:g})"
        left.set_title(f"loss, and its bound {words}")
        middle.set_title("mean over the data orders, at three rates")
        named = (constant(columns, name) for name in ("sigma_sq", "standard_error", "lower_bound_error"))
        sigma, error, gap = (round(value, 12) + 0.0 for value in named)  # what is zero up to rounding is zero
        right.set_title(f"all methods, bound without D\nσ² = {sigma:.3g} ± {error:.1g}, $ε_{{lb}}$ = {gap:.3g}")
        left.set_ylabel("loss at the last iterate, $f(x_T)$")
        middle.set_ylabel("stability index, E[$δ_t$]")
        right.set_ylabel("loss at the last iterate, $f(x_T)$")
        legend_below(figure, (left, right, middle))
        return figure


def _table(kind: str, result: Result, values: Any) -> list[Row]:
    return [
        (kind, method, float(lr), -1, float(values[row, column]))
        for row, method in enumerate(result.algorithms)
        for column, lr in enumerate(result.lrs)
    ]


def _constants(name: str) -> list[Row]:
    found = constants_of(name)
    named = {
        "sigma_sq": found.interpolation_constant,
        "lower_bound_error": found.lower_bound_error,
        "standard_error": found.standard_error,
    }
    return [("constant", key, 0.0, -1, value) for key, value in named.items()]
