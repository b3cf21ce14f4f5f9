"""The last-iterate bound as a form that is fitted to measured losses: any rate, schedule and horizon.

The bound of Theorem 3.4 is a bias that falls with the sum of the rates, and a noise that sums w_t·δ_t. With δ_t ∝ α_t
both are known for every schedule up to constants. Measured losses follow that shape if its constants are fitted:

    loss = floor + exp(log_bias)·S^(−bias_power) + exp(log_noise)·N^(noise_power)·A^(rate_power)·S^(−time_power)

    S = Σ_t a_t,   N = Σ_t w_t a_t,   w_t = min(1, a_t/(a_{t+1} + … + a_T)),   A = Σ_t a_t²/S  (the typical rate)

Powers of one, and zero for the last two, give the bound itself, but for weights of at most 1: so a schedule may end at
zero. A and S in the noise say that gradients are smaller at larger rates and later in the run.

The rates a_t are *effective* ones. Steps make the weights of a network grow and weight decay shrinks them, and what
a step does depends on its size relative to the weights:

    a_t = α_t/√(1 + G·Q_t),     Q_t = Σ_{k≤t} α_k² exp(−2λ(α_{k+1} + … + α_t)),     G = exp(log_growth)

with the weight decay λ. ``log_growth`` = −∞ leaves the rates as they are.

A schedule is summed up in about a hundred parts that get longer towards its beginning (:func:`trace`), where the
weights change slowly, so that the form costs the same for every horizon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import number
from surefoot.theory.bounds import rates_over_time

Floats = np.ndarray[Any, np.dtype[np.float64]]

PARAMETERS = (
    "floor", "log_bias", "bias_power", "log_noise", "noise_power", "rate_power", "time_power", "log_growth",
)  # fmt: skip
"""The fitted numbers, in the order of the last axis of parameter arrays."""

_GROWTH = 1.1
"""How much longer each part of a schedule is than the one after it."""
_SINGLE = 12
"""The steps at the end that are parts of their own."""


class Trace(NamedTuple):
    """Schedules cut into parts, latest first, on the last axis; parts that are not needed have no steps."""

    counts: Floats
    """Number of steps of each part."""
    rates: Floats
    """Mean rate of each part."""
    growths: Floats
    """Mean Q_t of each part, by which the weights have grown."""


class Reference(NamedTuple):
    """Units, so that fitted numbers are of order one and do not depend on the scale of the rates."""

    rate: float = 1.0
    growth: float = 1.0
    total: float = 1.0
    noise: float = 1.0


class Sums(NamedTuple):
    """S, N and A of schedules, in the units of a reference."""

    total: Floats
    noise: Floats
    typical: Floats


def trace(lrs: ArrayLike, horizons: Sequence[int] | None = None, *, weight_decay: float = 0.0) -> Trace:
    """Cut schedules into parts, in one pass; with ``horizons`` also their beginnings, on an axis before the last.

    Args:
        lrs: Rates α_t ≥ 0, time on the last axis; other axes are further schedules.
        horizons: Numbers of steps; the sums of the first so many steps follow from the same pass.
        weight_decay: λ as in AdamW, where a step multiplies the weights by 1 − α_t λ.

    >>> cut = trace([0.5, 1.0, 1.0], horizons=[1, 3])
    >>> (cut.counts * cut.rates).sum(axis=-1)
    array([0.5, 2.5])
    """
    rates = rates_over_time(lrs)
    steps = rates.shape[-1]
    ends = np.array([steps] if horizons is None else horizons)
    if ends.ndim != 1 or not len(ends) or ends.dtype.kind not in "iu" or ends.min() < 1 or ends.max() > steps:
        raise ValueError(f"horizons must be a sequence of whole numbers from 1 to {steps}, got {horizons!r}")
    edges = np.maximum(ends[:, None] - _offsets(int(ends.max())), 0)
    parts = _with_growths(np.diff(-edges), part_means(rates, edges), weight_decay)
    return parts if horizons is not None else Trace(*(part[..., 0, :] for part in parts))


def coarse(steps: int, rates: ArrayLike, *, weight_decay: float = 0.0) -> Trace:
    """A trace from the mean rates of its parts, as :func:`part_means` gives them; other axes are further schedules."""
    return _with_growths(np.diff(_offsets(steps)), np.asarray(rates, float), weight_decay)


def part_ends(steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where the parts of a schedule of so many steps begin and end, latest first: from T down to 0.

    >>> part_ends(3)
    array([3, 2, 1, 0])
    """
    return steps - _offsets(steps)


def part_means(values: ArrayLike, edges: Any = None) -> Floats:
    """Means over the parts of a schedule, latest first, or between other falling edges; 0 where two are the same.

    >>> part_means([1.0, 2.0, 3.0])
    array([3., 2., 1.])
    """
    array = np.asarray(values, float)
    edges = part_ends(array.shape[-1]) if edges is None else edges
    sums = np.concatenate([np.zeros((*array.shape[:-1], 1)), np.cumsum(array, axis=-1)], axis=-1)
    return np.asarray(np.maximum(np.diff(sums[..., edges], axis=-1) / np.minimum(np.diff(edges), -1), 0.0))


def _with_growths(counts: Any, rates: Floats, weight_decay: float) -> Trace:
    """The trace of parts with these rates: Q of a part follows from that of the one before it."""
    counts = np.broadcast_to(counts.astype(float), rates.shape)
    decay = 2 * number("weight_decay", weight_decay, least=0) * rates
    few = decay * counts < 1e-6  # where the quotients would cancel
    gone = np.where(few, 1.0, -np.expm1(-decay))  # share that a step takes
    left = np.exp(-decay * counts)
    added = rates**2 * np.where(few, counts, (1 - left) / gone)  # by the part until its end
    old = np.where(few, 1.0, (1 - gone) * (1 - left) / (gone * np.maximum(counts, 1)))  # mean share of what was there
    new = rates**2 * np.where(few, 0.5 * (counts + 1), (1 - old) / gone)
    growths, before = np.empty_like(rates), np.zeros(rates.shape[:-1])
    for place in range(rates.shape[-1] - 1, -1, -1):  # the earliest part is the last one
        growths[..., place] = before * old[..., place] + new[..., place]
        before = before * left[..., place] + added[..., place]
    return Trace(counts, rates, growths)


def stack(traces: Sequence[Trace]) -> Trace:
    """One trace of several with the same number of leading axes, along the first."""
    longest = max(item.counts.shape[-1] for item in traces)

    def padded(values: Floats) -> Floats:
        return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, longest - values.shape[-1])])

    return Trace(*(np.concatenate([padded(item[k]) for item in traces]) for k in range(3)))


def sums(parts: Trace, log_growth: ArrayLike = -math.inf, reference: Reference | None = None) -> Sums:
    """S, N and A of effective rates, each a number a schedule.

    ``log_growth`` may be an array: its axes come first in the result.

    >>> total, noise, typical = sums(trace([1.0, 1.0]))
    >>> float(total), float(noise), float(typical)
    (2.0, 2.0, 1.0)
    """
    unit = reference or Reference()
    growth = np.exp(np.asarray(log_growth, float))
    growth = growth.reshape(growth.shape + (1,) * parts.rates.ndim)
    rate = parts.rates / unit.rate * np.sqrt((1 + growth) / (1 + growth * parts.growths / unit.growth))
    mass = rate * parts.counts
    behind = np.cumsum(mass, axis=-1)
    after = behind - 0.5 * (mass + rate)  # S_{t+1} in the middle of a part
    weight = mass / np.where(mass > 0, np.maximum(after, rate), 1.0)
    total = behind[..., -1]
    return Sums(total / unit.total, (weight * rate).sum(axis=-1) / unit.noise, (rate * mass).sum(axis=-1) / total)


def loss(parameters: ArrayLike, parts: Trace, reference: Reference | None = None) -> Floats:
    """The form, for every schedule of a trace; rows of parameters (first axes) give rows of losses.

    >>> float(loss([2.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, -math.inf], trace([0.5, 0.5])))
    4.0
    """
    return np.asarray(sum(terms(parameters, parts, reference)))


def terms(parameters: ArrayLike, parts: Trace, reference: Reference | None = None) -> tuple[Floats, Floats, Floats]:
    """Floor, bias and noise of the form, which sum to the loss."""
    fitted = np.asarray(parameters, float)
    log_s, log_n, log_a = np.log(sums(parts, fitted[..., 7], reference))
    floor, log_bias, p, log_noise, q, r, e, _ = (
        column.reshape(column.shape + (1,) * (parts.rates.ndim - 1)) for column in np.moveaxis(fitted, -1, 0)
    )
    with np.errstate(over="ignore"):
        return floor, np.exp(log_bias - p * log_s), np.exp(log_noise + q * log_n + r * log_a - e * log_s)


def _offsets(steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Distances of the cuts from the end: single steps, then parts that grow, up to all steps."""
    offsets = list(range(min(_SINGLE, steps) + 1))
    length = 1.0
    while offsets[-1] < steps:
        length *= _GROWTH
        offsets.append(min(steps, offsets[-1] + int(length)))
    return np.array(offsets)
