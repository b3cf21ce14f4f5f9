"""Loss and bound over the learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.plots.methods import looks
from surefoot.plots.style import drawable, key, mark_edge
from surefoot.runs import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADROOM = 10.0
"""What lies above this multiple of the loss at the start is drawn at the upper edge."""


def draw(
    algorithms: Sequence[str],
    lrs: Floats,
    losses: Floats,
    totals: Floats | None,
    initial_loss: float,
    ax: Axes | None = None,
) -> Axes:
    """Draw losses (solid) and what bounds them (dashed) of shape (algorithms, rates) on logarithmic axes."""
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    drawn = losses if totals is None else np.stack([losses, totals])
    finite = drawn[np.isfinite(drawn) & (drawn > 0)]
    # A start at a minimum of 0, below it, or at no number has no place on a logarithmic axis.
    scale = initial_loss if 0 < initial_loss < np.inf else float(np.median(finite)) if finite.size else 1.0
    top = HEADROOM * scale
    at_edge = 0  # methods with losses above the axis, so that their marks stand beside each other
    for position, style in enumerate(looks(algorithms).values()):
        line: dict[str, Any] = {"color": style.colour, "linestyle": style.line, "marker": style.marker}
        ax.plot(lrs, drawable(losses[position], top), markersize=4, label=style.label, **line)
        mark_edge(ax, lrs, losses[position], top, style.colour, aside=at_edge)
        at_edge += bool((losses[position] > top).any())
        if totals is not None:
            ax.plot(lrs, drawable(totals[position], top), "--", color=style.colour)
    if totals is not None:
        key(ax, "loss", linestyle="-")
        key(ax, "its bound", linestyle="--")
    if ((losses > top) & np.isfinite(losses)).any():
        key(ax, "loss above the axis", linestyle="none", marker="^", fillstyle="none")
    if np.isinf(losses).any():
        key(ax, "diverged", linestyle="none", marker="x")
    ax.set_xscale("log")
    ax.set_yscale("log")
    inside = finite[finite <= top]
    ax.set_ylim(0.5 * inside.min() if inside.size else 0.01 * top, top)
    ax.set_xlabel("learning rate α")
    ax.set_ylabel("final loss")
    ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return ax
