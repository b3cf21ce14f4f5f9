"""What the steps of a run say about its rate: a few numbers without units, from the numbers of each step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from surefoot.rules import Floats

NEEDED = ("loss", "rate", "size", "sample_sq", "slope", "moved_sq", "point_sq", "away_sq")
"""Columns without which a step is no evidence; ``carried`` may be missing at some of them."""

_TINY = 1e-300
_SHARE = 0.1
"""Of the first loss that counts as a gain within reach before anything was gained."""
_GAINED = 0.4
"""Of what was gained already that counts as a gain within reach."""
_USUAL_WEIGHT = 0.03
"""Size of a weight where all parameters start at zero, so that nothing else says how long a step is."""


class Evidence(NamedTuple):
    """Numbers without units; all but ``ratio``, ``warmup`` and ``first`` and ``last`` are decimal logarithms.

    Steps before the peak of the schedule count as if they had been taken at the peak rate.
    """

    promise: float
    """Decrease that the slopes ⟨g, Δ⟩ of the steps promise for the whole run, over the first loss."""
    kept: float
    """The same with the slopes that are left at the *ends* of the steps, on other batches: steps that overshoot have
    none (−2)."""
    worst_height: float
    """The promise of a single step over what there is to gain (z with the height of the level), the largest of it."""
    late_height: float
    """The same, the median of the later half of the steps."""
    step: float
    """Length of a step over that of the parameters, the median."""
    away: float
    """Distance from the start over the length of the parameters."""
    ratio: float
    """Loss of the last quarter of the steps over that of the first ones, as a decimal logarithm."""
    shortened: float
    """Share of its rate that an optimizer of ours took, the median; 0 for all others."""
    warmup: float
    """1 if the rate has risen to its peak, else 0."""
    first: float
    """Mean loss of the first steps."""
    last: float
    """Mean loss of the last quarter of the steps."""


def gather(columns: Mapping[str, Floats], horizon: int, peak: float, elements: int) -> Evidence:
    """The evidence of some steps: at least two, all finite, each with a rate above 0 and a step that was taken.

    Args:
        columns: ``NEEDED`` and ``carried``, an entry a step.
        horizon: Steps of the whole run.
        peak: The largest rate of the run.
        elements: Parameters that were looked at.
    """
    loss, rate, slope = (columns[name] for name in ("loss", "rate", "slope"))
    late, half = max(2, len(loss) // 4), len(loss) // 2
    first, last = _mean(loss[: max(2, len(loss) // 10)]), _mean(loss[-late:])
    unit = max(abs(first), _TINY)
    to_peak = peak / rate
    moved = np.sqrt(columns["moved_sq"]) * to_peak
    length = math.sqrt(columns["point_sq"][0])
    if length < 1e-4 * math.sqrt(elements):
        length = _USUAL_WEIGHT * math.sqrt(elements)
    # The level: the loss above the best so far, and a share of what was gained already.
    best = np.minimum.accumulate(_smooth(loss))
    height = np.maximum(loss - best, 0.0) + np.maximum(_GAINED * (first - best), _SHARE * unit)
    promised = slope * to_peak
    relative = promised / height
    kept = (columns["carried"][1:] * to_peak[:-1])[np.isfinite(columns["carried"][1:])]
    return Evidence(
        promise=_log(horizon * (_mean(promised) / unit), -3),
        kept=_log(horizon * (_mean(kept) / unit), -2) if len(kept) else 0.0,
        worst_height=_log(float(np.max(_smooth(relative))), -4),
        late_height=_log(float(np.median(relative[half:])), -4),
        step=_log(float(np.median(moved)) / length, -5),
        away=_log(math.sqrt(columns["away_sq"][-1]) / length, -4),
        ratio=float(np.log10(last / first)) if first > 0 and last > 0 else 0.0,
        shortened=_log(float(np.median(columns["size"] / rate)), -3),
        warmup=float(rate[0] < 0.5 * peak),
        first=first,
        last=last,
    )


def _mean(values: Floats) -> float:
    """A mean that does not overflow before its result does."""
    return float(np.sum(values / len(values)))


def _smooth(values: Floats) -> Floats:
    """Means over three neighbours; the ends count twice at the ends."""
    padded = np.concatenate([values[:1], values, values[-1:]]) / 3.0
    return np.asarray(padded[:-2] + padded[1:-1] + padded[2:])


def _log(value: float, least: float) -> float:
    """A decimal logarithm, or ``least`` for what is smaller or not above 0."""
    return max(math.log10(min(value, 1e300)), least) if value > 0 else least
