"""Charts of the numbers of a run over its steps, as SVG: a line, with a band where a point stands for many steps."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from surefoot.plots import short, ticks
from surefoot.rules import Floats

POINTS = 256
"""Points of a line, at most."""
_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 10, 30
_HUGE = 1e290
"""Beyond it a picture says nothing, and arithmetic overflows."""


def points(values: Floats) -> Floats:
    """Step, smallest, mean and largest value of every point of a line; NaN where nothing finite was measured.

    >>> points(np.array([3.0, 1.0, np.inf])).tolist()
    [[0.0, 3.0, 3.0, 3.0], [1.0, 1.0, 1.0, 1.0], [2.0, nan, nan, nan]]
    """
    count = len(values)
    width = max(1, -(-count // POINTS))
    parts = np.full((-(-count // width), width), np.nan)
    parts.ravel()[:count] = np.where(np.isfinite(values), np.clip(values, -_HUGE, _HUGE), np.nan)
    known = np.ma.masked_invalid(parts)
    steps = np.minimum((np.arange(len(parts)) + 0.5) * width, count) - 0.5
    return np.column_stack(
        [steps, *(np.ma.filled(each(axis=1), np.nan) for each in (known.min, known.mean, known.max))]
    )


def chart(title: str, values: Floats, horizon: int | None, suggested: tuple[float, float] | None = None) -> str:
    """A figure of the values, one per step: NaN is what was not measured, ∞ what is not finite, marked at the top.

    Args:
        title: What they are.
        values: The values.
        horizon: The steps of the whole run, if they are known.
        suggested: A range of values, drawn behind them.
    """
    rows, bad = points(values), np.flatnonzero(np.isinf(values))
    known, text = rows[~np.isnan(rows[:, 2])], escape(title)
    if not len(known):
        why = f"not finite at {len(bad)} of {len(values)} steps" if len(bad) else "not measured"
        return f'<figure><figcaption>{text}</figcaption><p class="soft">{why}</p></figure>'
    now = f' <span class="soft">now {short(float(values[-1]))}</span>'
    label = f"{text}, from {short(float(known[0, 2]))} to {short(float(known[-1, 2]))} at step {len(values)}"
    low, high = float(known[:, 1].min()), float(known[:, 3].max())
    if suggested is not None:
        low = min(suggested[0], max(low, min(suggested[0], high) / 30))  # a schedule may end at 0
        rows[:, 1:] = np.maximum(rows[:, 1:], low)
        low, high = low / 1.3, 1.3 * max(high, suggested[1])
        now += ' <span class="soft"><i class="key"></i>suggested</span>'
        label += f", suggested {short(suggested[0], 2)} to {short(suggested[1], 2)}"
    if low == high:  # a constant is drawn in the middle
        low, high = (low - abs(low), high + abs(high)) if high else (low - 1, high + 1)
    logarithmic = low > 0 and high > 8 * low
    last = max(len(values), 2) - 1
    span = max(last, min(horizon or 0, 4 * last))

    def across(step: Any) -> Any:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / span

    def down(value: Any) -> Any:
        if logarithmic:
            part = (np.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))
        else:
            part = (np.asarray(value) / 2 - low / 2) / max(high / 2 - low / 2, 1e-300)  # halves do not overflow
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * part

    parts = []
    if suggested is not None:
        bottom, top = down(suggested[0]), down(suggested[1])
        parts.append(
            f'<rect class="suggested" x="{_LEFT}" width="{_WIDTH - _LEFT - _RIGHT}" y="{top:.1f}" '
            f'height="{bottom - top:.1f}"/>'
        )
    for level in ticks(low, high, log=logarithmic):
        y = down(level)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{short(level)}</text>')
    for step in ticks(0, span):
        x = across(step)
        side = "middle" if x < _WIDTH - 30 else "end"
        parts.append(f'<text class="{side}" x="{x:.1f}" y="{_HEIGHT - 10}">{short(step)}</text>')
    if len(values) > len(rows):
        band = zip(across(rows[:, 0]), *down(rows[:, 1::2].T), strict=True)
        strokes = "".join(f"M{x:.1f},{a:.1f}V{b:.1f}" for x, a, b in band if a == a)
        parts.append(f'<path class="band" d="{strokes}"/>')
    line, pen = [], "M"
    for x, y in zip(across(rows[:, 0]), down(rows[:, 2]), strict=True):
        if y == y:
            line.append(f"{pen}{x:.1f},{y:.1f}{'h0' * (pen == 'M')}")  # a point alone is a dot
        pen = "L" if y == y else "M"
    parts.append(f'<path class="line" d="{"".join(line)}"/>')
    if len(bad):
        x = across(bad[0])
        side, shift = ("end", -5) if x > _WIDTH / 2 else ("start", 5)
        parts.append(f'<line class="bad" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text class="badword {side}" x="{x + shift:.1f}" y="{_TOP + 12}">not finite</text>')
    drawing = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{text}{now}</figcaption>{drawing}</figure>"
