"""The one algorithm behind every row of the table: average, measure, choose the scale, move.

It is written once for both kinds of arithmetic. With :class:`~surefoot.optim._arithmetic.Host` a bad step returns
before anything has changed; with :class:`~surefoot.optim._arithmetic.Device` it runs through, masked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from surefoot.optim import _fused
from surefoot.optim._arithmetic import Arithmetic, Device, Host, Scalar, Tensors
from surefoot.optim._averaging import HeavyBall, Linearisations
from surefoot.optim._geometry import Buffers, Diagonal, Euclidean
from surefoot.optim._settings import Estimate, Settings
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
    """One parameter group's part of a step: the parameters that have a gradient, and what belongs to them."""

    lr: Scalar
    weight_decay: float
    params: list[Tensor]
    grads: list[Tensor]
    average: list[Tensor]
    buffers: Buffers
    scratch: list[Tensor]
    """Room for the directions, with ``fused=True``."""
    momentum: Scalar
    """Scale of the heavy-ball buffer."""


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
    sizes: list[Scalar]
    momenta: list[Scalar]
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
    grad_sq = [ops.sum_sq(share.grads) for share in shares]
    total_sq: Scalar = sum(grad_sq)
    finite: Scalar = ops.isfinite(loss + total_sq)
    firm = settings.bounded and not isinstance(settings.lower_bound, Estimate)
    violated = loss < (bound if firm else -math.inf)
    if not ops.decide(finite, violated):
        momenta = [share.momentum for share in shares]
        return Outcome(finite, violated, 0.0 if finite else math.inf, [0.0] * len(shares), momenta, past, total_sq)

    count = past.count + 1.0
    averaging = settings.averaging if isinstance(settings.averaging, Linearisations) else None
    weight: Scalar = 1.0
    value = loss
    if averaging is not None:
        weight = average_weight(averaging.beta, count, bias_correction=averaging.bias_correction)
        value = past.value + weight * (loss - past.value)
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
                drift = drift + rate / s * group.share.weight_decay * ops.inner(group.seen, group.share.params)

    lowered = violated
    if isinstance(settings.lower_bound, Estimate):
        reach = value - drift if prox else value
        lowered = reach < bound
        bound = lowered_bound(bound, reach, settings.lower_bound.floor)
    height = value - bound if settings.bounded else value
    if prox:
        regulariser = _regulariser(settings, ops, shares, rates, shrink, count)
        step = proximal_step(settings.model, height, decrease, drift + 0.0 * height, regulariser)
    else:
        step = settings.model.step(height, decrease, ops.one)
    delta = step.delta if averaging is None else averaged_delta(step.delta, loss, value)

    sizes, momenta = _move(settings, ops, measured, step, rates, shrink if prox else None)
    if isinstance(settings.lower_bound, Estimate):
        bound = raised_bound(value, step.size, full, settings.lower_bound.floor)
    ahead = value - step.size * decrease - drift if averaging is not None else past.value
    if isinstance(ops, Device):  # a step that was masked leaves everything as it was
        zero = torch.zeros_like(ops.one)
        delta = ops.choose(delta, torch.where(finite, zero, math.inf))
        sizes = [ops.choose(size, zero) for size in sizes]
        momenta = [ops.choose(new, share.momentum) for new, share in zip(momenta, shares, strict=True)]
        count, ahead = ops.choose(count, past.count), ops.choose(ahead, past.value)
        bound = ops.choose(bound, past.bound)
    return Outcome(finite, lowered, delta, sizes, momenta, Progress(count, ahead, bound), total_sq)


def _measure(
    settings: Settings, ops: Arithmetic, share: Share, grad_sq: Scalar, count: Scalar, weight: Scalar
) -> Measured:
    """Bring averages and geometry up to date, and find direction and dual norm."""
    grads = ops.usable(share.grads)
    geometry = settings.geometry
    if share.scratch and isinstance(ops, Host) and isinstance(geometry, Diagonal):
        average = share.average if settings.averages_model else []
        factor, dual_sq = _fused.measure(ops, geometry, grads, average, share.buffers[0], share.scratch, count, weight)
        seen = average or grads
        seen_sq = ops.sum_sq(seen) if settings.max_grad_norm is not None and average else grad_sq
        return Measured(share, seen, share.scratch, factor, dual_sq, seen_sq)
    seen, seen_sq = grads, grad_sq
    if settings.averages_model:
        seen = share.average
        if isinstance(geometry, Euclidean) or settings.max_grad_norm is not None:
            seen_sq = ops.lerp_and_sum_sq(share.average, grads, weight)
        else:
            ops.lerp_(share.average, grads, weight)
    geometry.learn(ops, grads, share.buffers, count)
    directions, dual_sq = geometry.measure(ops, seen, share.buffers, count, seen_sq)
    return Measured(share, seen, directions, 1.0, dual_sq, seen_sq)


def _regulariser(
    settings: Settings,
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
            norms = [
                settings.geometry.norm_sq(x, [buffer[i] for buffer in share.buffers], count)
                for i, x in enumerate(share.params)
            ]
            total = total + rate / s * share.weight_decay**2 * ops.total(norms)
    return total


def _move(
    settings: Settings,
    ops: Arithmetic,
    measured: list[Measured],
    step: Step,
    rates: list[Scalar],
    shrink: list[Scalar] | None,
) -> tuple[list[Scalar], list[Scalar]]:
    """Move the parameters; returns the sizes of the groups' steps and the scales of their heavy-ball buffers."""
    sizes = [step.size * rate for rate in rates]
    momenta = [group.share.momentum for group in measured]
    for i, (group, size) in enumerate(zip(measured, sizes, strict=True)):
        share = group.share
        if share.weight_decay and shrink is None:
            ops.mul_(share.params, 1.0 - share.lr * share.weight_decay)
        if isinstance(settings.averaging, HeavyBall):
            momenta[i], weight = heavy_ball_weight(share.momentum, size, settings.averaging.beta)
            if group.factor != 1.0:
                ops.mul_(group.directions, group.factor)
            ops.lerp_(share.average, group.directions, weight)
            ops.add_(share.params, share.average, -momenta[i])
        else:
            ops.add_(share.params, group.directions, -size * group.factor)
        if share.weight_decay and shrink is not None:
            ops.mul_(share.params, 1.0 / shrink[i])
    return sizes, momenta
