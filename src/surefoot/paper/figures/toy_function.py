"""Fig. 1: one step on f(x) = ln(1 + e^(−x)) + max{x − 2, 0} from x = −3, for every rate.

Left: the loss after the step. Right: the stability index. Where the loss stays low at large rates, the index has
flattened. The vertical line marks SGD's best rate, which takes it straight to the minimum at 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot.plots.style import COLOURS, GREY, LABELS, new_figure
from surefoot.theory import models, toy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "Loss after one step and stability index over the rate, on the toy function"
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
    for name in dict.fromkeys(columns["method"].tolist()):
        chosen = columns["method"] == name
        for ax, column in ((left, "next_loss"), (right, "delta")):
            ax.plot(columns["lr"][chosen], columns[column][chosen], color=COLOURS[name], label=LABELS[name])
    for ax in (left, right):
        ax.axvline(columns["best_sgd_lr"][0], color=GREY, linestyle="--", linewidth=1.0)
        ax.set(xscale="log", xlabel="learning rate α")
    left.set(ylabel="loss after the step", ylim=(0, 6))
    right.set(ylabel="stability index δ", yscale="log")
    left.legend(frameon=False, fontsize=8)
    return figure
