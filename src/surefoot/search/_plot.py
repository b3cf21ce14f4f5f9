"""A picture of a search: how far every candidate ran, and why it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot.plots import short
from surefoot.plots.methods import GREEN, GREY, SKY, VERMILION, label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from surefoot.search._found import Found

COLOURS = {
    "chosen": GREEN,
    "finished": SKY,
    "dropped": GREY,
    "diverged": VERMILION,
    "never started": GREY,
}
"""The colour of each outcome; the words beside each bar say the same."""


def draw(found: Found, ax: Axes | None = None) -> Axes:
    """One bar per candidate, as long as it ran, in the colour of its outcome; the reason stands beside it."""
    if ax is None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 1.2 + 0.24 * len(found.table)), layout="constrained")
        ax = figure.add_subplot()
    whole = found.horizon * len(found.seeds)
    names = [f"{label_of(row.method)} {short(row.lr)}".strip() for row in found.table]
    for place, row in enumerate(found.table):
        ax.barh(place, row.steps, color=COLOURS[row.outcome], height=0.75)
        text = row.outcome if not row.reason else f"{row.outcome}: {row.reason}"
        ax.annotate(text, (row.steps, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7)
    ax.set_yticks(range(len(names)), names, fontsize=7)
    ax.set_ylabel("learning rate")
    ax.set_xlim(0, whole * 1.55)  # room for the words
    ax.set_xticks([0, whole // 2, whole])
    ax.set_xlabel(f"steps ({found.steps} in all, {found.cost:.0%} of the grid)")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
