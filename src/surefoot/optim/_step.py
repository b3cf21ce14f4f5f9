"""What a step does to the parameters, from top to bottom, for every row of the table.

It is written once for both kinds of arithmetic. With :class:`~surefoot.optim._arithmetic.Host` a bad step returns
before anything has changed; with :class:`~surefoot.optim._arithmetic.Device` it runs through, masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from surefoot.optim._arithmetic import Arithmetic, Scalar
from surefoot.optim._geometry import Diagonal
from surefoot.optim._groups import Share
from surefoot.optim._height import Sight
from surefoot.optim._settings import Settings
from surefoot.optim._sums import Tensors
from surefoot.theory.level import annealed
from surefoot.theory.training import clip_factor, proximal_step


class Outcome(NamedTuple):
    """What a step has done; ``finite`` and ``violated`` say whether it was taken, and if not, why."""

    finite: Scalar
    violated: Scalar
    scales: list[Scalar]
    """What the shares' rates were multiplied by."""
    memories: list[Scalar]
    """What the averaging keeps for the shares' groups."""
    noted: dict[str, Scalar]
    """All scalars that are kept for the optimizer."""


class Measured(NamedTuple):
    """A share's direction, and the norms that decide how far to go."""

    share: Share
    seen: Tensors
    """The gradient that the model sees."""
    seen_sq: Scalar
    """‖·‖² of the gradient that the model sees; None if nobody asks for it."""
    dual_sq: Scalar
    """‖·‖_*² of the gradient that the model sees."""
    batch_sq: Scalar
    """‖g‖_*² of the batch's own gradient; None if nobody asks for it."""
    slope: Scalar
    """⟨d, direction(d)⟩ of the average d; None if batches are not compared with it."""
    directions: Tensors
    factor: float
    """The directions are this times ``directions``."""


def advance(
    settings: Settings,
    ops: Arithmetic,
    shares: list[Share],
    loss: Scalar,
    batch_bound: Scalar | None,
    past: Mapping[str, Scalar],
    shrunk: Scalar,
) -> Outcome:
    """Take one step: move the parameters and their buffers, and return everything else that changes.

    ``batch_bound`` is a lower bound for this step alone, ``past`` what the last step has noted, ``shrunk`` what the
    gradients of the loss were multiplied by, clipped by hand for example: with cg in the place of g, a step of length α
    along cg promises a decrease of α⟨g, cg⟩ = α‖cg‖²/c.
    """
    averaging, height = settings.averaging, settings.height

    # A loss or gradient that is not finite, or a loss below a firm bound: no step.
    grad_sq = [share.total(ops.sum_sq(share.grads)) for share in shares]
    total_sq: Scalar = sum(grad_sq)
    finite = ops.xp.isfinite(loss + total_sq)
    firm = height.firm if batch_bound is None else batch_bound
    violated = loss < (-math.inf if firm is None else firm)
    if not ops.decide(finite, violated):
        return _no_step(ops, shares, past, finite, violated, total_sq)

    # The model of the loss: its value f, its gradient g, and the geometry's direction and ‖g‖_*.
    count = past["count"] + 1.0
    age = count - past.get("since", 0.0)  # averaging may be switched on later
    value = averaging.value(ops, shares, loss, past, age)
    overlaps = [share.overlap(ops, ops.usable(share.grads), count) for share in shares] if averaging.compares else []
    measured = [_measure(settings, ops, share, sq, count, age) for share, sq in zip(shares, grad_sq, strict=True)]

    # Rates α, clipped, and what they are worth for g; proximal weight decay makes them h = α/(1 + αλ).
    clip: Scalar = 1.0
    if settings.max_grad_norm is not None:
        clip = clip_factor(sum(each.seen_sq for each in measured), settings.max_grad_norm)
    worth = h = [share.lr * clip / shrunk for share in shares]
    dual_sq = [each.dual_sq for each in measured]
    decrease = full_decrease = _dot(worth, dual_sq)
    prox = settings.weight_decay_mode == "prox" and any(share.weight_decay for share in shares)
    if prox:
        h = [rate / (1.0 + share.lr * clip * share.weight_decay) for rate, share in zip(worth, shares, strict=True)]
        decrease = _dot(h, dual_sq)
    finite = finite & (decrease == decrease)  # NaN where the geometry has found no norm: no step either
    if not ops.decide(finite, violated):
        return _no_step(ops, shares, past, finite, violated, total_sq)
    drift: Scalar = 0.0  # what weight decay does to the linear model: Σ hλ⟨g, x⟩
    if prox or averaging.follows:
        for rate, each in zip(h, measured, strict=True):
            share = each.share
            if share.weight_decay:
                drift = drift + rate * share.weight_decay * share.total(ops.inner(each.seen, share.params))

    # Height F = f − C, scale t and index δ.
    batch_decrease: Scalar | None = full_decrease
    if averaging.sees_average:
        batch_sq = [each.batch_sq for each in measured]
        batch_decrease = None if any(sq is None for sq in batch_sq) else _dot(worth, batch_sq)
    reach = value - drift if prox else value
    sight = Sight(loss, value, reach, decrease, full_decrease, batch_decrease, count, {})
    bound = batch_bound
    if batch_bound is None:
        bound, violated = height.bound(sight, past), violated | height.lowered(sight, past)
    promised = height.decrease(sight, past)
    if prox:
        regulariser = 0.0 * ops.one  # Σ hλ²‖x‖²
        for rate, share in zip(h, shares, strict=True):
            if share.weight_decay:
                regulariser = regulariser + rate * share.weight_decay**2 * share.norm_sq(ops, count)
        step = proximal_step(settings.model, value - bound, promised, drift + 0.0 * value, regulariser)
    else:
        step = settings.model.step(value - bound, promised, ops.one)

    # Where batches are compared with the last direction, a shorter step as far as they disagree, once there is a gain.
    scales = [step.size * clip] * len(shares)
    new: dict[str, Scalar] = {"count": count, "bound": bound}
    if averaging.compares:
        slopes = [each.slope for each in measured]
        agreed, damped, kept = averaging.pace(_dot(worth, overlaps), _dot(worth, slopes), batch_decrease, past)
        agreed = 1.0 - height.progress(sight, past) * (1.0 - agreed)
        scales = [scale * damped * annealed(agreed, share.pace) for scale, share in zip(scales, shares, strict=True)]
        new |= kept

    # x ← x − tα·direction, and whatever the averaging makes of it.
    memories = []
    for each, scale in zip(measured, scales, strict=True):
        share, size = each.share, scale * each.share.lr
        decay = size * share.weight_decay if share.weight_decay and not prox else None
        memories.append(averaging.move(ops, share, each.directions, size * each.factor, decay))
        if share.weight_decay and prox:
            ops.mul_(share.params, 1.0 / (1.0 + share.lr * clip * share.weight_decay))

    new |= averaging.after(value, step.size * decrease + (drift if prox else step.size * drift))
    new |= height.after(sight, past, bound, step.size)
    delta = height.index(step.delta, value - bound, decrease, scales[0] / clip)
    new["delta"] = averaging.index(delta, loss, value)
    noted = ops.masked({**past, **_missed(ops, past, finite, violated)}, new)
    noted["grad_sq"] = total_sq / shrunk**2
    memories = [ops.choose(memory, share.memory) for memory, share in zip(memories, shares, strict=True)]
    return Outcome(finite, violated, [ops.choose(scale, 0.0) for scale in scales], memories, noted)


def _dot(rates: list[Scalar], values: list[Scalar]) -> Scalar:
    """Σ α_g·value_g over the shares."""
    return sum([rate * value for rate, value in zip(rates, values, strict=True)])


def _no_step(
    ops: Arithmetic, shares: list[Share], past: Mapping[str, Scalar], finite: Scalar, violated: Scalar, grad_sq: Scalar
) -> Outcome:
    """The outcome of a step that is not taken."""
    noted = {**past, **_missed(ops, past, finite, violated), "grad_sq": grad_sq}
    return Outcome(finite, violated, [0.0] * len(shares), [share.memory for share in shares], noted)


def _missed(ops: Arithmetic, past: Mapping[str, Scalar], finite: Scalar, violated: Scalar) -> dict[str, Scalar]:
    """What is noted of a step that is not taken."""
    return {
        "delta": ops.xp.where(finite, 0.0, math.inf),
        "skipped": past["skipped"] + ops.xp.where(finite, 0.0, 1.0),
        "violations": past["violations"] + ops.xp.where(finite & violated, 1.0, 0.0),
    }


def _measure(
    settings: Settings, ops: Arithmetic, share: Share, grad_sq: Scalar, count: Scalar, age: Scalar
) -> Measured:
    """Bring averages and geometry up to date, and find direction and norms."""
    averaging, clips = settings.averaging, settings.max_grad_norm is not None
    grads = ops.usable(share.grads)
    weight: Any = averaging.weight(age)
    averaged, sees_average = weight is not None, weight is not None and averaging.sees_average
    seen = share.average if sees_average else grads
    seen_sq = None if sees_average else grad_sq
    directions: Tensors
    factor = 1.0
    if share.scratch:
        assert isinstance(share.geometry, Diagonal)
        (moments,), directions = share.buffers, share.scratch
        lists = (grads, share.average, moments, directions)
        factor, dual_sq = share.geometry.measure_fused(ops, *lists, count, weight, of_batch=not sees_average)
        dual_sq = share.total(dual_sq)
        if not averaging.only_scales and factor != 1.0:
            ops.mul_(directions, factor)
            factor = 1.0
        if sees_average and clips:
            seen_sq = share.total(ops.sum_sq(seen))
    else:
        if sees_average and (share.geometry.uses_norm or clips):
            seen_sq = share.total(ops.lerp_and_sum_sq(share.average, grads, weight))
        elif averaged:
            ops.lerp_(share.average, grads, weight)
        share.learn(ops, grads, count)
        if averaged and not sees_average:
            directions, dual_sq = share.measure_averaged(ops, grads, count, grad_sq)
        else:
            directions, dual_sq = share.measure(ops, seen, count, seen_sq)
    batch_sq = dual_sq
    if sees_average:
        batch_sq = share.measure_norm(ops, grads, count, grad_sq) if settings.height.uses_batch else None
    if share.last is not None:
        torch._foreach_copy_(share.last, directions)
    slope = share.total(ops.inner(share.average, directions)) * factor if averaging.compares else None
    return Measured(share, seen, seen_sq, dual_sq, batch_sq, slope, directions, factor)
