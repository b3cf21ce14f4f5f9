"""Panels that several figures share, drawn from long tables with the columns kind, method, lr, step and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.plots.style import GREY, colour_of, drawable, label_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Columns = Mapping[str, np.ndarray[Any, Any]]
"""A table: columns of equal length by name."""

COLUMNS = ("kind", "method", "lr", "step", "value")
Row = tuple[str, str, float, int, float]

STYLES = (":", "--", "-")
"""Of three rates, rising."""


def as_columns(rows: Sequence[Row]) -> Columns:
    """A table from its rows."""
    return {name: np.array(column) for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True)}


def constant(columns: Columns, name: str) -> float:
    """A number of the whole figure; its row has the kind ``constant`` and its name as method."""
    return float(columns["value"][(columns["kind"] == "constant") & (columns["method"] == name)][0])


def methods_of(columns: Columns, kind: str) -> list[str]:
    """The methods that have rows of this kind, in their order."""
    return list(dict.fromkeys(columns["method"][columns["kind"] == kind].tolist()))


def series(columns: Columns, kind: str, method: str, lr: float | None = None) -> tuple[Any, Any, Any]:
    """Rates, steps and values of one kind and method."""
    mine = (columns["kind"] == kind) & (columns["method"] == method)
    if lr is not None:
        mine &= columns["lr"] == lr
    return columns["lr"][mine], columns["step"][mine], columns["value"][mine]


def draw_rates(
    ax: Axes,
    columns: Columns,
    methods: Iterable[str],
    start: float,
    *,
    loss: str = "loss",
    bound: str | None = "bound",
    headroom: float = 30.0,
) -> None:
    """A loss with its range over the seeds, and a bound; what is off the scale or diverged sits at the upper edge."""
    top = headroom * start
    shown = [start]
    for method in methods:
        lrs, _, losses = series(columns, loss, method)
        colour = colour_of(method)
        inside = losses <= top
        line: dict[str, Any] = {"color": colour, "markersize": 2.5, "linewidth": 1.4, "label": label_of(method)}
        ax.plot(lrs, drawable(losses, top), "-o", **line)
        if not inside.all():  # an empty line that is not clipped would upset the layout
            ax.plot(lrs[~inside], np.full((~inside).sum(), top), "o", color=colour, fillstyle="none", clip_on=False)
        low, high = (np.where(inside, series(columns, f"{loss}-{end}", method)[2], np.nan) for end in ("low", "high"))
        ax.fill_between(lrs, np.maximum(low, 1e-12 * start), high, color=colour, alpha=0.15, linewidth=0)
        shown += [*losses[inside & (losses > 0)]]
        if bound is not None:
            totals = series(columns, bound, method)[2]
            ax.plot(lrs, drawable(totals, top), "--", color=colour, linewidth=1.1)
            shown += [*totals[(totals > 0) & (totals <= top)]]
    ax.axhline(start, color=GREY, linestyle=":", linewidth=0.8)
    ax.set(xscale="log", yscale="log", ylim=(max(min(shown) / 2, 1e-9 * start), top), xlabel="learning rate α")
    ax.legend(frameon=False, fontsize=7)


def draw_traces(ax: Axes, columns: Columns, methods: Iterable[str], *, kind: str = "delta") -> None:
    """Something of every step at up to three rates, one line style each."""
    methods = list(methods)
    chosen = (columns["kind"] == kind) & np.isin(columns["method"], methods)
    rates = np.unique(columns["lr"][chosen])
    styles = STYLES[-len(rates) :]
    finite = columns["value"][chosen & np.isfinite(columns["value"]) & (columns["value"] > 0)]
    top = min(finite.max(), 1e6 * np.median(finite))
    for method in methods:
        for lr, style in zip(rates, styles, strict=True):
            _, steps, values = series(columns, kind, method, lr)
            label = label_of(method) if style == "-" else None
            ax.plot(steps, drawable(values, top), style, color=colour_of(method), linewidth=1.0, label=label)
    ax.set(yscale="log", ylim=(max(finite.min(), 1e-12, 1e-6 * np.median(finite)), top), xlabel="step t")
    for lr, style in zip(rates, styles, strict=True):
        ax.plot([], [], style, color=GREY, linewidth=1.0, label=f"α = {lr:.3g}")
    ax.legend(frameon=False, fontsize=7)
