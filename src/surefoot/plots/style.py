"""Axes, legends and lines of all figures: what is drawn is named, and the names stand beside the data, not on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.plots.methods import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = np.ndarray[Any, np.dtype[np.float64]]

KEY = "key"
"""Marks what explains a picture and belongs to no method; it stands at the end of a legend."""


def new_figure(columns: int, rows: int = 1, *, width: float = 4.2, height: float = 3.4) -> tuple[Figure, list[Any]]:
    """A figure with rows of panels, each of this width and height, independent of any display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(rows * columns)]
    for ax in axes:
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend_below(figure: Figure, axes: Iterable[Axes]) -> None:
    """One legend under all panels, in which every label stands once; the figure grows by what it takes."""
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    # Methods first, then the keys that say what dashes and marks mean.
    handles = dict(sorted(handles.items(), key=lambda pair: getattr(pair[1], "get_gid", str)() == KEY))
    width, height = figure.get_size_inches()
    fitting = [count for count in range(1, len(handles) + 1) if _legend_width(list(handles), count) <= width]
    columns = max(fitting, default=1)
    figure.set_size_inches(width, height + 0.19 * -(-len(handles) // columns) + 0.1)
    options: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 8.5}
    figure.legend(list(handles.values()), list(handles), **options)


def _legend_width(labels: list[str], columns: int) -> float:
    """About how many inches a legend takes; matplotlib fills it column by column, the first ones more."""
    return sum(0.075 * max(map(len, part)) + 0.65 for part in np.array_split(labels, columns))


def drawable(values: Floats, top: float) -> Floats:
    """Values for a logarithmic axis that ends at ``top``: a line leaves the picture, but not the float range.

    >>> drawable(np.array([0.0, 0.5, 1e300, np.inf]), top=1.0)
    array([   nan, 5.e-01, 1.e+03,    nan])
    """
    return np.where(np.isfinite(values) & (values > 0), np.minimum(values, 1e3 * top), np.nan)


def mark_edge(ax: Axes, lrs: Floats, values: Floats, top: float, colour: str, *, aside: int = 0) -> None:
    """What does not fit below the upper edge stands on it: a triangle if it is a number, a cross if it diverged.

    Args:
        ax: The panel.
        lrs: Learning rates.
        values: Losses; ∞ means diverged.
        top: The upper edge.
        colour: The method's colour.
        aside: How many methods stand there already; each one is moved a little to the right.
    """
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    moved = ax.transData + ScaledTranslation(aside * 4.5 / 72, 0, figure.dpi_scale_trans)
    # Marks that are moved aside do not count by themselves.
    ax.update_datalim(np.column_stack([lrs, lrs]), updatey=False)
    diverged = np.isinf(values)
    for chosen, marker, size in ((~diverged & (values > top), "^", 5.5), (diverged, "x", 5.0)):
        if chosen.any():  # an empty line that is not clipped would upset the layout
            options: dict[str, Any] = {"color": colour, "fillstyle": "none", "markersize": size, "clip_on": False}
            ax.plot(lrs[chosen], np.full(int(chosen.sum()), top), marker, transform=moved, zorder=5, **options)


def key(ax: Axes, label: str, **style: Any) -> None:
    """A line of the legend that stands for no method: what dashes, bands or crosses mean."""
    ax.plot([], [], **{"color": GREY, "label": label, "gid": KEY, **style})


def running_mean(values: Floats, window: int) -> Floats:
    """The mean over a window around each place; what is not finite stays so.

    Near the start the window is shorter on both sides, so that the first steps, where things explode, stay as they are.

    >>> running_mean(np.array([1.0, 2.0, 6.0, 2.0]), 3).tolist()
    [1.0, 3.0, 3.3333333333333335, 4.0]
    """
    half = window // 2
    means = np.empty(len(values))
    for place in range(len(values)):
        reach = min(half, place)
        with np.errstate(over="ignore", invalid="ignore"):
            means[place] = values[place - reach : place + reach + 1].mean()
    return means
