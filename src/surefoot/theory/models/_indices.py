"""Indices that belong to no model: the safe index of any step, and the exact one of the proximal point."""

from __future__ import annotations

from surefoot.theory.arrays import NUMPY, Array, coerce
from surefoot.theory.models._base import INFINITY, half_decrease, reject_negative


def safe_delta(loss: Array, grad_sq: Array, lr: Array, size: Array, lower_bound: Array = 0.0) -> Array:
    """An index that is valid for any step x − size·g with 0 ≤ size ≤ lr on a convex loss f ≥ C.

        δ_safe = F(1 − t) + ½ t² α‖g‖²,    t = size/lr

    The base inequality (Lemma 3.2) holds with it whatever chose the step: a model that is not below the loss (NGN on
    logistic loss), clipping, rounding, a hand-made rule. SPS is the step that makes it smallest, and there it equals
    the model's δ. Steps outside [0, lr] have no such index: the result is ∞, as it is for non-finite input;
    a negative squared gradient or rate is treated as by the models.

    >>> safe_delta(1.0, 2.0, 3.0, size=0.5)
    0.9166666666666667
    """
    xp, (loss, grad_sq, lr, size, bound) = coerce(loss, grad_sq, lr, size, lower_bound)
    if xp.concrete:
        reject_negative(xp, grad_sq=grad_sq, lr=lr)
    with xp.quiet():
        good = xp.isfinite(loss) & xp.isfinite(grad_sq) & (grad_sq >= 0) & (bound < INFINITY)
        good = good & (size >= 0) & (size <= lr) & xp.isfinite(lr)
        moving = good & (lr > 0)
        lr, size, grad_sq = xp.where(moving, lr, 1.0), xp.where(moving, size, 1.0), xp.where(moving, grad_sq, 0.0)
        excess = loss - bound
        # 1 − t as (α − size)/α is exact; t = 1 loses nothing of F, even where F is infinite (C = −∞).
        lost = xp.where(moving & (excess > 0) & (size < lr), excess, 0.0) * ((lr - size) / lr)
        # ½ t² q = t · ½ size‖g‖²: size‖g‖² stays finite where α‖g‖² overflows.
        moved = (size / lr) * half_decrease(xp, grad_sq, size)
        delta = xp.where(good, lost + moved, INFINITY)
    return delta[()] if xp is NUMPY else delta


def exact_delta(loss: Array, next_loss: Array, step_sq: Array, lr: Array) -> Array:
    """Index of the exact model (SPP): δ = f(x) − f(x⁺) − ‖x⁺ − x‖²/(2α), where x⁺ is the proximal point (Sec. 4.4).

    Never negative in exact arithmetic; rounding below zero is cut off. Non-finite input gives ∞.

    >>> exact_delta(1.0, 0.25, 1.0, 2.0)
    0.5
    """
    xp, (loss, next_loss, step_sq, lr) = coerce(loss, next_loss, step_sq, lr)
    with xp.quiet():
        moving = (lr > 0) & xp.isfinite(loss) & xp.isfinite(next_loss) & xp.isfinite(step_sq)
        delta = loss - next_loss - 0.5 * step_sq / xp.where(moving, lr, 1.0)
        delta = xp.where(moving, xp.where(delta > 0, delta, 0.0), xp.where(lr == 0, 0.0, INFINITY))
    return delta[()] if xp is NUMPY else delta
