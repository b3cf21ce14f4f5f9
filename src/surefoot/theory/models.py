"""Models of the loss, the step that each of them takes, and its stability index.

A model-based method minimises a model of the batch loss plus a proximity term (eq. ``update`` of the paper),

    x⁺ = argmin_y  f_x(y) + ‖y − x‖² / (2α),        δ = f(x) − f_x(x⁺) − ‖x⁺ − x‖² / (2α).

Every model here sees the loss only through F = f − C, the gap to a lower bound, and q = α‖g‖², the decrease that
the linear model promises. With z = q/F the step is x − t·α·g, and both t and δ/F are functions of z alone:

=============  ==========  =============================  =============================
model          method      t                              δ
=============  ==========  =============================  =============================
Linear         SGD         1                              q/2
Truncated      SPS         min(1, 1/z)                    t(1 − t/2) q
SquareRoot     NGN         1/(1 + z/2)                    t q/2
Exponential    LogNGN      e^(−w), w = W₀(z)              F (1 − e^(−w)(1 + w/2))
Power(p)       –           t = (1 − p z t)₊^(1/p − 1)     F (1 − t − (½ − p) z t²)
Composite      any φ, ψ    root of a scalar equation      eq. ``psi-phi-delta``
=============  ==========  =============================  =============================

``Power`` joins them: p = 1 is Truncated, p = ½ SquareRoot, p → 0 Exponential. The forms in the table lose their digits
for small z and overflow for large q; the code uses equal ones that do not.

Everything is elementwise, on Python floats and on arrays of NumPy, torch or JAX; it broadcasts, keeps the dtype, lets
gradients through, and never waits for a device. At the edges:

* a loss at or below its lower bound: ``size`` and ``delta`` are 0;
* a zero gradient: ``size`` is α and ``delta`` is 0; a zero rate: both are 0;
* lr = ∞ stands for the largest finite rate (``Truncated`` then takes the uncapped Polyak step);
* a loss or squared gradient that is NaN or infinite, a NaN rate or lower bound: ``size`` 0 and ``delta`` ∞, because
  divergence is a result and not a NaN;
* a negative rate or squared gradient raises ``ValueError`` where values can be looked at (Python floats, NumPy), and
  counts as NaN in torch and JAX.

>>> from surefoot.theory import models
>>> models.Truncated().step(loss=1.0, grad_sq=2.0, lr=3.0)
Step(size=0.5, delta=0.9166666666666666)
"""

# ruff: noqa: D102  (what the methods of all models do stands in Model)
from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from surefoot.theory.arrays import FLOATS, NUMPY, Array, Limits, Namespace, coerce

INFINITY = math.inf


class Step(NamedTuple):
    """A step x − size·g and its stability index."""

    size: Array
    """Multiplier of the gradient (the paper's α, τ or γ)."""
    delta: Array
    """Stability index δ ≥ 0."""

    def __str__(self) -> str:
        return f"step size {_shown(self.size)}, stability index δ {_shown(self.delta)}"


def _shown(value: Any) -> str:
    """A number with four digits; of an array up to four numbers, or its shape and range."""
    try:
        numbers = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(numbers, int | float):
            return f"{numbers:.4g}"
        if len(numbers) <= 4:
            return f"[{', '.join(map(_shown, numbers))}]"
        return f"{_shown(value.min())} to {_shown(value.max())} (shape {tuple(value.shape)})"
    except Exception:  # a tracer of a compiler has no numbers yet
        return str(value)


class Point(NamedTuple):
    """What a model sees of the loss at one point: numbers above 0; all edges are taken care of."""

    height: Array
    """The gap F = f − C."""
    grad_sq: Array
    lr: Array
    half: Array
    """½ α‖g‖²; may be ∞."""
    z: Array
    """α‖g‖²/F; may be ∞."""
    regular: bool
    """``half`` and ``z`` are finite."""


def are_regular(decrease: Array, z: Array, limits: Limits) -> Array:
    """Where q and z are normal, finite numbers above 0, which leaves nothing special to F > 0, ‖g‖² and α > 0."""
    return (decrease >= limits.tiny) & (decrease <= limits.max) & (z >= limits.tiny) & (z <= limits.max)


class Model(ABC):
    """Base class of the models, which are frozen dataclasses.

    A model of your own defines :meth:`solve` and :meth:`relative_value`; guards, broadcasting and array libraries
    are taken care of.
    """

    lower_bound: Array
    """C ≤ inf f: a number, or an array that broadcasts against the losses (one bound a batch)."""

    def __post_init__(self) -> None:
        bound = self.lower_bound
        if isinstance(bound, int | float):
            if not bound < INFINITY:
                raise ValueError(f"lower_bound must be a number below infinity, got {bound!r}")
            object.__setattr__(self, "lower_bound", float(bound))

    def step(self, loss: Array, grad_sq: Array, lr: Array) -> Step:
        """The step at a point with batch loss f, squared gradient norm ‖g‖² and rate α.

        >>> from surefoot.theory import models
        >>> models.SquareRoot().step(1.0, 2.0, 1.0)
        Step(size=0.5, delta=0.5)
        """
        xp, arrays = coerce(loss, grad_sq, lr, self.lower_bound)
        with xp.quiet():
            size, delta = self._guarded(xp, *arrays)
        return Step(size[()], delta[()]) if xp is NUMPY else Step(size, delta)

    def value(self, loss: Array, grad_sq: Array, size: Array) -> Array:
        """The model at x − size·g, which the definition of δ subtracts from the loss.

        >>> from surefoot.theory import models
        >>> models.SquareRoot().value(1.0, 2.0, 0.5)
        0.25
        """
        xp, (loss, grad_sq, size, bound) = coerce(loss, grad_sq, size, self.lower_bound)
        with xp.quiet():
            excess = loss - bound
            live, bounded = excess > 0, excess < INFINITY
            height = xp.where(live & bounded, excess, 1.0)
            value = self._value(xp, height, size * grad_sq, bound)
            value = xp.where(live, xp.where(bounded, value, loss - size * grad_sq), loss)  # linear without a bound
        return value[()] if xp is NUMPY else value

    def _value(self, xp: Namespace, height: Array, decrease: Array, bound: Array) -> Array:
        return bound + height * self.relative_value(xp, decrease / height)

    def _guarded(self, xp: Namespace, loss: Array, grad_sq: Array, lr: Array, bound: Array) -> tuple[Array, Array]:
        """The step with every edge taken care of; ``solve`` sees numbers above 0 only."""
        height, limits = self.height(loss, bound), xp.limits(loss)
        if xp.concrete:
            decrease = lr * grad_sq
            z = decrease / xp.where(height > 0, height, 1.0)
            if xp.all(are_regular(decrease, z, limits) & (height > 0) & (lr > 0)):
                return self.solve(xp, Point(height, grad_sq, lr, 0.5 * decrease, z, True))
            _reject_negative(xp, grad_sq=grad_sq, lr=lr)
        good = xp.isfinite(loss) & xp.isfinite(grad_sq) & (lr >= 0) & (grad_sq >= 0) & (bound < INFINITY)
        live = good & (loss > bound)
        height, grad_sq = xp.where(live, height, 1.0), xp.where(live, grad_sq, 0.0)
        lr = xp.where(lr < INFINITY, lr, limits.max)
        half, z = _half_decrease(xp, grad_sq, lr), _relative_decrease(xp, height, grad_sq, lr)
        bent = z >= limits.tiny  # else the model is as good as linear
        numbers = (xp.where(bent, value, 1.0) for value in (height, grad_sq, lr, half, z))
        size, delta = self.solve(xp, Point._make((*numbers, False)))
        size, delta = xp.where(bent, size, lr), xp.where(bent, delta, half)
        return xp.where(live, size, 0.0), xp.where(good, xp.where(live, delta, 0.0), INFINITY)

    def height(self, loss: Array, bound: Array) -> Array:
        """F = f − C."""
        return loss - bound

    @abstractmethod
    def solve(self, xp: Namespace, point: Point) -> tuple[Array, Array]:
        """Step size and δ at a point whose height is positive."""

    @abstractmethod
    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        """(model − C)/F at a point where the linear model has fallen by ``drop``·F."""


def _reject_negative(xp: Namespace, **values: Array) -> None:
    """Raise for a negative number; NaN passes, it has its documented result."""
    for name, value in values.items():
        negative = value < 0
        if negative if xp is FLOATS else negative.any():
            raise ValueError(f"{name} must be at least 0, got {value if xp is FLOATS else value[negative][0]}")


def _relative_decrease(xp: Namespace, height: Array, grad_sq: Array, lr: Array) -> Array:
    """z = α‖g‖²/F, right to rounding even where α‖g‖² overflows or underflows (∞ only if z itself is too large)."""
    decrease = lr * grad_sq
    limits = xp.limits(decrease)
    normal = (decrease >= limits.tiny) & (decrease <= limits.max)
    # The smaller factor over F neither overflows nor underflows where the product does.
    return xp.where(normal, decrease / height, (xp.minimum(lr, grad_sq) / height) * xp.maximum(lr, grad_sq))


def _half_decrease(xp: Namespace, grad_sq: Array, lr: Array) -> Array:
    """½ α‖g‖², the index of the linear model; overflows only if the result does."""
    return (0.5 * xp.maximum(lr, grad_sq)) * xp.minimum(lr, grad_sq)


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
        _reject_negative(xp, grad_sq=grad_sq, lr=lr)
    with xp.quiet():
        good = xp.isfinite(loss) & xp.isfinite(grad_sq) & (grad_sq >= 0) & (bound < INFINITY)
        good = good & (size >= 0) & (size <= lr) & xp.isfinite(lr)
        moving = good & (lr > 0)
        lr, size, grad_sq = xp.where(moving, lr, 1.0), xp.where(moving, size, 1.0), xp.where(moving, grad_sq, 0.0)
        # 1 − t as (α − size)/α is exact; t = 1 loses nothing of F, even where F is infinite (C = −∞).
        lost = xp.where((loss > bound) & (size < lr), loss - bound, 0.0) * ((lr - size) / lr)
        # ½ t² q = t · ½ size‖g‖²: size‖g‖² stays finite where α‖g‖² overflows.
        delta = xp.where(good, lost + (size / lr) * _half_decrease(xp, grad_sq, size), INFINITY)
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


@dataclass(frozen=True)
class Linear(Model):
    """f(x) + ⟨g, y − x⟩: stochastic gradient descent (Sec. 4.1 of the paper).

        size = α,    δ = ½ α‖g‖²

    It knows no lower bound, and its index grows without limit in α.

    >>> Linear().step(1.0, 2.0, 3.0)
    Step(size=3.0, delta=3.0)
    """

    lower_bound: Array = field(default=-INFINITY, init=False, repr=False)

    def solve(self, xp: Namespace, point: Point) -> tuple[Array, Array]:
        ones = point.height  # of the losses' shape
        return (point.lr + 0.0 * point.grad_sq) * ones, point.half * ones

    def height(self, loss: Array, bound: Array) -> Array:
        return 1.0 + 0.0 * loss  # the height plays no role; only a loss that is not finite shows

    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        return 1.0 - drop


@dataclass(frozen=True)
class Truncated(Model):
    """max{f(x) + ⟨g, y − x⟩, C}: the stochastic Polyak step size (Lemma 4.1, ``delta-sps``).

        size = τ = min{α, (f − C)/‖g‖²},    δ = τ(1 − τ/(2α)) ‖g‖² ≤ min{½ α‖g‖², f − C}

    >>> Truncated().step(1.0, 2.0, 3.0)
    Step(size=0.5, delta=0.9166666666666666)
    """

    lower_bound: Array = 0.0

    def solve(self, xp: Namespace, point: Point) -> tuple[Array, Array]:
        short = point.z > 1.0
        shortened = point.height * (1.0 - 0.5 / xp.where(short, point.z, 1.0))
        return self.size(xp, point), xp.where(short, shortened, point.half)

    def size(self, xp: Namespace, point: Point) -> Array:
        """The size of ``solve`` alone, for loops in which the index can wait."""
        return xp.minimum(xp.where(point.z > 1.0, point.height / point.grad_sq, point.lr), point.lr)

    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        return xp.where(drop < 1.0, 1.0 - drop, 0.0 * drop)


@dataclass(frozen=True)
class SquareRoot(Model):
    """(√F + ⟨g, y − x⟩/(2√F))² + C: non-negative Gauss–Newton (Lemma 4.2, ``delta-ngn``).

        size = γ = α/(1 + α‖g‖²/(2F)),    δ = ½ γ‖g‖²

    γ tends to 2F/‖g‖², twice Polyak's step, as α grows. The model lies below a convex loss only where √(f − C) is
    convex (least squares, not logistic loss); :func:`~surefoot.theory.models.safe_delta` has no such condition.

    >>> SquareRoot().step(1.0, 2.0, 3.0)
    Step(size=0.75, delta=0.75)
    """

    lower_bound: Array = 0.0

    def solve(self, xp: Namespace, point: Point) -> tuple[Array, Array]:
        height, grad_sq, lr, half, z, regular = point
        scale = 1.0 + 0.5 * z
        if regular:
            return lr / scale, half / scale
        # The same divided by z/2, where z or ½ α‖g‖² overflows (and nowhere else: a bit must not depend on neighbours).
        limits = xp.limits(z)
        big = (z > limits.max) | (half > limits.max)
        height, grad_sq, z = (xp.where(big, value, 1.0) for value in (height, grad_sq, z))
        scale = xp.where(big, 1.0 + 2.0 / z, scale)
        size = xp.where(big, 2.0 * (height / grad_sq), lr) / scale
        return xp.minimum(size, lr), xp.where(big, height, half) / scale

    def size(self, xp: Namespace, point: Point) -> Array:
        """The size of ``solve`` alone at a regular point, for loops in which the index can wait."""
        return point.lr / (1.0 + 0.5 * point.z)

    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        root = 1.0 - 0.5 * drop
        return root * root


@dataclass(frozen=True)
class Exponential(Model):
    """F·exp(⟨g, y − x⟩/F) + C: the Lambert-W step (App. D, eq. ``lambertw-step-size``).

        w = W₀(α‖g‖²/F),    size = (F/‖g‖²) w = α e^(−w),    δ = F (1 − e^(−w)(1 + w/2))

    Its index is the smallest of the named models, but its step grows without limit in α: on x²/2 it diverges for
    α > 2e⁴. A small index at one point does not make a method stable.

    >>> step = Exponential().step(1.0, 1.0, 1.0)
    >>> round(step.size, 9), round(step.delta, 9)
    (0.56714329, 0.272030954)
    """

    lower_bound: Array = 0.0

    def solve(self, xp: Namespace, point: Point) -> tuple[Array, Array]:
        return _solve_power(xp, 0.0, point)

    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        return xp.exp(-drop)


@dataclass(frozen=True)
class Power(Model):
    """F·(1 + p⟨g, y − x⟩/F)₊^(1/p) + C for p ≤ 1: one family from SPS (p = 1) over NGN (½) to the Lambert-W step (0).

        t = (1 − p z t)₊^(1/p − 1),    size = t·α,    δ = F (1 − t − (½ − p) z t²)

    δ rises with p, but a smaller p is not more stable: as α → ∞ the step tends to F/(p‖g‖²), so only p ≥ ½ stays
    within twice Polyak's step.

    >>> Power(0.5).step(1.0, 2.0, 3.0) == SquareRoot().step(1.0, 2.0, 3.0)
    True
    """

    p: float
    lower_bound: Array = 0.0

    def __post_init__(self) -> None:
        p: Any = self.p
        if isinstance(p, bool) or not isinstance(p, Real) or not -math.inf < float(p) <= 1:
            raise ValueError(f"p must be a finite number of at most 1, got {p!r}")
        object.__setattr__(self, "p", float(p))
        super().__post_init__()

    def solve(self, xp: Namespace, point: Point) -> tuple[Array, Array]:
        if self.p == 1:
            return Truncated(self.lower_bound).solve(xp, point)
        if self.p == 0.5:
            return SquareRoot(self.lower_bound).solve(xp, point)
        return _solve_power(xp, self.p, point)

    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        p = self.p
        if abs(p) <= _NEGLIGIBLE:
            return xp.exp(-drop)
        # For p < 0 the model is +∞ where the base vanishes, for p > 0 it is 0 from there on.
        base = 1.0 - p * drop
        inside = base > 0
        value = xp.exp(xp.log1p(xp.where(inside, -p * drop, 0.0)) / p)
        return xp.where(inside, value, 0.0 if p > 0 else math.inf)


_NEGLIGIBLE = 1e-17
"""Exponents closer to 0 than this give the exponential model to the last bit; the formulas then use 1e-30."""


def _solve_power(xp: Namespace, p: float, point: Point) -> tuple[Array, Array]:
    """Step size and δ of Power(p) for p < 1; p = 0 is the exponential.

    Solved in the variable s ≥ 0 that makes the model's value at the new point F·e^(−s). With a = |p|,

        t = e^(−(1 − p)s),    E = z·t = (1 − e^(−ps))/p,    δ/F = 1 − e^(−s) − ½ t·E,

    and log z = (1 − p)s + log E(s) has a right-hand side that is increasing and concave in s: from a guess on its left
    Newton's method cannot overshoot, and Halley's reaches full precision in four steps for every p and z.
    """
    height, grad_sq, lr, half, z, _ = point
    p = p if abs(p) > _NEGLIGIBLE else 1e-30
    limits = xp.limits(z)
    first_order = 1.0 - (1.0 - p) * z
    # The series' next terms, (1 − p)z² and (1 − p)²z², are below rounding.
    small = z < 0.25 * min(1.0, math.sqrt(limits.eps) / max(1.0 - p, math.sqrt(1.0 - p)))
    height, grad_sq, rate, z = (xp.where(small, 1.0, value) for value in (height, grad_sq, lr, z))
    ceiling = 0.5 * limits.max / (1.0 + 2.0 * abs(p))  # the guess multiplies z
    beyond = z > ceiling
    z = xp.where(beyond, ceiling, z)
    log_z = xp.where(beyond, xp.log(rate) + xp.log(grad_sq) - xp.log(height), xp.log(z))
    s = _power_exponent(xp, p, z, log_z, beyond)

    scale = xp.exp(-(1.0 - p) * s)
    fall = -xp.expm1(-abs(p) * s) / abs(p)
    if p >= 0:  # E = fall
        long, product = fall, scale * fall
    else:  # E = fall·e^(−ps), which can overflow where t·E does not
        long, product = fall * xp.exp(-p * s), xp.exp(-s) * fall
    size = xp.where(z > 1.0, (height / grad_sq) * long, rate * scale)
    if p < 0:
        size = xp.where(beyond, xp.exp(xp.log(rate) - (1.0 - p) * s), size)
    size = xp.where(small, lr * first_order, size)
    delta = height * (-xp.expm1(-s) - 0.5 * product)
    return xp.minimum(size, lr), xp.where(small, half * first_order, delta)


def _power_exponent(xp: Namespace, p: float, z: Array, log_z: Array, beyond: Array) -> Array:
    """The root s of log z = (1 − p)s + log((1 − e^(−ps))/p) = c·s + log s + log φ(a s), φ(u) = (1 − e^(−u))/u."""
    a, c = abs(p), 1.0 - p + max(-p, 0.0)
    value, log_value = xp.detach(z), xp.detach(log_z)
    s = _power_guess(xp, p, value, log_value)
    for last in (False, False, False, True):
        if last:  # the correction that carries the gradient
            value, log_value = z, log_z
        u = a * s
        fall = -xp.expm1(-u)
        residual = xp.where(beyond, log_value - xp.log(s), xp.log(value / s)) - c * s - xp.log(fall / u)
        inverse = xp.exp(-u) / fall  # 1/(e^u − 1)
        slope = c + a * inverse
        bend = 0.5 * residual * (a * inverse) * (a * (1.0 + inverse)) / (slope * slope)
        step = (residual / slope) / (1.0 - xp.where(bend < 0.5, bend, 0.5))
        s = xp.maximum(s + step, 0.1 * s)
    return s


def _power_guess(xp: Namespace, p: float, z: Array, log_z: Array) -> Array:
    """A starting point on the left of the root or close to it: the larger of two lower bounds."""
    if p < 0:
        c = 1.0 - 2.0 * p  # from E ≤ s e^(−ps) and E ≤ e^(−ps)/|p|
        return xp.maximum(_lambert_guess(xp, c * z) / c, (log_z + math.log(-p)) / c)
    q = 1.0 - p
    # From E ≤ s; and from E = (1 − e^(−ps))/p with −log(1 − y) ≥ y, which is sharp where p is close to 1.
    near = _lambert_guess(xp, q * z) / q
    edge = (log_z + math.log(p)) / q
    far = edge + _omega_guess(xp, math.log(p / q) - p * edge) / p
    # e^(−ps) = 1 − p z t ≥ 1 − p z bounds the root from above while p z < 1.
    below = xp.where(p * z < 1.0, p * z, 0.0)
    ceiling = xp.where(p * z < 1.0, -xp.log1p(-below) / p, math.inf)
    return xp.minimum(xp.maximum(near, far), ceiling)


def _lambert_guess(xp: Namespace, z: Array) -> Array:
    """W₀(z), the w ≥ 0 with w·e^w = z, within 2 % (Winitzki's formula)."""
    log = xp.log1p(z)
    return log * (1.0 - xp.log1p(log) / (2.0 + log))


def _omega_guess(xp: Namespace, y: Array) -> Array:
    """W₀(e^y) within a few per cent: Winitzki's formula below 1, one term of the asymptotic series above."""
    above, below = xp.where(y > 1.0, y, 1.0), xp.where(y > 1.0, 1.0, y)
    return xp.where(y > 1.0, above - xp.log(above) * above / (1.0 + above), _lambert_guess(xp, xp.exp(below)))


Map = Callable[[Any], Any]

_GRID = np.geomspace(1e-3, 1e3, 121)
_HALVINGS = 64
# Five Gauss–Legendre nodes on [-1, 1]: exact for polynomials of degree nine.
_NODES, _WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(5))


@dataclass(frozen=True)
class Composite(Model):
    """Any pair of maps with (B1) ψ(φ(x)) = x, (B2) ψ convex and differentiable, (B3) φ differentiable with φ′ ≠ 0.

    With u = φ′(F) and q = α‖g‖², the scale t of the step is the root of t = u ψ′(φ(F) − q u t) in (0, 1], and

        size = t·α,    δ = F − ½ q t² − ψ(φ(F) − q u t) ≤ ½ q                    (eq. ``psi-phi-delta``)

    The maps take Python floats or arrays, of those libraries that you want to use the model with; functions of
    ``math`` serve NumPy arrays as well. The assumptions are checked once, on a grid from 1e-3 to 1e3. Where a map
    itself overflows, the step is not defined: size 0, delta ∞.

    >>> import math
    >>> model = Composite(math.log, lambda x: 1 / x, math.exp, math.exp)      # the Lambert-W step
    >>> round(model.step(1.0, 1.0, 1.0).size, 9)
    0.56714329
    """

    phi: Map
    dphi: Map
    psi: Map
    dpsi: Map
    lower_bound: Array = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("phi", "dphi", "psi", "dpsi"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be a function of one argument, got {getattr(self, name)!r}")
        _check_assumptions(self.phi, self.dphi, self.psi, self.dpsi)

    def solve(self, xp: Namespace, point: Point) -> tuple[Array, Array]:
        height, grad_sq, lr, half, z, _ = point
        z = xp.where(z > xp.limits(z).max, xp.limits(z).max, z)
        level, slope = _apply(xp, self.phi, height), _apply(xp, self.dphi, height)
        defined = xp.isfinite(level) & xp.isfinite(height * slope)
        level, slope = xp.where(defined, level, 0.0), xp.where(defined, slope, 1.0)
        reach = xp.where(defined, height, 1.0) * slope  # φ moves by reach·(relative drop of the linear model)

        def pull(drop: Array) -> Array:
            """u·ψ′ where the linear model has fallen by drop·F: what the scale t has to equal there."""
            return slope * _apply(xp, self.dpsi, level - reach * drop)

        drop = _solve_drop(xp, pull, z)
        t = drop / z
        # F − ψ(…) cancels for small z; there it is the integral of ψ′, taken by quadrature.
        twice_mean = sum(w * pull(0.5 * (1.0 + x) * drop) for x, w in zip(_NODES, _WEIGHTS, strict=True))
        small = z < 0.1
        after = _apply(xp, self.psi, xp.where(small, level, level - reach * drop))
        delta = xp.where(small, half * t * (twice_mean - t), height * (1.0 - 0.5 * drop * t) - after)
        size = xp.where(z > 1.0, (height / grad_sq) * drop, lr * t)
        defined = defined & xp.isfinite(size) & xp.isfinite(delta)
        delta = xp.where(defined, xp.where(delta > 0, delta, 0.0), math.inf)
        return xp.where(defined, xp.minimum(size, lr), 0.0), delta

    def _value(self, xp: Namespace, height: Array, decrease: Array, bound: Array) -> Array:
        argument = _apply(xp, self.phi, height) - _apply(xp, self.dphi, height) * decrease
        return bound + _apply(xp, self.psi, argument)

    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        return self._value(xp, 0.0 * drop + 1.0, drop, 0.0)


def _solve_drop(xp: Namespace, pull: Map, z: Array) -> Array:
    """The root d in (0, z] of pull(d) = d/z, where pull(0) = 1 and pull falls: the drop z·t of the linear model.

    The logarithm of d is halved into place; one step of Newton's method carries the gradient.
    """
    fixed = xp.detach(z)
    high = xp.log(fixed)
    low = 0.0 * high + math.log(xp.limits(fixed).tiny)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        d = xp.exp(middle)
        above = pull(d) > d / fixed
        low, high = xp.where(above, middle, low), xp.where(above, high, middle)
    d = xp.detach(d)
    if xp.derivative is None:
        return d
    last = (pull(d) - d / z) / (xp.detach(xp.derivative(pull, d)) - 1.0 / fixed)
    return d - xp.where(xp.isfinite(last), last, 0.0)


def _apply(xp: Namespace, function: Map, x: Array) -> Array:
    """A map of the user's on one number or array; functions of ``math`` are applied element by element."""
    if xp is FLOATS:
        try:
            return float(function(x))
        except OverflowError:
            return math.inf
    if xp is not NUMPY:
        value = function(x)
        if isinstance(value, float):
            raise TypeError(f"the map {function!r} turns a {xp.name} array into a float; give one made for {xp.name}")
        return value
    try:
        return np.asarray(function(x), x.dtype)
    except (TypeError, ValueError):  # also of an array where Python wants one truth value, as max and if do
        return np.vectorize(function, otypes=[x.dtype])(x)


def _check_assumptions(phi: Map, dphi: Map, psi: Map, dpsi: Map) -> None:
    """Raise ``ValueError`` naming the assumption of App. D that fails on the grid."""
    with np.errstate(all="ignore"):
        level, slope = _on_grid(phi, _GRID), _on_grid(dphi, _GRID)
        back, pull = _on_grid(psi, level), _on_grid(dpsi, level)

        def refuse(assumption: str, bad: Any) -> None:
            if bad.any():
                raise ValueError(f"{assumption} fails near x = {_GRID[bad.argmax()]:.3g}")

        refuse("(B1) psi(phi(x)) = x", ~(abs(back - _GRID) <= 1e-6 * _GRID))
        refuse("(B3) dphi(x) finite and not 0", ~(np.isfinite(slope) & (slope != 0)))
        refuse("(B3) dphi = derivative of phi", ~_is_derivative(level, slope, _GRID))
        refuse("(B2) dpsi = derivative of psi", ~_is_derivative(back, pull, level))
        order = np.argsort(level)
        refuse("(B2) psi convex", ~(np.diff(pull[order]) >= -1e-6 * abs(pull[order][1:])))


def _is_derivative(values: Any, slopes: Any, points: Any) -> Any:
    """Whether the chord between the neighbours of each inner point agrees with the slope there."""
    chords = np.diff(values) / np.diff(points)
    low, high = np.minimum(slopes[:-1], slopes[1:]), np.maximum(slopes[:-1], slopes[1:])
    slack = 1e-3 * np.maximum(abs(low), abs(high))
    return (chords >= low - slack) & (chords <= high + slack)


def _on_grid(function: Map, points: Any) -> Any:
    """A map's values on a NumPy grid, whatever kind of numbers it takes."""
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: _apply(NUMPY, function, points),
        lambda: function(sys.modules["torch"].from_numpy(points)).numpy(),
    )
    for attempt in attempts:
        with suppress(TypeError, ValueError, AttributeError, ArithmeticError, KeyError):
            return np.broadcast_to(attempt(), points.shape)
    raise TypeError(f"the map {function!r} cannot be evaluated on numbers from 1e-3 to 1e3")


NAMED: dict[str, type[Model]] = {
    "sgd": Linear,
    "sps": Truncated,
    "ngn": SquareRoot,
    "log-ngn": Exponential,
    "power": Power,
}
"""What specs, traces and reports call the methods of these models."""
