"""Worst cases of semidefinite programs beside the theory. These figures need ``surefoot[pep]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from surefoot import pep
from surefoot.paper.figures._recipe import Recipe
from surefoot.plots.methods import BLUE, GREEN, GREY, MARKERS, OCHRE, PURPLE, VERMILION
from surefoot.plots.style import key, new_figure
from surefoot.theory import bounds, models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 1.0


def _solved(*names: str) -> list[pep.WorstCase]:
    return [found.checked() for found in pep.run(names, progress=False)]


def indices_data() -> xr.Dataset:
    """Λ(α) for every G and α, and the two bounds of the paper."""
    found = {(case.parameters["lipschitz"], case.parameters["lr"]): case.worst_case for case in _solved("spp")}
    lipschitz, lrs = (np.unique(values) for values in np.array(list(found)).T)
    worst = [[found[G, lr] for lr in lrs] for G in lipschitz]
    dims = ("lipschitz", "lr")
    squares = lipschitz[:, None] ** 2
    return xr.Dataset(
        {
            "worst": (dims, worst),
            "exact": (dims, bounds.worst_delta_spp(GAP, squares, lrs)),
            "delta_sgd": (dims, models.Linear().step(GAP, squares, lrs).delta),
        },
        {"lipschitz": lipschitz, "lr": lrs},
    )


def indices(data: xr.Dataset) -> Figure:
    """Fig. 2 (right): Λ(α), the largest index of SPP that a semidefinite program finds, beside its exact formula.

    Blue is the program's value, grey δ_SGD = ½αG², black the formula. The second bound is f(x) − inf f of the worst
    case. It is not unique: any value in the green band gives the same Λ left of the kink, and 1 right of it.
    """
    figure, axes = new_figure(data.sizes["lipschitz"], width=3.6)
    for ax, G in zip(axes, data.lipschitz.values, strict=True):
        dense = np.geomspace(data.lr[0], data.lr[-1], 400)
        sgd = models.Linear().step(GAP, G**2, dense).delta
        smallest = np.minimum(2.0 * sgd, GAP)  # a smaller gap makes the index smaller
        label = "bound: f(x) − inf f of a worst case"
        ax.fill_between(dense, smallest, GAP, color=GREEN, alpha=0.25, linewidth=1.2, label=label)
        ax.plot(dense, sgd, color=GREY, label="bound: δ of SGD, ½αG²")
        ax.plot(dense, bounds.worst_delta_spp(GAP, G**2, dense), color="black", linewidth=0.9, label="exact formula")
        ax.plot(data.lr, data.worst.sel(lipschitz=G), "o", color=BLUE, markersize=4, label="semidefinite program")
        ax.set(xscale="log", yscale="log", ylim=(1e-3, 4), xlabel="learning rate α")
        ax.set_title(f"gradients up to G = {G:g}")
    axes[0].set_ylabel("largest δ of SPP")
    return figure


ITERATES = {"last-iterate": "last iterate", "average-iterate": "average iterate"}
SCHEDULES = {"constant": BLUE, "inverse_sqrt": OCHRE, "linear": VERMILION}


def whole_runs_data() -> xr.Dataset:
    """Worst case and bound for every iterate, horizon, schedule and rate, in units of D/(G√T) (G = D = 1)."""
    found = {}
    for case in _solved(*ITERATES):
        steps, schedule, lr = (case.parameters[name] for name in ("steps", "schedule", "lr"))
        found[case.statement, steps, schedule, round(float(lr) * float(steps) ** 0.5, 6)] = case
    labels = [list(dict.fromkeys(column)) for column in zip(*found, strict=True)]
    cases = [[[[found[i, t, s, r] for r in labels[3]] for s in labels[2]] for t in labels[1]] for i in labels[0]]
    dims = ("iterate", "steps", "schedule", "factor")
    values = {
        name: np.vectorize(lambda case, name=name: getattr(case, name))(cases) for name in ("worst_case", "theory")
    }
    return xr.Dataset({name: (dims, array) for name, array in values.items()}, dict(zip(dims, labels, strict=True)))


def whole_runs(data: xr.Dataset) -> Figure:
    """How tight the bounds of whole runs are: worst cases of subgradient descent against Ω_last and Ω_avg.

    Left and middle: bound (dashed) and worst case (solid) over the rate, for the longest run. Right: their ratio for
    constant rates and several T. Ω_avg is exact for constant rates from D/(G√T) on, Ω_last at none of these rates.
    """
    figure, axes = new_figure(3, width=4.0)
    horizon = data.steps.values[-1]
    for ax, (iterate, title) in zip(axes, ITERATES.items(), strict=False):
        for (schedule, colour), marker in zip(SCHEDULES.items(), MARKERS, strict=False):
            one = data.sel(iterate=iterate, schedule=schedule, steps=horizon)
            ax.plot(data.factor, one.theory, "--", color=colour, linewidth=1.0)
            label = f"{schedule.replace('_', ' ')} rate"
            ax.plot(data.factor, one.worst_case, color=colour, marker=marker, markersize=4, label=label)
        ax.set(title=f"{title}, T = {horizon}", ylabel="f − f⋆", ylim=(0, None))
    key(axes[0], "worst case", linestyle="-")
    key(axes[0], "bound", linestyle="--")
    for iterate, colour in zip(ITERATES, ("black", PURPLE), strict=True):
        for steps, marker in zip(data.steps.values, MARKERS, strict=False):
            one = data.sel(iterate=iterate, schedule="constant", steps=steps)
            label = f"{iterate.replace('-', ' ')}, T = {steps}"
            style = {"color": colour, "markersize": 4, "label": label}
            axes[2].plot(data.factor, one.theory / one.worst_case, marker + "-", **style)
    axes[2].set(title="constant rate: 1 is tight", ylabel="bound / worst case", ylim=(0.95, None))
    for ax in axes:
        ax.set(xscale="log", xlabel="learning rate α, in D/(G√T)")
        ax.set_xticks(data.factor.values, [f"{tick:g}" for tick in data.factor.values])
        ax.minorticks_off()
    return figure


FIGURES = {
    "pep": Recipe(
        "2 (right)", "the largest index δ that SPP can have on a convex loss", indices_data, indices, is_slow=True
    ),
    "pep-bounds": Recipe(
        "",
        "how tight the bounds of whole runs are: worst cases of subgradient descent",
        whole_runs_data,
        whole_runs,
        is_slow=True,
    ),
}
