"""How tight the bounds of whole runs are: worst cases of subgradient descent against Ω_last and Ω_avg.

Left and middle: bound (dashed) and worst case (solid) over the rate, for the longest run. Right: their ratio for
constant rates and several T. Ω_avg is exact for constant rates from D/(G√T) on, Ω_last at none of these rates. Needs
``surefoot[pep]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot import pep
from surefoot.plots.methods import BLUE, OCHRE, PURPLE, VERMILION
from surefoot.plots.style import key, legend_below, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "how tight the bounds of whole runs are: worst cases of subgradient descent"
ITERATES = {"last-iterate": "last iterate", "average-iterate": "average iterate"}
COLOURS = {"constant": BLUE, "inverse_sqrt": OCHRE, "linear": VERMILION}
SHAPES = {"constant": "o", "inverse_sqrt": "s", "linear": "^"}
MARKERS = ("o", "s", "^")


def data() -> Columns:
    """Worst case and bound for every iterate, horizon, schedule and rate (G = D = 1)."""
    results = [row.verified() for row in pep.run(ITERATES, progress=False)]
    parameters = {
        name: np.array([result.parameters[name] for result in results]) for name in ("steps", "schedule", "lr")
    }
    return {
        "iterate": np.array([result.statement for result in results]),
        **parameters,
        "worst": np.array([result.worst_case for result in results]),
        "bound": np.array([result.theory for result in results]),
        "ratio": np.array([result.ratio for result in results]),
    }


def draw(columns: Columns) -> Figure:
    """Two panels with the longest run's bounds and worst cases, one with the ratios for constant rates."""
    figure, axes = new_figure(3, width=4.0)
    factor = columns["lr"] * np.sqrt(columns["steps"])
    horizons = np.unique(columns["steps"])
    for ax, (iterate, title) in zip(axes, ITERATES.items(), strict=False):
        for schedule, colour in COLOURS.items():
            rows = _rows(columns, iterate=iterate, schedule=schedule, steps=horizons[-1])
            ax.plot(factor[rows], columns["bound"][rows], "--", color=colour, linewidth=1.0)
            label = f"{schedule.replace('_', ' ')} rate"
            shape = SHAPES[schedule]
            ax.plot(factor[rows], columns["worst"][rows], color=colour, marker=shape, markersize=4, label=label)
        ax.set(title=f"{title}, T = {horizons[-1]}", ylabel="f − f⋆", ylim=(0, None))
    key(axes[0], "worst case", linestyle="-")
    key(axes[0], "bound", linestyle="--")
    for iterate, colour in zip(ITERATES, ("black", PURPLE), strict=True):
        for horizon, marker in zip(horizons, MARKERS, strict=True):
            rows = _rows(columns, iterate=iterate, schedule="constant", steps=horizon)
            label = f"{iterate.replace('-', ' ')}, T = {horizon}"
            axes[2].plot(factor[rows], columns["ratio"][rows], marker + "-", color=colour, markersize=4, label=label)
    axes[2].set(title="constant rate: 1 is tight", ylabel="bound / worst case", ylim=(0.95, None))
    for ax in axes:
        ticks = np.unique(factor.round(6))
        ax.set(xscale="log", xlabel="learning rate α, in D/(G√T)")
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    legend_below(figure, axes)
    return figure


def _rows(columns: Columns, **wanted: Any) -> np.ndarray[Any, Any]:
    return np.asarray(np.logical_and.reduce([columns[name] == value for name, value in wanted.items()]))
