"""What an entry of the table of figures is, and what figures share: values over the learning rate, and over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from surefoot.plots.methods import GREY, looks
from surefoot.plots.numbers import short, ticks
from surefoot.plots.style import KEY, drawable, key, mark_edge, running_mean

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Recipe(NamedTuple):
    """How a figure is made: an entry of the table of figures.

    >>> Recipe("8", "Logistic regression", dict, lambda data: None).heading
    'Figure 8. Logistic regression'
    """

    number: str
    """The figure's number in the paper; empty for a figure of our own."""
    title: str
    """What the figure shows."""
    data: Callable[..., xr.Dataset]
    """What is shown: of the results of the ``studies``, of the sizes of the sweep on CIFAR-10, or of nothing."""
    draw: Callable[[xr.Dataset], Figure]
    studies: tuple[str, ...] = ()
    """Names of the convex experiments that the figure shows."""
    is_sweep: bool = False
    """Whether the figure shows the sweep on CIFAR-10."""

    @property
    def heading(self) -> str:
        """What stands over the figure: its number in the paper, and what it shows."""
        return f"{f'Figure {self.number}' if self.number else 'Beyond the paper'}. {self.title}"


SHADES = (0.35, 0.65, 1.0)
"""Opacity of up to three rates of a panel, from the smallest to the largest."""


def draw_rates(
    ax: Axes,
    data: xr.Dataset,
    methods: Iterable[str],
    start: float,
    *,
    loss: str = "loss",
    bound: str = "bound",
    lowest: float = 0.0,
    headroom: float = 30.0,
    start_label: str = "loss at the start",
) -> None:
    """A loss with its range over the seeds, and a bound of it, over the learning rate.

    Args:
        ax: The panel.
        data: Losses and bounds over algorithm and lr; a dimension seed is averaged.
        methods: Which algorithms.
        start: The dotted level, which is called ``start_label``; the upper edge is ``headroom`` times it.
        loss: Name of the loss.
        bound: Name of the bound.
        lowest: What is added to the bound, f⋆ where it bounds f − f⋆: what is drawn bounds the loss that is drawn.
        headroom: See ``start``.
        start_label: See ``start``.
    """
    top = headroom * start
    shown, marked, aside = [start], set(), 0
    for method, style in looks(methods).items():
        runs = data[loss].sel(algorithm=method).dropna("lr", how="all")
        lrs = runs.lr.values
        with np.errstate(over="ignore"):
            losses = runs.mean("seed").values
        ax.plot(lrs, drawable(losses, top), **style.options())
        mark_edge(ax, lrs, losses, top, style.colour, aside=aside)
        aside += bool((losses > top).any())  # the next method's marks stand beside these
        marked |= {"diverged" if np.isinf(value) else "loss above the axis" for value in losses if value > top}
        low, high = (np.where(losses <= top, end, np.nan) for end in (runs.min("seed"), runs.max("seed")))
        if (high > low).any():
            ax.fill_between(lrs, np.maximum(low, 1e-12 * start), high, color=style.colour, alpha=0.15, linewidth=0)
            marked.add("seeds")
        shown += [*losses[(losses <= top) & (losses > 0)]]
        total = data[bound].sel(algorithm=method)
        totals = lowest + (total.mean("seed") if "seed" in total.dims else total).sel(lr=lrs).values
        dashed = style.options(linestyle="--", linewidth=1.2, markersize=2.5, markerfacecolor="white", label=None)
        ax.plot(lrs, drawable(totals, top), **dashed)
        shown += [*totals[(totals > 0) & (totals <= top)]]
    ax.axhline(start, color=GREY, linestyle=":", linewidth=1.0, label=start_label, gid=KEY)
    key(ax, "loss", linestyle="-")
    key(ax, "its bound", linestyle="--")
    if "seeds" in marked:
        ax.fill_between([], [], [], color=GREY, alpha=0.25, linewidth=0, label="shaded: range over the seeds", gid=KEY)
    if "loss above the axis" in marked:
        key(ax, "loss above the axis", linestyle="none", marker="^", fillstyle="none")
    if "diverged" in marked:
        key(ax, "diverged", linestyle="none", marker="x")
    ax.set(xscale="log", yscale="log", ylim=(max(min(shown) / 2, 1e-9 * start), top), xlabel="learning rate α")


def draw_traces(ax: Axes, traces: xr.DataArray, methods: Iterable[str], *, window: int | None = None) -> None:
    """Values over algorithm, rate and step, the larger the rate the darker: the mean over a window of steps, by default
    a twentieth of them, with every step behind it."""
    shades = dict(zip(traces.rate.values, SHADES[-traces.sizes["rate"] :], strict=True))
    finite = traces.values[np.isfinite(traces.values) & (traces.values > 0)]
    # Far enough up to see an explosion, not so far that nothing else is seen.
    top, lowest = min(finite.max(), 1e12 * np.median(finite)), np.inf
    steps = 1 + traces.step.values  # from 1, as in the paper
    window = window or max(5, len(steps) // 20)
    for method, style in looks(methods).items():
        here = traces.sel(algorithm=method).dropna("rate", how="all")  # some were not run
        for rate, values in zip(here.rate.values, here.transpose("rate", "step").values, strict=True):
            if window > 1:
                ax.plot(steps, drawable(values, top), color=style.colour, linewidth=0.5, alpha=0.2 * shades[rate])
            line = drawable(running_mean(values, window), top)
            lowest = min(lowest, float(np.nanmin(line, initial=np.inf)))
            label = style.label if rate == here.rate[-1] else None
            rest = {"label": label, "markevery": max(1, len(steps) // 8), "linewidth": 0.8 if window == 1 else 1.5}
            ax.plot(steps, line, **style.options(alpha=shades[rate], **rest))
    ax.set(yscale="log", ylim=(max(0.5 * lowest, 1e-12, 1e-6 * np.median(finite)), top), xlabel="step t")
    for rate, shade in shades.items():
        key(ax, f"α = {rate:.3g}", alpha=shade)
    if window > 1:
        key(ax, f"thin: every step, thick: mean of {window}", linewidth=0.5, alpha=0.6)


def plain_ticks(ax: Axes) -> None:
    """Plain numbers on a y-axis that has too few decades for powers of ten."""
    low, high = ax.get_ylim()
    if high < 1e3 * low:
        marks = ticks(low, high, log=True)
        ax.set_yticks(marks, [short(mark) for mark in marks])
        ax.yaxis.minorticks_off()


def table_of(data: xr.Dataset) -> str:
    """The numbers of a data set as one CSV table: variable, the coordinates of all of them, value; no empty rows."""
    parts = {}
    for name, values in data.items():
        series = values.to_series() if values.ndim else pd.Series([values.item()])
        parts[name] = series.to_frame("value").dropna().reset_index(drop=not values.ndim)
    table = pd.concat(parts, names=["variable"]).reset_index("variable")
    return table[["variable", *data.sizes, "value"]].to_csv(index=False)
