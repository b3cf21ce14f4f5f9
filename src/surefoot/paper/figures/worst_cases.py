"""Worst cases of semidefinite programs beside the theory (Fig. 2, right). The figure needs ``surefoot[pep]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from surefoot import pep
from surefoot.paper.figures.panels import Recipe
from surefoot.plots.methods import BLUE, GREEN, GREY
from surefoot.plots.style import new_figure
from surefoot.theory import bounds, models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 1.0


def indices_data() -> xr.Dataset:
    """Λ(α) for every G and α, and the two bounds of the paper."""
    cases = [case.checked() for case in pep.run(["spp"], progress=False)]
    found = {(case.parameters["lipschitz"], case.parameters["lr"]): case.worst_case for case in cases}
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


FIGURES = {"pep": Recipe("2 (right)", "The largest index δ that SPP can have on a convex loss", indices_data, indices)}
