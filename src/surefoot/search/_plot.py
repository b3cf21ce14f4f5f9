"""What ran how far, and why it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from surefoot.search._found import Found

# Okabe and Ito's palette; the words beside each bar say the same.
COLOURS = {
    "chosen": "#009e73",
    "finished": "#56b4e9",
    "dropped": "#999999",
    "diverged": "#d55e00",
    "dead": "#cc79a7",
    "never started": "#dddddd",
}


def draw(found: Found, ax: Axes | None = None) -> Axes:
    """One bar a candidate, as long as it ran, in the colour of its outcome; the reason stands beside it."""
    if ax is None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 1.2 + 0.24 * len(found.table)), layout="constrained")
        ax = figure.add_subplot()
    whole = found.horizon * len(found.seeds)
    names = [f"{row.method + ' ' if row.method else ''}{row.lr:.3g}" for row in found.table]
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
