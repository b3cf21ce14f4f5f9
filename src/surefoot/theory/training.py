"""What training adds to a model's step: averaging, proximal weight decay, clipping.

Pure functions of Python floats or arrays, as in :mod:`surefoot.theory.models`. A step over parameter groups with rates
α_g is written with q = Σ_g α_g‖g_g‖² in place of ``grad_sq`` and a rate of 1, so that ``Step.size`` is the one scale t
by which every group's rate is multiplied.
"""

from __future__ import annotations

import math

from surefoot.theory.arrays import Array, coerce, namespace
from surefoot.theory.models import Linear, Model, Power, SquareRoot, Step, Truncated


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


def heavy_ball_weight(previous: Array, size: Array, beta: float) -> tuple[Array, Array]:
    """The buffer of heavy-ball momentum as a weighted mean of directions times one scale.

    m⁺ = βm + (1 − β)·size·u is written m = s·u̅ with s⁺ = βs + (1 − β)·size, and the mean moves towards u with weight
    (1 − β)·size/s⁺. Returns s⁺ and that weight (0 while nothing has moved).

    >>> heavy_ball_weight(0.0, 2.0, 0.5)
    (1.0, 1.0)
    """
    _, (previous, size) = coerce(previous, size)
    new = (1.0 - beta) * size
    scale = beta * previous + new
    return scale, part_of(new, scale)


def part_of(new: Array, total: Array) -> Array:
    """Share of the newest term in a sum of terms of at least 0; 0 if they are all 0.

    >>> part_of(1.0, 4.0), part_of(0.0, 0.0)
    (0.25, 0.0)
    """
    xp = namespace(new, total)
    some = total > 0.0
    return xp.where(some, new / xp.where(some, total, 1.0), 0.0 * new)


def clip_factor(grad_sq: Array, max_norm: float) -> Array:
    """min{1, max_norm/‖g‖}: the factor of the *rate* that clips a step.

    Scaling g instead would leave F unchanged and make a Polyak step overshoot by up to the inverse factor.

    >>> clip_factor(4.0, 1.0), clip_factor(0.25, 1.0)
    (0.5, 1.0)
    """
    xp, (grad_sq,) = coerce(grad_sq)
    long = grad_sq > max_norm * max_norm  # not **2, which raises where a float overflows
    return xp.where(long, max_norm + 0.0 * grad_sq, 1.0) / xp.where(long, grad_sq, 1.0) ** 0.5


def proximal_step(model: Model, loss: Array, decrease: Array, drift: Array, regulariser: Array) -> Step:
    """The step of a model plus weight decay inside the proximal problem, x⁺ = (x − tαg)/(1 + αλ) in each group.

    With h = α/(1 + αλ), ``decrease`` = Σ h‖g‖², ``drift`` = c = Σ hλ⟨g, x⟩ (what the linear model loses on the way to
    x/(1 + αλ)) and ``regulariser`` = Σ hλ²‖x‖²:

    * Truncated: t = clip((F − c)/Σh‖g‖², 0, 1);
    * SquareRoot: t = max{0, (1 − c/(2F))/(1 + Σh‖g‖²/(2F))};
    * Linear: t = 1.

    The index is that of f + λ/2‖·‖²: the model's own beyond the decayed point, plus the fall of the model to that
    point, plus half the regulariser. It is infinite where the model's own is, as for a loss that is not a number. A
    loss below the lower bound falls no further.

    >>> proximal_step(Truncated(), loss=1.0, decrease=2.0, drift=0.5, regulariser=0.0).size
    0.25
    """
    xp, (loss, decrease, drift, regulariser) = coerce(loss, decrease, drift, regulariser)
    rate = 1.0 + 0.0 * decrease
    if isinstance(model, Linear):
        size, delta = model.step(loss, decrease, rate)
        fall = drift
    elif is_truncated(model):
        size, delta = model.step(loss - drift, decrease, rate)
        height = loss - model.lower_bound
        fall = xp.where(height > 0, xp.where(drift < height, drift, height), 0.0 * drift)
    elif is_square_root(model):
        size, delta = model.step(loss, decrease, rate)
        height = loss - model.lower_bound
        live = height > 0
        ratio = 0.5 * drift / xp.where(live, height, 1.0)
        slope = xp.where(live & (ratio < 1.0), 1.0 - ratio, 0.0 * ratio)
        size, delta = slope * size, xp.where(live, slope * slope * delta, delta)
        fall = xp.where(live, xp.where(ratio < 1.0, drift * (1.0 - 0.5 * ratio), height), 0.0 * drift)
    else:
        raise ValueError(f"proximal weight decay is known for Linear, Truncated and SquareRoot, not for {model!r}")
    return Step(size, xp.where(delta < math.inf, delta + fall + 0.5 * regulariser, delta))


def is_truncated(model: Model) -> bool:
    """Whether the model is the truncated one, under either of its names."""
    return isinstance(model, Truncated) or (isinstance(model, Power) and model.p == 1)


def is_square_root(model: Model) -> bool:
    """Whether the model is the square root one, under either of its names."""
    return isinstance(model, SquareRoot) or (isinstance(model, Power) and model.p == 0.5)
