"""Worst cases of semidefinite programs beside the theory. These figures need ``surefoot[pep]``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot import pep
from surefoot.paper.figures._recipe import Recipe
from surefoot.plots.methods import BLUE, GREEN, GREY, MARKERS, OCHRE, PURPLE, VERMILION
from surefoot.plots.panels import Columns, as_columns
from surefoot.plots.style import key, new_figure
from surefoot.theory import bounds, models

if TYPE_CHECKING:
    from matplotlib.figure import Figure


GAP = 1.0


def indices_data() -> Columns:
    """Λ(α) for every G and α, its bounds δ_SGD and ``gap`` (that of the function found), and the exact formula."""
    results = [row.verified() for row in pep.run(["spp"], progress=False)]
    lipschitz, lr = (np.array([float(result.parameters[name]) for result in results]) for name in ("lipschitz", "lr"))
    return {
        "lipschitz": lipschitz,
        "lr": lr,
        "worst": np.array([result.worst_case for result in results]),
        "exact": bounds.worst_delta_spp(GAP, lipschitz**2, lr),
        "gap": np.array([result.instance["gap"] for result in results]),
        "delta_sgd": models.Linear().step(GAP, lipschitz**2, lr).delta,
    }


def indices(columns: Columns) -> Figure:
    """Fig. 2 (right): Λ(α), the largest index of SPP that a semidefinite program finds, beside its exact formula.

    Blue is the program's value, grey δ_SGD = ½αG², green f(x) − inf f of the function found, black the formula. Left of
    the kink the worst case does not fix the green value: any in the shaded range gives the same Λ.
    """
    constants = np.unique(columns["lipschitz"])
    figure, axes = new_figure(len(constants), width=3.6)
    for ax, lipschitz in zip(axes, constants, strict=True):
        rows = columns["lipschitz"] == lipschitz
        lr = columns["lr"][rows]
        dense = np.geomspace(lr[0], lr[-1], 400)
        sgd = models.Linear().step(GAP, lipschitz**2, dense).delta
        smallest_gap = np.minimum(2.0 * sgd, GAP)  # a smaller gap makes the index smaller
        same = "f(x) − inf f with the same worst case"
        ax.fill_between(dense, smallest_gap, GAP, color=GREEN, alpha=0.15, linewidth=0, label=same)
        ax.plot(dense, sgd, color=GREY, label="bound: δ of SGD, ½αG²")
        ax.plot(lr, columns["gap"][rows], "--", color=GREEN, label="bound: f(x) − inf f of the worst case")
        exact = bounds.worst_delta_spp(GAP, lipschitz**2, dense)
        ax.plot(dense, exact, color="black", linewidth=0.9, label="exact formula")
        ax.plot(lr, columns["worst"][rows], "o", color=BLUE, markersize=4, label="semidefinite program")
        ax.set(xscale="log", yscale="log", ylim=(1e-3, 4), xlabel="learning rate α")
        ax.set_title(f"gradients up to G = {lipschitz:g}")
    axes[0].set_ylabel("largest δ of SPP")
    return figure


ITERATES = {"last-iterate": "last iterate", "average-iterate": "average iterate"}
SCHEDULES = {"constant": BLUE, "inverse_sqrt": OCHRE, "linear": VERMILION}


def whole_runs_data() -> Columns:
    """Worst case and bound for every iterate, horizon, schedule and rate (G = D = 1)."""
    names = ("steps", "schedule", "lr")
    results = [row.verified() for row in pep.run(ITERATES, progress=False)]
    rows = [
        (result.statement, *(result.parameters[name] for name in names), result.worst_case, result.theory, result.ratio)
        for result in results
    ]
    return as_columns(rows, ("iterate", *names, "worst", "bound", "ratio"))


def whole_runs(columns: Columns) -> Figure:
    """How tight the bounds of whole runs are: worst cases of subgradient descent against Ω_last and Ω_avg.

    Left and middle: bound (dashed) and worst case (solid) over the rate, for the longest run. Right: their ratio for
    constant rates and several T. Ω_avg is exact for constant rates from D/(G√T) on, Ω_last at none of these rates.
    """
    figure, axes = new_figure(3, width=4.0)
    factor = columns["lr"] * np.sqrt(columns["steps"])
    horizons = np.unique(columns["steps"])
    for ax, (iterate, title) in zip(axes, ITERATES.items(), strict=False):
        for (schedule, colour), marker in zip(SCHEDULES.items(), MARKERS, strict=False):
            rows = _rows(columns, iterate=iterate, schedule=schedule, steps=horizons[-1])
            ax.plot(factor[rows], columns["bound"][rows], "--", color=colour, linewidth=1.0)
            label = f"{schedule.replace('_', ' ')} rate"
            ax.plot(factor[rows], columns["worst"][rows], color=colour, marker=marker, markersize=4, label=label)
        ax.set(title=f"{title}, T = {horizons[-1]}", ylabel="f − f⋆", ylim=(0, None))
    key(axes[0], "worst case", linestyle="-")
    key(axes[0], "bound", linestyle="--")
    for iterate, colour in zip(ITERATES, ("black", PURPLE), strict=True):
        for horizon, marker in zip(horizons, MARKERS, strict=False):
            rows = _rows(columns, iterate=iterate, schedule="constant", steps=horizon)
            label = f"{iterate.replace('-', ' ')}, T = {horizon}"
            axes[2].plot(factor[rows], columns["ratio"][rows], marker + "-", color=colour, markersize=4, label=label)
    axes[2].set(title="constant rate: 1 is tight", ylabel="bound / worst case", ylim=(0.95, None))
    for ax in axes:
        ticks = np.unique(factor.round(6))
        ax.set(xscale="log", xlabel="learning rate α, in D/(G√T)")
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    return figure


def _rows(columns: Columns, **values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(np.logical_and.reduce([columns[name] == value for name, value in values.items()]))


_recipe = partial(Recipe, is_slow=True)
FIGURES = {
    "pep": _recipe("2 (right)", "the largest index δ that SPP can have on a convex loss", indices_data, indices),
    "pep-bounds": _recipe(
        "", "how tight the bounds of whole runs are: worst cases of subgradient descent", whole_runs_data, whole_runs
    ),
}
