"""One of ours: the interpolation constant σ² over the batch size, against how long SPP and SPS hold.

Linear regression with noise, 100 steps whatever the batch size. Larger batches can be fitted less well: their infima
rise, σ² falls, and SPP, whose index is capped by the gap to those infima, holds at larger rates. SPS with C = 0 cannot
profit, because its lower bound stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot.paper.experiments import study
from surefoot.plots.methods import GREY, looks
from surefoot.plots.style import legend_below, new_figure
from surefoot.problems import constants

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.plots.panels import Columns

TITLE = "larger batches: less noise σ², and longer windows for SPP"
BATCH_SIZES = (1, 2, 5, 10, 25, 50)
METHODS = ("sgd", "sps", "spp")


def data() -> Columns:
    """σ² with its standard error, and for every method the window in decades and the loss at the largest rate."""
    rows = []
    for batch_size in BATCH_SIZES:
        sweep = study("v1", batch_size=batch_size, epochs=2 * batch_size, methods=list(METHODS))
        found = constants(sweep.problem, batch_size)
        result = sweep.run()
        windows = result.sensitivity()
        with np.errstate(over="ignore"):
            last = result.dataset.last_loss.mean("seed").values[:, -1]
        for position, method in enumerate(METHODS):
            sigma = (found.interpolation_constant, found.standard_error)
            rows.append((batch_size, *sigma, method, windows[method].decades, last[position]))
    names = ("batch_size", "sigma_sq", "standard_error", "method", "decades", "loss_at_largest_rate")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def draw(columns: Columns) -> Figure:
    """σ² (left) and the windows (right)."""
    figure, (left, right) = new_figure(2)
    once = columns["method"] == METHODS[0]
    sizes = columns["batch_size"][once]
    left.errorbar(
        sizes, columns["sigma_sq"][once], 2 * columns["standard_error"][once], fmt="-o", color=GREY, capsize=3,
        label="σ² ± 2 standard errors",
    )  # fmt: skip
    left.set_title("interpolation constant of linear regression with noise")
    right.set_title("rates within a tenth of the best loss")
    left.set(xscale="log", xlabel="batch size", ylabel="interpolation constant σ²", ylim=(0, None))
    for method, style in looks(METHODS).items():
        mine = columns["method"] == method
        right.plot(sizes, columns["decades"][mine], color=style.colour, marker=style.marker, label=style.label)
    right.set(xscale="log", xlabel="batch size", ylabel="window of good rates (decades)", ylim=(0, None))
    for ax in (left, right):
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
    legend_below(figure, (left, right))
    return figure
