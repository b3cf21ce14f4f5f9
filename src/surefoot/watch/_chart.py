"""Curves over the steps of a run, and their charts as SVG: a line, with a band where a point stands for many steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from surefoot.plots import short, ticks
from surefoot.rules import Floats

Scale = Callable[[Any], Any]
"""From a number to a place in the picture."""

LIMIT = 256
"""Buckets of a curve, at most."""
WIDTH, HEIGHT = 460, 230
_HUGE = 1e290
"""Beyond it a picture says nothing, and arithmetic overflows."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 10, 30


@dataclass(frozen=True)
class Curve:
    """Values over the steps as they are drawn: where there are many, neighbours share a bucket.

    >>> Curve.of(np.array([3.0, 1.0, np.inf])).rows.tolist()
    [[0.0, 3.0, 3.0, 3.0], [1.0, 1.0, 1.0, 1.0], [2.0, nan, nan, nan]]
    """

    rows: Floats
    """Step, smallest, mean and largest value of every bucket; NaN where nothing finite was measured."""
    count: int
    """The number of all values."""
    last: float
    bad: int
    """The number of values that were not finite."""
    first_bad: int
    """The step of the first of them."""

    @classmethod
    def of(cls, values: Floats) -> Curve:
        """The curve of values, one a step; NaN is what was not measured, ∞ what is not finite."""
        count, infinite = len(values), np.isinf(values)
        width = max(1, -(-count // LIMIT))
        buckets = np.full((-(-count // width), width), np.nan)
        buckets.ravel()[:count] = np.where(infinite, np.nan, values)
        there = ~np.isnan(buckets)
        low, high = np.where(there, buckets, np.inf).min(axis=1), np.where(there, buckets, -np.inf).max(axis=1)
        share = 1.0 / np.maximum(there.sum(axis=1, keepdims=True), 1)
        mean = (np.where(there, buckets, 0.0) * share).sum(axis=1)
        known = np.where(there.any(axis=1)[:, None], np.stack([low, mean, high], axis=1), np.nan)
        steps = np.minimum((np.arange(len(buckets)) + 0.5) * width, max(count, 1)) - 0.5
        last = float(values[-1]) if count else math.nan
        return cls(
            np.column_stack([steps, known]), count, last, int(infinite.sum()), int(np.argmax(infinite)) if count else 0
        )


def chart(title: str, curve: Curve, horizon: int | None) -> str:
    """A figure of a curve; what is not finite is marked at the top."""
    rows = np.clip(curve.rows, -_HUGE, _HUGE)
    known = rows[~np.isnan(rows[:, 2])]
    text = escape(title)
    if not len(known):
        bad = f"not finite at {curve.bad} of {curve.count} steps" if curve.bad else "not measured"
        return f'<figure><figcaption>{text}</figcaption><p class="soft">{bad}</p></figure>'
    low, high = float(known[:, 1].min()), float(known[:, 3].max())
    if low == high:  # a constant is drawn in the middle
        low, high = (low - abs(low), high + abs(high)) if high else (low - 1, high + 1)
    logarithmic = low > 0 and high > 8 * low
    levels = ticks(low, high, log=logarithmic)
    last = max(curve.count, 2) - 1
    span = max(last, min(horizon or 0, 4 * last))

    def across(step: Any) -> Any:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * step / span

    def down(value: Any) -> Any:
        if logarithmic:
            share = (np.log10(value) - math.log10(low)) / max(math.log10(high) - math.log10(low), 1e-12)
        else:
            share = (np.asarray(value) / 2 - low / 2) / max(high / 2 - low / 2, 1e-300)  # halves do not overflow
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * share

    parts = [
        f'<line class="rule" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{down(tick):.1f}" y2="{down(tick):.1f}"/>'
        f'<text class="end" x="{_LEFT - 6}" y="{down(tick) + 4:.1f}">{short(tick)}</text>'
        for tick in levels
    ]
    parts += [
        f'<text class="{"middle" if across(step) < WIDTH - 30 else "end"}" x="{across(step):.1f}" y="{HEIGHT - 10}">'
        f"{short(step)}</text>"
        for step in ticks(0, span)
    ]
    if curve.count > len(rows):
        parts += [_band(piece, across, down) for piece in _pieces(rows)]
    parts += [_line(piece, across, down) for piece in _pieces(rows)]
    if curve.bad:
        x = across(curve.first_bad)
        parts.append(f'<line class="bad" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        side, shift = ("end", -5) if x > WIDTH / 2 else ("start", 5)
        parts.append(f'<text class="badword {side}" x="{x + shift:.1f}" y="{_TOP + 12}">not finite</text>')
    label = f"{text}, from {short(float(known[0, 2]))} to {short(float(known[-1, 2]))} at step {curve.count}"
    drawing = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    now = f' <span class="soft">now {short(curve.last)}</span>'
    return f"<figure><figcaption>{text}{now}</figcaption>{drawing}</figure>"


def _pieces(rows: Floats) -> list[Floats]:
    """The stretches of a curve that have no gap."""
    there = ~np.isnan(rows[:, 2])
    cuts = np.flatnonzero(np.diff(there.astype(int))) + 1
    return [piece for piece in np.split(rows, cuts) if len(piece) and not np.isnan(piece[0, 2])]


def _line(rows: Floats, across: Scale, down: Scale) -> str:
    if len(rows) == 1:
        return f'<circle class="dot" r="2" cx="{across(rows[0, 0]):.1f}" cy="{down(rows[0, 2]):.1f}"/>'
    points = " ".join(f"{across(step):.1f},{down(mean):.1f}" for step, _, mean, _ in rows)
    return f'<polyline class="line" points="{points}"/>'


def _band(rows: Floats, across: Scale, down: Scale) -> str:
    there = [f"{across(step):.1f},{down(high):.1f}" for step, _, _, high in rows]
    back = [f"{across(step):.1f},{down(low):.1f}" for step, low, _, _ in rows[::-1]]
    return f'<polygon class="band" points="{" ".join(there + back)}"/>'
