"""One of ours: SPS and NGN with a level beside C = 0 and C = −2. Does a level repair V3?

V3 of the paper is linear regression without noise, where SPS is given C = −2 instead of 0 and loses its protection. A
level knows neither. V1 has a noise floor, which C = 0 is too low for; on vowel and dna C = 0 is a good bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot.paper.experiments import study
from surefoot.plots.style import colour_of, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "A level in place of a lower bound: loss over the rate with C = 0, C = −2 and the level"
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
        for method in METHODS:
            mine = (columns["problem"] == name) & (columns["method"] == method)
            base, bound = method.partition("(")[::2]
            bound = f"({bound}" if bound else ""
            ax.plot(
                columns["lr"][mine],
                np.maximum(columns["loss"][mine], 1e-12),
                STYLES[list(BOUNDS).index(bound)],
                color=colour_of(base),
                markersize=3,
                label=f"{base.upper()}, {BOUNDS[bound]}",
            )
        initial = columns["initial_loss"][columns["problem"] == name][0]
        ax.axhline(initial, color="grey", linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel="learning rate α", title=title, ylim=(None, 10 * initial))
    axes[0].set(ylabel="loss at the last iterate", ylim=(1e-10, None))
    axes[-1].legend(frameon=False, fontsize=7)
    return figure
