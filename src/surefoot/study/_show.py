"""A result in a terminal and in a notebook: one line a method."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Literal

from surefoot._base.text import aligned, html_table, visible
from surefoot.plots import label_of, short, span

if TYPE_CHECKING:
    from surefoot.study._result import Result
    from surefoot.study._sensitivity import Sensitivity

HEAD = ["method", "holds", "best lr", "loss", "decades", "bound says"]


def windows(result: Result) -> list[Sensitivity]:
    """One row per method, with the bound of :func:`usual_bias`."""
    return list(result.sensitivity(bias=usual_bias(result)))


def usual_bias(result: Result) -> Literal["envelope", "pool"] | None:
    """Which bias tables and pages take: that of the study's D or of the true one, else the envelope, else the pool."""
    if result.settings["distance"] is not None or result.optimum().distance is not None:
        return None
    try:
        result.envelope()
    except (NotImplementedError, ValueError):  # networks have none, and a file may not hold it
        return "pool"
    return "envelope"


def cells(rows: Iterable[Sensitivity]) -> list[list[str]]:
    """A table of the rates that hold, measured and predicted, with the head first."""
    return [HEAD, *(_line(row) for row in rows)]


def table(result: Result, rows: Iterable[Sensitivity]) -> list[list[str]]:
    """The table of :func:`cells` with one more column, the runs that diverged."""
    diverged = (result.dataset.status == "diverged").sum(["lr", "seed"]).values
    total = len(result.lrs) * len(result.settings["seeds"])
    head, *body = cells(rows)
    return [[*head, "diverged"], *([*line, f"{count} of {total}"] for line, count in zip(body, diverged, strict=True))]


def text(result: Result) -> str:
    """The table under a line that says what was studied."""
    head, lines = _parts(result)
    return "\n".join([visible(head), *([aligned(lines)] if lines else [])])


def html(result: Result) -> str:
    """The table as HTML under the same line, for notebooks."""
    head, lines = _parts(result)
    return f"<div>{escape(head)}</div>{html_table(lines) if lines else ''}"


def _parts(result: Result) -> tuple[str, list[list[str]]]:
    settings = result.settings
    head = (
        f"{settings['problem']['name']}: {len(result.algorithms)} methods × {len(result.lrs)} rates × "
        f"{len(settings['seeds'])} data orders, {result.steps} steps"
    )
    missing = int((result.dataset.status == "missing").sum())
    if missing == result.dataset.status.size:
        return f"{head}; no run is finished yet", []
    return head + (f"; {missing} runs are missing" if missing else ""), table(result, windows(result))


def _line(row: Sensitivity) -> list[str]:
    return [
        label_of(row.algorithm),
        span(row.low, row.high),
        "none" if math.isnan(row.best_rate) else short(row.best_rate),
        short(row.best_loss),
        "" if math.isinf(row.decades) else f"{row.decades:.1f}",
        span(row.bound_low, row.bound_high),
    ]
