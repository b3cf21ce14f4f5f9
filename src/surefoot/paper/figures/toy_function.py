"""Fig. 1: one step on f(x) = ln(1 + e^(−x)) + max{x − 2, 0} from x = −3, for every rate.

Left: the loss after the step. Right: the stability index. Where the loss stays low at large rates, the index has
flattened. The vertical line marks SGD's best rate, which takes it straight to the minimum at 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.plots.methods import GREY, looks
from surefoot.plots.style import legend_below, new_figure
from surefoot.theory import models, toy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "one step on the toy function from x = −3"
MODELS = {
    "sgd": models.Linear(),
    "sps": models.Truncated(),
    "ngn": models.SquareRoot(),
    "log-ngn": models.Exponential(),
}


def data() -> Columns:
    """Next loss and δ of every method on a grid of rates."""
    lrs = np.geomspace(1e-1, 1e2, 151)
    x, loss, slope = toy.START, toy.loss(toy.START), toy.slope(toy.START)
    after, indices = {}, {}
    for name, model in MODELS.items():
        step = model.step(loss, slope**2, lrs)
        after[name], indices[name] = toy.loss(x - step.size * slope), step.delta
    nearest = toy.proximal_point(x, lrs)
    after["spp"] = toy.loss(nearest)
    indices["spp"] = models.exact_delta(loss, after["spp"], (nearest - x) ** 2, lrs)
    return {
        "method": np.repeat(list(after), lrs.size),
        "lr": np.tile(lrs, len(after)),
        "next_loss": np.concatenate(list(after.values())),
        "delta": np.concatenate(list(indices.values())),
        "best_sgd_lr": np.full(lrs.size * len(after), (toy.MINIMISER - x) / -slope),
    }


def draw(columns: Columns) -> Figure:
    """Next loss (left) and δ (right)."""
    figure, (left, right) = new_figure(2)
    for name, style in looks(dict.fromkeys(columns["method"].tolist())).items():
        chosen = columns["method"] == name
        line: dict[str, Any] = {"color": style.colour, "marker": style.marker, "markevery": 15, "markersize": 4}
        for ax, column in ((left, "next_loss"), (right, "delta")):
            ax.plot(columns["lr"][chosen], columns[column][chosen], label=style.label, **line)
    for ax in (left, right):
        best = columns["best_sgd_lr"][0]
        ax.axvline(best, color=GREY, linestyle="--", linewidth=1.0, label=f"SGD's best rate, {best:.3g}")
        ax.set(xscale="log", xlabel="learning rate α")
    last = columns["next_loss"][columns["method"] == "sgd"][-1]
    left.set(ylabel="loss after the step", ylim=(0, 6))
    left.set_title(f"SGD leaves the axis: {last:.0f} at α = {columns['lr'][-1]:g}")
    right.set(ylabel="stability index δ of the step", yscale="log")
    right.set_title("SGD's index grows like α, the others flatten")
    legend_below(figure, (left, right))
    return figure
