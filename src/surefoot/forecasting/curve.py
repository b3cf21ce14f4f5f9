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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Reference:
    """Units, so that fitted numbers are of order one and do not depend on the scale of the rates."""

    rate: float = 1.0
    growth: float = 1.0
    total: float = 1.0
    noise: float = 1.0


class Sums(NamedTuple):
    """What the form needs of a schedule, in the units of a reference, and the derivatives by ``log_growth``."""

    total: Floats
    noise: Floats
    typical: Floats
    d_total: Floats
    d_noise: Floats
    d_typical: Floats


def weight_growth(lrs: ArrayLike, weight_decay: float = 0.0) -> Floats:
    """Q_t = Σ_{k≤t} α_k² exp(−2λ(α_{k+1} + … + α_t)): by how much the squared weights have grown, up to a constant.

    >>> weight_growth([1.0, 1.0, 2.0])
    array([1., 2., 6.])
    """
    rates = np.asarray(lrs, float)
    if number("weight_decay", weight_decay, least=0) == 0:
        return np.cumsum(rates**2, axis=-1)
    exponent = 2 * weight_decay * np.cumsum(rates, axis=-1)
    with np.errstate(divide="ignore"):  # as logarithms, because exp(exponent) would overflow over a long run
        grown = np.logaddexp.accumulate(2 * np.log(rates) + exponent, axis=-1)
    return np.asarray(np.exp(grown - exponent))


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
    counts = np.diff(-edges).astype(float)
    mean, growth = _means(rates, edges), _means(weight_growth(rates, weight_decay), edges)
    parts = Trace(np.broadcast_to(counts, mean.shape), np.maximum(mean, 0.0), growth)
    return parts if horizons is not None else Trace(*(part[..., 0, :] for part in parts))


def coarse(steps: int, rates: ArrayLike, *, weight_decay: float = 0.0) -> Trace:
    """A trace from the mean rates of its parts, as many as :func:`part_ends` has; other axes are further schedules.

    This costs nothing beside :func:`trace`, and is as exact as the rates change little within a part.
    """
    mean = np.asarray(rates, float)
    counts = np.broadcast_to(np.diff(_offsets(steps)).astype(float), mean.shape)
    growths, before = np.empty_like(mean), np.zeros(mean.shape[:-1])
    for place in range(mean.shape[-1] - 1, -1, -1):  # the earliest part is the last one
        rate, count = mean[..., place], counts[..., place]
        half = np.exp(-weight_decay * rate * count)
        added = 0.5 * rate**2 * count
        growths[..., place] = before * half + added * np.sqrt(half)
        before = growths[..., place] * half + added * np.sqrt(half)
    return Trace(counts, mean, growths)


def part_ends(steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where the parts of a schedule of so many steps begin and end, latest first: from T down to 0.

    >>> part_ends(3)
    array([3, 2, 1, 0])
    """
    return steps - _offsets(steps)


def part_means(values: ArrayLike) -> Floats:
    """Means over the parts of a schedule, latest first, as :func:`coarse` takes them.

    >>> part_means([1.0, 2.0, 3.0])
    array([3., 2., 1.])
    """
    array = np.asarray(values, float)
    return np.maximum(_means(array, part_ends(array.shape[-1])), 0.0)


def _means(values: Floats, edges: Any) -> Floats:
    """Means between falling edges, which are on the last axis; 0 where two edges are the same."""
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)
    means: Floats = np.diff(sums[..., edges], axis=-1) / np.minimum(np.diff(edges), -1)
    return means


def stack(traces: Sequence[Trace]) -> Trace:
    """One trace of several with the same number of leading axes, along the first."""
    longest = max(item.counts.shape[-1] for item in traces)

    def padded(values: Floats) -> Floats:
        missing = longest - values.shape[-1]
        return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])

    return Trace(*(np.concatenate([padded(item[k]) for item in traces]) for k in range(3)))


def sums(parts: Trace, log_growth: ArrayLike = -math.inf, reference: Reference | None = None) -> Sums:
    """S, N and A of effective rates, each a number a schedule.

    ``log_growth`` may be an array: its axes come first in the result.

    >>> total, noise, typical, *_ = sums(trace([1.0, 1.0]))
    >>> float(total), float(noise), float(typical)
    (2.0, 2.0, 1.0)
    """
    unit = reference or Reference()
    growth = np.exp(np.asarray(log_growth, float))
    growth = growth.reshape(growth.shape + (1,) * parts.rates.ndim)
    relative = parts.growths / unit.growth
    rate = parts.rates / unit.rate * np.sqrt((1 + growth) / (1 + growth * relative))
    slope = 0.5 * growth * (1 / (1 + growth) - relative / (1 + growth * relative))  # d log(rate)/d log_growth
    mass = rate * parts.counts
    behind = np.cumsum(mass, axis=-1)
    after = behind - 0.5 * (mass + rate)  # S_{t+1} in the middle of a part
    moved = slope * mass
    capped = after < rate
    middle = np.where(mass > 0, np.where(capped, rate, after), 1.0)
    d_middle = np.where(capped, slope * rate, np.cumsum(moved, axis=-1) - 0.5 * (moved + slope * rate))
    weight = mass / middle
    total = behind[..., -1]
    typical = (rate * mass).sum(axis=-1) / total
    noise = (weight * rate).sum(axis=-1)
    d_total = moved.sum(axis=-1)
    d_noise = (weight * rate * (2 * slope - d_middle / middle)).sum(axis=-1)
    d_typical = (2 * slope * rate * mass).sum(axis=-1) / total - typical * d_total / total
    return Sums(total / unit.total, noise / unit.noise, typical, d_total / unit.total, d_noise / unit.noise, d_typical)


def loss(parameters: ArrayLike, parts: Trace, reference: Reference | None = None) -> Floats:
    """The form, for every schedule of a trace; rows of parameters (first axes) give rows of losses.

    >>> float(loss([2.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, -math.inf], trace([0.5, 0.5])))
    4.0
    """
    fitted = np.asarray(parameters, float)
    return _terms(fitted, sums(parts, fitted[..., 7], reference), parts.rates.ndim - 1)[0]


def loss_and_gradient(parameters: ArrayLike, parts: Trace, reference: Reference | None = None) -> tuple[Floats, Floats]:
    """The form, and its derivatives by the eight parameters on a new last axis."""
    fitted = np.asarray(parameters, float)
    summed = sums(parts, fitted[..., 7], reference)
    value, bias, noise, (log_s, log_n, log_a) = _terms(fitted, summed, parts.rates.ndim - 1)
    _, _, p, _, q, r, e, _ = fitted
    by_growth = -p * bias * summed.d_total / summed.total + noise * (
        q * summed.d_noise / summed.noise + r * summed.d_typical / summed.typical - e * summed.d_total / summed.total
    )
    columns = (np.ones_like(bias), bias, -bias * log_s, noise, noise * log_n, noise * log_a, -noise * log_s, by_growth)
    return value, np.stack(columns, axis=-1)


def _terms(fitted: Floats, summed: Sums, axes: int) -> tuple[Floats, Floats, Floats, tuple[Floats, Floats, Floats]]:
    """The loss, its bias, its noise, and the logarithms of S, N and A."""
    floor, log_bias, p, log_noise, q, r, e, _ = (
        column.reshape(column.shape + (1,) * axes) for column in np.moveaxis(fitted, -1, 0)
    )
    log_s, log_n, log_a = np.log(summed.total), np.log(summed.noise), np.log(summed.typical)
    with np.errstate(over="ignore"):
        bias = np.exp(log_bias - p * log_s)
        noise = np.exp(log_noise + q * log_n + r * log_a - e * log_s)
    return floor + bias + noise, bias, noise, (log_s, log_n, log_a)


def _offsets(steps: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Distances of the cuts from the end: single steps, then parts that grow, up to all steps."""
    offsets = list(range(min(_SINGLE, steps) + 1))
    length = 1.0
    while offsets[-1] < steps:
        length *= _GROWTH
        offsets.append(min(steps, offsets[-1] + int(length)))
    return np.array(offsets)
