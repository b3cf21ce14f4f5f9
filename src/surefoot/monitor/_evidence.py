"""The evidence of a run about its rate: a few dimensionless numbers, from the numbers of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from surefoot.rules import Floats

NEEDED = ("loss", "rate", "size", "slope", "moved_sq", "point_sq", "away_sq", "back")
"""Columns without which a step is no evidence; ``carried`` may be missing at some of them."""

PROMISED, AWAY = (-7.0, 2.0), (-7.0, 1.5)
"""Limits of ``promised`` and ``away``. Both shrink with the rate until steps are lost in the rounding of float32; and
points that a large rate has led to say nothing about smaller rates."""

_TINY = 1e-300
_USUAL_WEIGHT = 0.03
"""Size of a weight where all parameters start at zero, so that they have no length to compare distances with."""
_MEDIAN_DIFFERENCE = 0.95
"""Median of |a − b| for two numbers drawn from a normal distribution of deviation 1."""


class Evidence(NamedTuple):
    """Dimensionless numbers of the first steps of a run. Losses are measured in units of the first loss."""

    promised: float
    """log10 of the decrease that the slopes Σ⟨g, Δ⟩ of the steps have promised."""
    uphill: float
    """±ln(1 + 100|⟨g, x − x_1⟩|), the slope of the way from the start where it ends: above 0, it has gone too far."""
    learned: float
    """By how much the loss has fallen, from 0 to 1."""
    spike: float
    """log10(1 + the highest rise of the loss above the very first one), of three steps in a row."""
    away: float
    """log10 of the distance from the start over the length of the parameters."""
    straight: float
    """log10 of the squared distance over that of a straight way of as many steps: 0, or far below for a random walk."""
    kept: float
    """log10 of the decrease that the slopes at the *ends* of the steps, ⟨g⁺, Δ⟩, promise for the whole run: steps that
    overshoot have none (−2)."""
    shortened: float
    """log10 of the share of its rate that an optimizer of ours took, the median; 0 for all others."""
    warmup: float
    """1 if the rate has risen to its peak, else 0."""
    falls: float
    """1 if the rate has begun to fall, else 0."""
    noise: float
    """log10 of the scatter of the losses from batch to batch."""
    above: float
    """Share of the steps with a loss above the very first one, by more than the scatter."""


class Losses(NamedTuple):
    """A run's losses in a few numbers."""

    first: float
    late: float
    """The median loss of the last quarter, twenty steps at most."""
    unit: float
    """The unit of loss: the first one, or the noise where the first is near 0 by chance."""
    noise: float
    """The scatter from one batch to the next."""
    doubled: bool
    """Whether the late loss is twice the very first one."""
    clearly: bool
    """Whether the late loss is above that by more than noise."""


def summarise(begin: Floats, so_far: Floats) -> Losses:
    """Summarise the losses of a run's first steps, at least two, and of all steps so far."""
    noise = float(np.median(np.abs(np.diff(begin)))) / _MEDIAN_DIFFERENCE
    # A first step that was far too long must not count as the beginning; nor may a lucky batch.
    spread = max(abs(float(begin[0])), noise if begin.min() < 0 else 0.0)
    first = min(_mean(begin[: _quarter(begin)]), float(begin[0]) + spread)
    late = float(np.median(so_far[-min(_quarter(so_far), 20) :]))
    unit = max(abs(first), 2 * noise if first < 2 * noise and begin.min() < 0 else 0.0, _TINY)
    return Losses(first, late, unit, noise, late > begin[0] + spread, late > begin[0] + spread + 3 * noise)


def gather(columns: Mapping[str, Floats], horizon: int, peak: float, elements: int, every: int = 1) -> Evidence:
    """The evidence of some steps: at least two, all finite, each with a rate above 0 and a step that was taken.

    Args:
        columns: ``NEEDED`` and ``carried``, one entry per step.
        horizon: Steps of the whole run.
        peak: The largest rate of the run.
        elements: Parameters in the sample.
        every: Steps from one entry to the next.
    """
    loss, rate = columns["loss"], columns["rate"]
    first, late, unit, noise, *_ = summarise(loss, loss)
    to_peak = peak / rate
    length = math.sqrt(columns["point_sq"][0])
    if length < 1e-4 * math.sqrt(elements):
        length = _USUAL_WEIGHT * math.sqrt(elements)
    ahead = peak / float(np.max(rate))  # a warmup that goes on counts as if its peak were reached now
    uphill = _mean(columns["back"][-_quarter(loss) :]) / unit
    kept = columns["carried"][1:] * to_peak[:-1]
    kept = kept[np.isfinite(kept)]
    way_sq, steps_sq = columns["away_sq"][-1], every * _sum(columns["moved_sq"][:-1])
    return Evidence(
        promised=_log(ahead * every * _sum(columns["slope"]) / unit, *PROMISED),
        uphill=math.copysign(math.log1p(100 * min(abs(uphill), 3.0)), uphill),
        learned=float(np.clip((first - late) / unit, 0.0, 1.0)),
        spike=_log(1.0 + max(_highest(loss) - loss[0], 0.0) / unit, 0, 2),
        away=_log(ahead * math.sqrt(way_sq) / length, *AWAY),
        straight=_log(way_sq / max(steps_sq, _TINY) / (every * (len(loss) - 1)), -3, 0),
        kept=_log(horizon * (_mean(kept) / unit), -2, 3) if len(kept) else 0.0,
        shortened=_log(float(np.median(columns["size"] / rate)), -3, 0),
        warmup=float(rate[0] < 0.5 * peak),
        falls=float(rate[-1] < 0.98 * np.max(rate)),
        noise=_log(noise / unit, -3, 1),
        above=float(np.mean(loss > loss[0] + noise)),
    )


def _highest(values: Floats) -> float:
    """The highest median of three neighbours."""
    neighbours = np.stack([values[:-2], values[1:-1], values[2:]]) if len(values) > 2 else values[None]
    return float(np.median(neighbours, axis=0).max())


def _quarter(values: Floats) -> int:
    return max(2, len(values) // 4)


def _sum(values: Floats) -> float:
    return len(values) * _mean(values) if len(values) else 0.0


def _mean(values: Floats) -> float:
    """A mean that does not overflow before its result does."""
    return float(np.sum(values / len(values)))


def _log(value: float, least: float, most: float) -> float:
    """A decimal logarithm within limits; the least for what is not above 0."""
    return min(max(math.log10(min(value, 1e300)), least), most) if value > 0 else float(least)
