"""One of ours: SPS and NGN with a level beside C = 0 and C = −2. Does a level repair V3?

V3 of the paper is linear regression without noise, where SPS is given C = −2 instead of 0 and loses its protection. A
level knows neither. V1 has a noise floor, which C = 0 is too low for; on vowel and dna C = 0 is a good bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot.paper.experiments import study
from surefoot.plots.methods import GREY, look
from surefoot.plots.style import drawable, key, legend_below, mark_edge, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "a level in place of a lower bound: SPS and NGN with C = 0, C = −2 and the level"
PANELS = {
    "linear-regression": "linear regression, and V3",
    "v1": "V1: noise on the targets",
    "vowel": "vowel",
    "dna": "dna",
}
BOUNDS = {"": "C = 0", "(lower_bound=-2)": "C = −2", "(lower_bound=level)": "level"}
STYLES = ("-o", ":s", "--^")
METHODS = tuple(f"{name}{bound}" for name in ("sps", "ngn") for bound in BOUNDS)
SEEDS = 2


def data() -> Columns:
    """The loss at the last iterate, averaged over the data orders, for every problem, method and rate."""
    rows = []
    for name in PANELS:
        result = study(name, methods=list(METHODS), seeds=SEEDS).run()
        initial = float(result.dataset.train_loss.values[0, 0, 0, 0])
        with np.errstate(over="ignore"):
            losses = result.dataset.last_loss.mean("seed").values
        for position, method in enumerate(METHODS):
            for lr, loss in zip(result.dataset.lr.values, losses[position], strict=True):
                rows.append((name, method, lr, loss, initial))
    names = ("problem", "method", "lr", "loss", "initial_loss")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def draw(columns: Columns) -> Figure:
    """One panel a problem; colours are methods, line styles are bounds."""
    figure, axes = new_figure(len(PANELS))
    for ax, (name, title) in zip(axes, PANELS.items(), strict=True):
        initial = columns["initial_loss"][columns["problem"] == name][0]
        top = 10 * initial
        for method in METHODS:
            mine = (columns["problem"] == name) & (columns["method"] == method)
            base, bound = method.partition("(")[::2]
            bound = f"({bound}" if bound else ""
            style, losses = look(base), columns["loss"][mine]
            ax.plot(
                columns["lr"][mine],
                drawable(np.maximum(losses, 1e-12), top),
                STYLES[list(BOUNDS).index(bound)],
                color=style.colour,
                markersize=3.5,
                label=f"{style.label}, {BOUNDS[bound]}",
            )
            mark_edge(ax, columns["lr"][mine], losses, top, style.colour)
        ax.axhline(initial, color=GREY, linestyle=":", linewidth=1.0, label="loss at the start")
        ax.set(xscale="log", yscale="log", xlabel="learning rate α", title=title, ylim=(None, top))
    if (columns["loss"] > 10 * columns["initial_loss"]).any():
        key(axes[0], "loss above the axis", linestyle="none", marker="^", fillstyle="none")
    if np.isinf(columns["loss"]).any():
        key(axes[0], "diverged", linestyle="none", marker="x")
    axes[0].set(ylabel="loss at the last iterate", ylim=(1e-10, None))
    legend_below(figure, axes)
    return figure
