"""Panels that several figures share, drawn from long tables with the columns kind, method, lr, step and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.plots.methods import GREY, looks
from surefoot.plots.style import KEY, drawable, key, mark_edge, running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Columns = Mapping[str, np.ndarray[Any, Any]]
"""A table: columns of equal length by name."""

COLUMNS = ("kind", "method", "lr", "step", "value")
Row = tuple[str, str, float, int, float]

STYLES = (":", "--", "-")
"""Line styles of up to three rates, from the smallest to the largest."""


def as_columns(rows: Sequence[tuple[Any, ...]], names: Sequence[str] = COLUMNS) -> Columns:
    """A table from its rows.

    >>> as_columns([("sgd", 0.1), ("sps", 0.2)], ("method", "loss"))["loss"]
    array([0.1, 0.2])
    """
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def constant(columns: Columns, name: str) -> float:
    """A number of the whole figure; its row has the kind ``constant`` and its name as method."""
    return float(columns["value"][(columns["kind"] == "constant") & (columns["method"] == name)][0])


def methods_of(columns: Columns, kind: str) -> list[str]:
    """The methods that have rows of this kind, in their order."""
    return list(dict.fromkeys(columns["method"][columns["kind"] == kind].tolist()))


def series(columns: Columns, kind: str, method: str, lr: float | None = None) -> tuple[Any, Any, Any]:
    """Rates, steps and values of one kind and method."""
    rows = (columns["kind"] == kind) & (columns["method"] == method)
    if lr is not None:
        rows &= columns["lr"] == lr
    return columns["lr"][rows], columns["step"][rows], columns["value"][rows]


def draw_rates(
    ax: Axes,
    columns: Columns,
    methods: Iterable[str],
    start: float,
    *,
    loss: str = "loss",
    bound: str | None = "bound",
    lowest: float = 0.0,
    headroom: float = 30.0,
    start_label: str = "loss at the start",
) -> None:
    """A loss with its range over the data orders, and a bound of it, over the learning rate.

    Args:
        ax: The panel.
        columns: The table.
        methods: Which methods.
        start: The dotted level; the upper edge is ``headroom`` times it.
        loss: Kind of the rows with the loss; those with ``-low`` and ``-high`` are its range.
        bound: Kind of the rows with the bound, or None.
        lowest: What is added to the bound, f⋆ where it bounds f − f⋆: what is drawn bounds the loss that is drawn.
        headroom: See ``start``.
        start_label: What the dotted level is.
    """
    top = headroom * start
    shown = [start]
    beyond = diverged = ranges = False
    at_edge = 0
    for method, style in looks(methods).items():
        lrs, _, losses = series(columns, loss, method)
        inside = losses <= top
        ax.plot(lrs, drawable(losses, top), **style.options())
        mark_edge(ax, lrs, losses, top, style.colour, aside=at_edge)
        at_edge += not inside.all()
        diverged |= bool(np.isinf(losses).any())
        beyond |= bool((np.isfinite(losses) & ~inside).any())
        low, high = (np.where(inside, series(columns, f"{loss}-{end}", method)[2], np.nan) for end in ("low", "high"))
        ax.fill_between(lrs, np.maximum(low, 1e-12 * start), high, color=style.colour, alpha=0.15, linewidth=0)
        ranges |= bool((high > low).any())
        shown += [*losses[inside & (losses > 0)]]
        if bound is not None:
            totals = lowest + series(columns, bound, method)[2]
            dashed = style.options(linestyle="--", linewidth=1.2, markersize=2.5, markerfacecolor="white", label=None)
            ax.plot(lrs, drawable(totals, top), **dashed)
            shown += [*totals[(totals > 0) & (totals <= top)]]
    ax.axhline(start, color=GREY, linestyle=":", linewidth=1.0, label=start_label, gid=KEY)
    if bound is not None:
        key(ax, "loss", linestyle="-")
        key(ax, "its bound", linestyle="--")
    if ranges:
        words = "shaded: range over the data orders"
        ax.fill_between([], [], [], color=GREY, alpha=0.25, linewidth=0, label=words, gid=KEY)
    if beyond:
        key(ax, "loss above the axis", linestyle="none", marker="^", fillstyle="none")
    if diverged:
        key(ax, "diverged", linestyle="none", marker="x")
    ax.set(xscale="log", yscale="log", ylim=(max(min(shown) / 2, 1e-9 * start), top), xlabel="learning rate α")


def draw_traces(
    ax: Axes, columns: Columns, methods: Iterable[str], *, kind: str = "delta", smooth: bool = True
) -> None:
    """Values of every step at up to three rates, one line style each; smoothed, with every step behind it."""
    methods = list(methods)
    chosen = (columns["kind"] == kind) & np.isin(columns["method"], methods)
    rates = np.unique(columns["lr"][chosen])
    styles = STYLES[-len(rates) :]
    finite = columns["value"][chosen & np.isfinite(columns["value"]) & (columns["value"] > 0)]
    top = min(finite.max(), 1e6 * np.median(finite))
    window, lowest = 0, np.inf
    for method, style in looks(methods).items():
        for lr, dashes in zip(rates, styles, strict=True):
            _, steps, values = series(columns, kind, method, lr)
            if not len(steps):
                continue  # a method that was not run at this rate
            window = max(5, len(steps) // 20) if smooth else 1
            if smooth:
                ax.plot(steps, drawable(values, top), dashes, color=style.colour, linewidth=0.5, alpha=0.25)
            label = style.label if dashes == "-" else None
            line = drawable(running_mean(values, window), top)
            lowest = min(lowest, float(np.nanmin(line, initial=np.inf)))
            ax.plot(steps, line, **style.options(linestyle=dashes, label=label, markevery=max(1, len(steps) // 8)))
    ax.set(yscale="log", ylim=(max(0.5 * lowest, 1e-12, 1e-6 * np.median(finite)), top), xlabel="step t")
    for lr, dashes in zip(rates, styles, strict=True):
        key(ax, f"α = {lr:.3g}", linestyle=dashes)
    if smooth:
        key(ax, f"thin: every step, thick: mean of {window}", linewidth=0.5, alpha=0.6)
