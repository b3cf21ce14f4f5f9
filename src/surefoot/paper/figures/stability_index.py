"""Fig. 3: δ as the gap between the loss and the minimum of the regularised model, for SGD (left) and NGN (right).

Thin lines are the objectives f_x(y) + (y − x)²/(2α) of the update for growing α, on the toy function of Fig. 1; the
arrows are their gaps. They grow without limit for SGD, and stay below the loss for NGN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot.plots.methods import GREY, look
from surefoot.plots.style import key, legend_below, new_figure
from surefoot.theory import models, toy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "the stability index δ as a gap, for SGD and NGN"
LRS = (1.0, 2.0, 4.0, 8.0)
MODELS: dict[str, models.Model] = {"sgd": models.Linear(), "ngn": models.SquareRoot()}


def data() -> Columns:
    """The loss and the update's objective over y, for both methods and several rates."""
    x, loss, slope = toy.START, toy.loss(toy.START), toy.slope(toy.START)
    method, lr, y = (
        grid.ravel() for grid in np.meshgrid(list(MODELS), LRS, np.linspace(-4.0, 6.0, 401), indexing="ij")
    )
    objective = np.empty(y.size)
    for name, model in MODELS.items():
        chosen = method == name
        away = y[chosen] - x
        objective[chosen] = model.value(loss, slope**2, -away / slope) + away**2 / (2 * lr[chosen])
    constant = {"x": x, "loss_at_x": loss, "grad_sq": slope**2}
    return {
        "method": method, "lr": lr, "y": y, "loss": toy.loss(y), "objective": objective,
        **{key: np.full(y.size, value) for key, value in constant.items()},
    }  # fmt: skip


def draw(columns: Columns) -> Figure:
    """One panel a method."""
    from matplotlib import colormaps

    figure, axes = new_figure(len(MODELS))
    for ax, method in zip(axes, MODELS, strict=True):
        mine = columns["method"] == method
        ax.plot(columns["y"][mine][:401], columns["loss"][mine][:401], color="black", linewidth=1.8, label="the loss f")
        start = columns["loss_at_x"][0]
        for position, lr in enumerate(LRS):
            chosen = mine & (columns["lr"] == lr)
            y, objective = columns["y"][chosen], columns["objective"][chosen]
            colour = colormaps["viridis"](0.85 * position / (len(LRS) - 1))
            ax.plot(y, objective, color=colour, linewidth=0.9, label=f"update's objective, α = {lr:g}")
            lowest = objective.argmin()
            arrow = {"arrowstyle": "<->", "color": colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (y[lowest], start), (y[lowest], objective[lowest]), arrowprops=arrow)
        ax.axhline(start, color=GREY, linestyle=":", linewidth=1.0, label="f(x)")
        ax.plot(columns["x"][0], start, "o", color="black", markersize=5, linestyle="none", label="the point x")
        key(ax, "δ, from f(x) to the minimum", marker=r"$\updownarrow$", linestyle="none", markersize=9)
        ax.set(title=look(method).label, xlabel="y", ylim=(-2.0, 5.0))
    axes[0].set_ylabel("loss, and objective of the update")
    legend_below(figure, axes)
    return figure
