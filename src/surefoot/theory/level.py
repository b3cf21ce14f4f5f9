"""A level in place of a lower bound: how high the loss is above what a few good steps can reach.

SPS and NGN protect by F = f − C. Where C is far below what training can reach, F is several times what a step can gain,
and the step is never shortened. A level C_t needs no lower bound: it lies below the best smoothed loss so far, and is
lowered as that is reached.

**What holds.** For a convex loss, any number C < f(x), below or above the infimum, and any step x⁺ = x − tαg with t in
[0, 1],

    α(f(x) − max{f(u), C} − δ) ≤ ½‖x − u‖² − ½‖x⁺ − u‖²,    δ = F(1 − t) + ½t²α‖g‖²,    F = f(x) − C

for every u. (f(x) − max{f(u), C} is at most both ⟨g, x − u⟩ and F: take t of the first and 1 − t of the second.) So
bounds that rest on the base inequality hold with max{f(u), C_t} in place of f(u): a level above the infimum costs
:func:`price` in the comparator, and nothing else. δ is :func:`surefoot.theory.models.safe_delta`.

**What does not.** In the last-iterate bound earlier iterates are comparators, too: in the window that starts at k, δ_t
becomes δ_t + (C_t − f(x_k, s_t))₊. That does not telescope into one pass, so that partial sums certify nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from surefoot._base.arguments import share
from surefoot.theory.arrays import Array, Namespace, coerce, maximum
from surefoot.theory.training import average_weight


@dataclass(frozen=True)
class Rule:
    """The numbers of a level.

    >>> Rule(share=0.5)
    Rule(share=0.5, first=0.1, smoothing=0.9)
    """

    share: float = 0.2
    """Share of what has been gained so far that a step asks for, in (0, 1)."""
    first: float = 0.1
    """Share of the first loss that the first steps ask for, in (0, 1)."""
    smoothing: float = 0.9
    """Share of the past in the smoothed loss, in [0, 1)."""

    def __post_init__(self) -> None:
        share("share", self.share)
        share("first", self.first)
        share("smoothing", self.smoothing, or_zero=True)


class Seen(NamedTuple):
    """What a level remembers of the losses so far."""

    count: Array = 0.0
    """Number of losses."""
    smooth: Array = 0.0
    """Running average of the losses, whose weights sum to one from the first loss on."""
    best: Array = math.inf
    """The smallest value that the average has had."""
    first: Array = 0.0
    """The first loss."""
    lowest: Array = math.inf
    """The smallest loss of a batch, which tells whether one was below zero."""
    promise: Array = 0.0
    """Running average of the decrease q that the linear model promises for a full step."""


def observe(seen: Seen, loss: Array, decrease: Array, smoothing: float = 0.9) -> Seen:
    """Update what a level remembers by a batch with this loss and promised decrease q = α‖g‖².

    >>> seen = observe(Seen(), loss=2.0, decrease=1.0)
    >>> seen.best, observe(seen, loss=1.0, decrease=1.0).best < 2.0
    (2.0, True)
    """
    xp, (loss, decrease, count, smooth, best, first, lowest, promise) = coerce(loss, decrease, *seen)
    count = count + 1.0
    weight = average_weight(smoothing, count, bias_correction=True)
    smooth = smooth + weight * (loss - smooth)
    return Seen(
        count,
        smooth,
        xp.minimum(best, smooth),
        xp.where(count > 1.0, first, loss),
        xp.minimum(lowest, loss),
        promise + weight * (decrease - promise),
    )


def height(seen: Seen, value: Array, share: float, start: float = 0.1) -> Array:
    """How high a loss is above the level, F = (f − b)₊ + G with b the best smoothed loss.

    G is a ``share`` of what has been gained so far, f₁ − b, and at least ``start`` times the first loss (whatever its
    sign; a first loss of 0 counts as 1). If the first loss was above zero and none was
    ever below, zero is taken for a lower bound: G is at most b, so that losses that can be fitted converge to zero.

    After a spike F is as large as the spike is high, which leads back down; a lucky batch has at least G.

    >>> seen = observe(Seen(), loss=2.0, decrease=1.0)
    >>> height(seen, 2.0, share=0.5), height(seen, 5.0, share=0.5)
    (0.2, 3.2)
    """
    xp, (value, best, first, lowest) = coerce(value, seen.best, seen.first, seen.lowest)
    gained = xp.maximum(share * (first - best), start * _size(xp, first))
    gained = xp.where((lowest < 0.0) | (first <= 0.0), gained, xp.minimum(gained, xp.maximum(best, 0.0 * best)))
    return xp.maximum(value - best, 0.0 * value) + gained


def progress(seen: Seen, start: float = 0.1) -> Array:
    """How far a run has left its start, in [0, 1]: what has been gained over what its first steps ask for.

    >>> seen = observe(Seen(), loss=2.0, decrease=1.0)
    >>> progress(seen), round(progress(seen._replace(best=1.9)), 6), progress(seen._replace(best=1.0))
    (0.0, 0.5, 1.0)
    """
    xp, (best, first) = coerce(seen.best, seen.first)
    share = (first - best) / (start * _size(xp, first))
    return xp.minimum(xp.maximum(share, 0.0 * share), 1.0 + 0.0 * share)


def _size(xp: Namespace, loss: Array) -> Array:
    """|f|, or 1 where that is 0."""
    size = xp.maximum(loss, -loss)
    return xp.where(size > 0.0, size, 1.0 + 0.0 * size)


def steady_decrease(seen: Seen, decrease: Array) -> Array:
    """The larger of a batch's promised decrease and its running average.

    A batch that happens to be fitted promises almost nothing; a Polyak step for it would be as long as the rate allows.
    """
    xp, (decrease, promise) = coerce(decrease, seen.promise)
    return xp.maximum(decrease, promise)


def price(level: Array, comparator: Array) -> Array:
    """What a level costs in the comparator: max{f(u), C} − f(u) = (C − f(u))₊.

    >>> price(0.5, 0.2), price(0.1, 0.2)
    (0.3, 0.0)
    """
    xp, (level, comparator) = coerce(level, comparator)
    return xp.maximum(level - comparator, 0.0 * level)


def agreement(overlap: Array, promise: Array, power: Array = 0.5) -> Array:
    """How far a new batch agrees with what the ones before have promised, as a factor of the step in [0, 1].

        a = clip(⟨g, u⟩/‖d‖_*, 0, 1)^power

    with running averages of both: u is the last direction, which the new batch has had no part in, and ‖d‖_* the slope
    of the average d along its own direction. Where noise rules, batches hardly agree, and shorter steps average over
    more of them.

    >>> agreement(0.25, 1.0), agreement(-1.0, 1.0), agreement(2.0, 1.0)
    (0.5, 0.0, 1.0)
    """
    xp, (overlap, promise) = coerce(overlap, promise)
    # Clipped before the division, which overflows where the promise is tiny.
    overlap = xp.minimum(xp.maximum(overlap, 0.0 * overlap), promise)
    return (overlap / xp.where(promise > 0.0, promise, 1.0 + 0.0 * promise)) ** power


def look_back(count: Array, memory: float, span: float, power: float) -> tuple[Array, Array]:
    """Weight of the newest of ``count`` batches in the averages behind :func:`agreement`, and the power of that.

    The averages look back over W = max{1/(1 − memory), span·count} batches. Their noise, which is clipped at 0, keeps
    the agreement from falling; it falls with W, and the exponent rises with it to 1: 1 − (1 − power)/((1 − memory)W).

    >>> look_back(1.0, 0.95, 0.2, 0.6)
    (1.0, 0.6)
    >>> [round(number, 6) for number in look_back(1000.0, 0.95, 0.2, 0.6)]
    [0.005, 0.96]
    """
    longer = maximum(span * (1.0 - memory) * count, 1.0)  # times the memory
    return average_weight(memory, count, bias_correction=True) / longer, 1.0 - (1.0 - power) / longer


def annealed(agreed: Array, schedule: Array) -> Array:
    """The factor of the step that agreement a and a schedule's factor η give together, between the two of them.

        a^η·η^(1 − η),    a where η ≥ 1

    Without a schedule (η = 1) a alone shortens the step, and averages over noise. As a schedule takes that over, a
    counts for less: where a < η the step is longer than a, and at the end of the schedule it is η.

    >>> annealed(0.25, 1.0), round(annealed(0.25, 0.5), 3), annealed(0.25, 0.0)
    (0.25, 0.354, 0.0)
    """
    xp, (agreed, schedule) = coerce(agreed, schedule)
    eta = xp.minimum(schedule, 1.0 + 0.0 * schedule)
    return xp.where(eta < 1.0, agreed**eta * eta ** (1.0 - eta), agreed)
