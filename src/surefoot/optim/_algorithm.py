"""The one algorithm behind every row of the table: average, measure, choose the scale, move.

It is written once for both kinds of arithmetic. With :class:`~surefoot.optim._arithmetic.Host` a bad step returns
before anything has changed; with :class:`~surefoot.optim._arithmetic.Device` it runs through, masked.

Tensors are those of this rank. If parameters are sharded, so is every sum over their elements, until
:meth:`Share.total` has added it up over the ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from surefoot.optim import _fused, _schedule_free
from surefoot.optim._arithmetic import Arithmetic, Device, Host, Scalar, Tensors
from surefoot.optim._averaging import HeavyBall, Linearisations
from surefoot.optim._geometry import Buffers, Diagonal, Euclidean, Geometry
from surefoot.optim._schedule_free import ScheduleFree
from surefoot.optim._settings import Estimate, Settings
from surefoot.optim._shards import Spread, gathered, piece
from surefoot.theory.models import Step
from surefoot.theory.training import (
    average_weight,
    averaged_delta,
    clip_factor,
    heavy_ball_weight,
    lowered_bound,
    proximal_step,
    raised_bound,
)


class Share(NamedTuple):
    """One parameter group's part of a step: the parameters that have a gradient, and what belongs to them.

    A group has several shares if its parameters differ in geometry, or are spread over different ranks.
    """

    group: int
    """Its place among the parameter groups."""
    geometry: Geometry
    lr: Scalar
    weight_decay: float
    params: list[Tensor]
    grads: list[Tensor]
    average: list[Tensor]
    buffers: Buffers
    scratch: list[Tensor]
    """Room for the directions, with ``fused=True``."""
    memory: Scalar
    """What the averaging keeps for the group: scale of the heavy-ball buffer, or sum of the schedule-free weights."""
    spread: Spread | None = None
    """The ranks that hold the other pieces of all these tensors; None if they are whole."""
    originals: Tensors = ()
    """The parameters as the user knows them: DTensors, if they are spread."""

    def total(self, value: Scalar) -> Scalar:
        """A sum over elements of these tensors, added up over the ranks that hold pieces of them."""
        return value if self.spread is None else self.spread.total(value)

    @property
    def needs_whole(self) -> bool:
        """Whether the tensors must be gathered, because the geometry makes no sense of pieces."""
        return self.spread is not None and not self.geometry.separable


class Progress(NamedTuple):
    """What one step hands to the next."""

    count: Scalar
    """Steps taken."""
    value: Scalar
    """Value of the averaged linearisations at the current point."""
    bound: Scalar
    """Lower bound C."""


class Outcome(NamedTuple):
    """What a step has done; ``finite`` and ``violated`` say whether it was taken, and if not, why."""

    finite: Scalar
    violated: Scalar
    delta: Scalar
    scale: Scalar
    """What every group's rate was multiplied by."""
    memories: list[Scalar]
    progress: Progress
    grad_sq: Scalar
    """‖g‖² over all groups."""


@dataclass
class Measured:
    """A group's direction and its squared dual norm."""

    share: Share
    seen: Tensors
    """The gradient that the model sees: g, or the average of past ones."""
    directions: Tensors
    factor: float
    """The directions are this times ``directions``."""
    dual_sq: Scalar
    seen_sq: Scalar


def advance(
    settings: Settings, ops: Arithmetic, shares: list[Share], loss: Scalar, bound: Scalar, past: Progress
) -> Outcome:
    """Take one step: move the parameters and averages, and return everything else that changes."""
    grad_sq = [share.total(ops.sum_sq(share.grads)) for share in shares]
    total_sq: Scalar = sum(grad_sq)
    finite: Scalar = ops.isfinite(loss + total_sq)
    firm = settings.bounded and not isinstance(settings.lower_bound, Estimate)
    violated = loss < (bound if firm else -math.inf)
    if not ops.decide(finite, violated):
        memories = [share.memory for share in shares]
        return Outcome(finite, violated, 0.0 if finite else math.inf, 0.0, memories, past, total_sq)

    count = past.count + 1.0
    averaging = settings.averaging if isinstance(settings.averaging, Linearisations) else None
    weight: Scalar = 1.0
    value = loss
    if averaging is not None:
        weight = average_weight(averaging.beta, count, bias_correction=averaging.bias_correction)
        value = past.value + weight * (loss - past.value)
    elif isinstance(settings.averaging, ScheduleFree):
        value = _schedule_free.value_at_z(ops, shares, loss)
    measured = [_measure(settings, ops, share, sq, count, weight) for share, sq in zip(shares, grad_sq, strict=True)]

    clip: Scalar = 1.0
    if settings.max_grad_norm is not None:
        clip = clip_factor(sum(group.seen_sq for group in measured), settings.max_grad_norm)
    rates = [group.share.lr * clip for group in measured]
    prox = settings.weight_decay_mode == "prox" and any(share.weight_decay for share in shares)
    # With the proximal form a group's rate is h = α/(1 + αλ); decoupled decay stands beside the step.
    shrink = [1.0 + rate * share.weight_decay if prox else 1.0 for rate, share in zip(rates, shares, strict=True)]
    full = sum(rate * group.dual_sq for rate, group in zip(rates, measured, strict=True))
    decrease = sum(r / s * group.dual_sq for r, s, group in zip(rates, shrink, measured, strict=True))
    drift: Scalar = 0.0
    if prox or averaging is not None:
        decay_rates = rates if prox else [share.lr for share in shares]
        for rate, s, group in zip(decay_rates, shrink, measured, strict=True):
            if group.share.weight_decay:
                inner = group.share.total(ops.inner(group.seen, group.share.params))
                drift = drift + rate / s * group.share.weight_decay * inner

    lowered = violated
    if isinstance(settings.lower_bound, Estimate):
        reach = value - drift if prox else value
        lowered = reach < bound
        bound = lowered_bound(bound, reach, settings.lower_bound.floor)
    height = value - bound if settings.bounded else value
    if prox:
        regulariser = _regulariser(ops, shares, rates, shrink, count)
        step = proximal_step(settings.model, height, decrease, drift + 0.0 * height, regulariser)
    else:
        step = settings.model.step(height, decrease, ops.one)
    delta = step.delta if averaging is None else averaged_delta(step.delta, loss, value)

    scale = step.size * clip
    memories = _move(settings, ops, measured, step, rates, shrink if prox else None)
    if isinstance(settings.lower_bound, Estimate):
        bound = raised_bound(value, step.size, full, settings.lower_bound.floor)
    ahead = value - step.size * decrease - drift if averaging is not None else past.value
    if isinstance(ops, Device):  # a step that was masked leaves everything as it was
        zero = torch.zeros_like(ops.one)
        delta = ops.choose(delta, torch.where(finite, zero, math.inf))
        scale = ops.choose(scale, zero)
        memories = [ops.choose(new, share.memory) for new, share in zip(memories, shares, strict=True)]
        count, ahead = ops.choose(count, past.count), ops.choose(ahead, past.value)
        bound = ops.choose(bound, past.bound)
    return Outcome(finite, lowered, delta, scale, memories, Progress(count, ahead, bound), total_sq)


def _measure(
    settings: Settings, ops: Arithmetic, share: Share, grad_sq: Scalar, count: Scalar, weight: Scalar
) -> Measured:
    """Bring averages and geometry up to date, and find direction and dual norm."""
    grads = ops.usable(share.grads)
    geometry = share.geometry
    if share.scratch and isinstance(ops, Host) and isinstance(geometry, Diagonal):
        average = share.average if settings.averages_model else []
        factor, dual_sq = _fused.measure(ops, geometry, grads, average, share.buffers[0], share.scratch, count, weight)
        seen = average or grads
        seen_sq = share.total(ops.sum_sq(seen)) if settings.max_grad_norm is not None and average else grad_sq
        return Measured(share, seen, share.scratch, factor, share.total(dual_sq), seen_sq)
    seen, seen_sq = grads, grad_sq
    if settings.averages_model:
        seen = share.average
        if isinstance(geometry, Euclidean) or settings.max_grad_norm is not None:
            seen_sq = share.total(ops.lerp_and_sum_sq(share.average, grads, weight))
        else:
            ops.lerp_(share.average, grads, weight)
    if share.needs_whole:
        directions, dual_sq = _measure_whole(ops, share, grads, seen, count)
        return Measured(share, seen, directions, 1.0, dual_sq, seen_sq)
    geometry.learn(ops, grads, share.buffers, count)
    directions, dual_sq = geometry.measure(ops, seen, share.buffers, count, seen_sq)
    if not isinstance(geometry, Euclidean):  # its dual norm is the sum that was handed to it
        dual_sq = share.total(dual_sq)
    return Measured(share, seen, directions, 1.0, dual_sq, seen_sq)


def _measure_whole(
    ops: Arithmetic, share: Share, grads: Tensors, seen: Tensors, count: Scalar
) -> tuple[Tensors, Scalar]:
    """The same for sharded tensors that the geometry must see whole: gathered one by one, on every rank."""
    directions = []
    dual_sq: Scalar = 0.0
    for i, original in enumerate(share.originals):
        grad = gathered(grads[i], original)
        buffers = [[gathered(buffer[i], original)] for buffer in share.buffers]
        share.geometry.learn(ops, [grad], buffers, count)
        for buffer, (learned,) in zip(share.buffers, buffers, strict=True):
            buffer[i].copy_(piece(learned, original))
        model_grad = grad if seen is grads else gathered(seen[i], original)
        (direction,), norm_sq = share.geometry.measure(ops, [model_grad], buffers, count, None)
        directions.append(piece(direction, original))
        dual_sq = dual_sq + norm_sq
    return directions, dual_sq


def _regulariser(
    ops: Arithmetic,
    shares: list[Share],
    rates: list[Scalar],
    shrink: list[Scalar],
    count: Scalar,
) -> Scalar:
    """Σ hλ²‖x‖² over the groups."""
    total: Scalar = 0.0 * ops.one
    for share, rate, s in zip(shares, rates, shrink, strict=True):
        if share.weight_decay:
            total = total + rate / s * share.weight_decay**2 * _norm_sq(ops, share, count)
    return total


def _norm_sq(ops: Arithmetic, share: Share, count: Scalar) -> Scalar:
    """Σ‖x‖² over a group's parameters."""
    tensors = list(zip(share.params, *share.buffers, strict=True))
    geometry = share.geometry
    if share.needs_whole:
        wholes = ([gathered(t, original) for t in own] for own, original in zip(tensors, share.originals, strict=True))
        return ops.total([geometry.norm_sq(x, buffers, count) for x, *buffers in wholes])
    return share.total(ops.total([geometry.norm_sq(x, buffers, count) for x, *buffers in tensors]))


def _move(
    settings: Settings,
    ops: Arithmetic,
    measured: list[Measured],
    step: Step,
    rates: list[Scalar],
    shrink: list[Scalar] | None,
) -> list[Scalar]:
    """Move the parameters; returns what the groups' averaging remembers."""
    memories = [group.share.memory for group in measured]
    for i, (group, rate) in enumerate(zip(measured, rates, strict=True)):
        share, size = group.share, step.size * rate
        if isinstance(settings.averaging, ScheduleFree):
            memories[i] = _schedule_free.move(ops, settings.averaging, share, group.directions, size * group.factor)
            continue
        if share.weight_decay and shrink is None:
            ops.mul_(share.params, 1.0 - share.lr * share.weight_decay)
        if isinstance(settings.averaging, HeavyBall):
            memories[i], weight = heavy_ball_weight(share.memory, size, settings.averaging.beta)
            if group.factor != 1.0:
                ops.mul_(group.directions, group.factor)
            ops.lerp_(share.average, group.directions, weight)
            ops.add_(share.params, share.average, -memories[i])
        else:
            ops.add_(share.params, group.directions, -size * group.factor)
        if share.weight_decay and shrink is not None:
            ops.mul_(share.params, 1.0 / shrink[i])
    return memories
