"""Fig. 2 (left): Ω_last for a constant rate if E[δ_t] = α^ν. The larger ν, the worse the bound at large rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot.plots.style import legend_beside, new_figure
from surefoot.theory import bounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "the bound Ω if δ grows like a power of the rate"
STEPS, DISTANCE = 100, 1.0
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)


def data() -> Columns:
    """Bound, bias and noise for every exponent ν and rate α (T = 100, D = 1)."""
    nu, lr = (grid.ravel() for grid in np.meshgrid(EXPONENTS, np.geomspace(1e-3, 1e2, 101), indexing="ij"))
    bound = bounds.power_law(lr, STEPS, DISTANCE, nu)
    return {"nu": nu, "lr": lr, "bias": bound.bias, "noise": bound.noise, "total": bound.total}


def draw(columns: Columns) -> Figure:
    """One curve an exponent, the bias in grey."""
    from matplotlib import colormaps

    figure, (ax,) = new_figure(1, width=6.0)
    for position, nu in enumerate(EXPONENTS):
        chosen = columns["nu"] == nu
        colour = colormaps["viridis"](0.9 * position / (len(EXPONENTS) - 1))
        ax.plot(columns["lr"][chosen], columns["total"][chosen], color=colour, label=f"ν = {nu:g}")
    ax.plot(columns["lr"][chosen], columns["bias"][chosen], ":", color="grey", label="bias D²/(2αT) alone")
    ax.set(xscale="log", yscale="log", xlabel="learning rate α", ylabel="bound Ω of the last iterate", ylim=(5e-2, 1e3))
    ax.set_title(f"T = {STEPS} steps at a constant rate, D = {DISTANCE:g}")
    legend_beside(ax, title="E[δ] = $α^ν$", title_fontsize=9)
    return figure
