"""A level in place of a lower bound: how high the loss is above what a few good steps can reach.

SPS and NGN protect by F = f − C. Where C is far below what training can reach, F is several times what a step can gain,
and the step is never shortened. A level C_t needs no lower bound: it lies below the best smoothed loss so far, and is
lowered as that is reached.

For a convex loss, any number C < f(x), below or above the infimum, and any step x⁺ = x − tαg with t in [0, 1],

    α(f(x) − max{f(u), C} − δ) ≤ ½‖x − u‖² − ½‖x⁺ − u‖²,    δ = F(1 − t) + ½t²α‖g‖²,    F = f(x) − C

for every u, where δ is :func:`surefoot.theory.models.safe_delta`. ``docs/theory.md`` has the proof, and what does not
hold: partial sums of the last-iterate bound certify nothing with a level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from surefoot._base.arguments import share
from surefoot.theory.arrays import Array, coerce
from surefoot.theory.models import Model, Step, safe_delta


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


def average_weight(beta: float, count: Array, *, bias_correction: bool = False) -> Array:
    """Weight of the newest of ``count`` terms in a running average whose weights sum to one.

        1 − β (1 for the first term),    or with bias correction    (1 − β)/(1 − β^count)

    The average moves to ``average + weight·(new − average)``. The second form is the usual correction of an average
    that starts at zero, folded into the weights.

    >>> average_weight(0.5, 1.0), average_weight(0.5, 2.0), average_weight(0.5, 2.0, bias_correction=True)
    (1.0, 0.5, 0.6666666666666666)
    """
    xp, (count,) = coerce(count)
    if bias_correction:
        return (1.0 - beta) / (1.0 - beta**count)
    return xp.where(count > 1.0, 1.0 - beta + 0.0 * count, 1.0 + 0.0 * count)


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


class Observed(NamedTuple):
    """What a level makes of a batch."""

    seen: Seen
    """What is remembered from now on."""
    gap: Array
    """F, how far the loss is above the level."""
    decrease: Array
    """The promised decrease for which the step is chosen."""


def observe(rule: Rule, seen: Seen, loss: Array, decrease: Array, value: Array | None = None) -> Observed:
    """A batch with this loss and promised decrease q = α‖g‖²: F = (f − b)₊ + G, with b the best smoothed loss.

    G is a ``share`` of what has been gained so far, f₁ − b, and at least ``first`` times the first loss (whatever its
    sign; a first loss of 0 counts as 1). If the first loss was above zero and none was ever below, zero is taken for a
    lower bound: G is at most b, so that losses that can be fitted converge to zero. After a spike F is as large as the
    spike, which leads back down; a lucky batch has at least G.

    The step is chosen for the larger of q and its running average: a batch that happens to be fitted promises almost
    nothing, and a Polyak step for it would be as long as the rate allows.

    Args:
        rule: The numbers of the level.
        seen: What is remembered of the losses before.
        loss: The loss of the batch.
        decrease: q.
        value: f in F, where that is not the loss of the batch but that of averaged linearisations.

    >>> rule = Rule(share=0.5)
    >>> seen, gap, _ = observe(rule, Seen(), loss=2.0, decrease=1.0)
    >>> gap, observe(rule, seen, loss=2.0, decrease=1.0, value=5.0).gap
    (0.2, 3.2)
    """
    value = loss if value is None else value
    xp, numbers = coerce(loss, decrease, value, *seen)
    loss, decrease, value, count, smooth, best, first, lowest, promise = numbers
    count = count + 1.0
    weight = average_weight(rule.smoothing, count, bias_correction=True)
    smooth = smooth + weight * (loss - smooth)
    best, lowest = xp.minimum(best, smooth), xp.minimum(lowest, loss)
    first = xp.where(count > 1.0, first, loss)
    promise = promise + weight * (decrease - promise)

    size = xp.maximum(first, -first)
    size = xp.where(size > 0.0, size, 1.0 + 0.0 * size)
    gained = xp.maximum(rule.share * (first - best), rule.first * size)
    gained = xp.where((lowest < 0.0) | (first <= 0.0), gained, xp.minimum(gained, xp.maximum(best, 0.0 * best)))
    gap = xp.maximum(value - best, 0.0 * value) + gained
    return Observed(Seen(count, smooth, best, first, lowest, promise), gap, xp.maximum(decrease, promise))


def step(model: Model, rule: Rule, seen: Seen, loss: Array, decrease: Array) -> tuple[Seen, Step]:
    """The step of a model at a level, as a share of the rate, and its index, which is the safe one.

    A loss or decrease that is not finite gives no step (0, and δ = ∞), and is not remembered.

    >>> from surefoot.theory.models import Truncated
    >>> _, (size, delta) = step(Truncated(), Rule(), Seen(), loss=2.0, decrease=1.0)
    >>> round(size, 2), round(delta, 2)
    (0.2, 0.18)
    """
    new, gap, steady = observe(rule, seen, loss, decrease)
    xp, (loss, decrease, *old) = coerce(loss, decrease, *seen)
    finite = xp.isfinite(loss) & xp.isfinite(decrease)
    size = model.step(gap, steady, 1.0).size
    delta = xp.where(finite, safe_delta(gap, decrease, 1.0, size), math.inf)
    kept = Seen(*(xp.where(finite, *both) for both in zip(new, old, strict=True)))
    return kept, Step(xp.where(finite, size, 0.0), delta)
