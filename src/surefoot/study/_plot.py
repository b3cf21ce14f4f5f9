"""Loss and bound over the learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from surefoot.runs import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette: told apart by everybody."""

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
    """Losses (solid) and bounds (dashed) of shape (algorithms, rates) on logarithmic axes."""
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=(5.0, 3.6), layout="constrained")
    drawn = losses if totals is None else np.stack([losses, totals])
    known = drawn[np.isfinite(drawn) & (drawn > 0)]
    # A start at a minimum of 0, below it, or at no number has no place on a logarithmic axis.
    scale = initial_loss if 0 < initial_loss < np.inf else float(np.median(known)) if known.size else 1.0
    top = HEADROOM * scale
    for position, algorithm in enumerate(algorithms):
        colour = COLOURS[position % len(COLOURS)]
        _line(ax, lrs, losses[position], top, colour, "-", algorithm)
        if totals is not None:
            _line(ax, lrs, totals[position], top, colour, "--", None)
    ax.set_xscale("log")
    ax.set_yscale("log")
    inside = known[known <= top]
    ax.set_ylim(0.5 * inside.min() if inside.size else 0.01 * top, top)
    ax.set_xlabel("learning rate α")
    ax.set_ylabel("final loss" if totals is None else "final loss (solid), bound (dashed)")
    ax.legend(frameon=False)
    return ax


def drawable(values: Floats, top: float) -> Floats:
    """Values for a logarithmic axis that ends at ``top``: a line leaves the picture, but not the float range.

    >>> drawable(np.array([0.0, 0.5, 1e300, np.inf]), top=1.0)
    array([   nan, 5.e-01, 1.e+03,    nan])
    """
    return np.where(np.isfinite(values) & (values > 0), np.minimum(values, 1e3 * top), np.nan)


def _line(ax: Axes, lrs: Floats, values: Floats, top: float, colour: str, style: str, label: str | None) -> None:
    above = values > top
    marker = "o" if style == "-" else None
    ax.plot(lrs, drawable(values, top), style, color=colour, marker=marker, markersize=3.5, label=label)
    if style == "-" and above.any():  # an empty line that is not clipped would upset the layout
        edge = np.full(int(above.sum()), top)
        ax.plot(lrs[above], edge, "o", color=colour, fillstyle="none", markersize=6.0, clip_on=False)
