"""Fig. 2 (right): Λ(α), the largest index of SPP that a semidefinite program finds, beside its exact formula.

Blue is the program's value, grey δ_SGD = ½αG², green f(x) − inf f of the function found, black the formula. Left of the
kink the worst case does not fix the green value: any in the shaded range gives the same Λ. Needs ``surefoot[pep]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot import pep
from surefoot.plots.methods import BLUE, GREEN, GREY
from surefoot.plots.style import legend_below, new_figure
from surefoot.theory import models, proximal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "the largest index δ that SPP can have on a convex loss"
GAP = 1.0


def data() -> Columns:
    """Λ(α) for every G and α, its bounds δ_SGD and ``gap`` (that of the function found), and the exact formula."""
    results = [row.verified() for row in pep.run(["spp"], progress=False)]
    lipschitz, lr = (np.array([float(result.parameters[name]) for result in results]) for name in ("lipschitz", "lr"))
    return {
        "lipschitz": lipschitz,
        "lr": lr,
        "worst": np.array([result.worst_case for result in results]),
        "exact": proximal.worst_delta(GAP, lipschitz**2, lr),
        "gap": np.array([result.instance["gap"] for result in results]),
        "delta_sgd": models.Linear().step(GAP, lipschitz**2, lr).delta,
    }


def draw(columns: Columns) -> Figure:
    """One panel for each G."""
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
        exact = proximal.worst_delta(GAP, lipschitz**2, dense)
        ax.plot(dense, exact, color="black", linewidth=0.9, label="exact formula")
        ax.plot(lr, columns["worst"][rows], "o", color=BLUE, markersize=4, label="semidefinite program")
        ax.set(xscale="log", yscale="log", ylim=(1e-3, 4), xlabel="learning rate α")
        ax.set_title(f"gradients up to G = {lipschitz:g}")
    axes[0].set_ylabel("largest δ of SPP")
    legend_below(figure, axes)
    return figure
