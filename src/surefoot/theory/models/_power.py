"""The power family F·(1 + p⟨g, y − x⟩/F)₊^(1/p) + C, and its limit p → 0, the exponential (Lambert-W step).

Both are solved in the variable s ≥ 0 that makes the model's value at the new point F·e^(−s). With a = |p|,

    t = e^(−(1 − p)s),    E = z·t = (1 − e^(−ps))/p,    δ/F = 1 − e^(−s) − ½ t·E,

and the equation log z = (1 − p)s + log E(s) has a right-hand side that is increasing and concave in s: from a guess on
its left Newton's method cannot overshoot, and Halley's reaches full precision in four steps for every p and z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from surefoot.theory.arrays import Array, Namespace
from surefoot.theory.models._base import Model, Point
from surefoot.theory.models._closed import SquareRoot, Truncated
from surefoot.theory.special import lambert_w_guess, lambert_w_positive, omega_above_one, omega_guess

_AS_EXPONENTIAL = 1e-17
"""Exponents closer to 0 than this give the exponential model to the last bit."""


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
            return Truncated.solve(self, xp, point)  # type: ignore[arg-type]
        if self.p == 0.5:
            return SquareRoot.solve(self, xp, point)  # type: ignore[arg-type]
        return _solve_power(xp, self.p if abs(self.p) > _AS_EXPONENTIAL else 0.0, point)

    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        p = self.p
        if abs(p) <= _AS_EXPONENTIAL:
            return xp.exp(-drop)
        # For p < 0 the model is +∞ where the base vanishes, for p > 0 it is 0 from there on.
        base = 1.0 - p * drop
        inside = base > 0
        value = xp.exp(xp.log1p(xp.where(inside, -p * drop, 0.0)) / p)
        return xp.where(inside, value, 0.0 if p > 0 else math.inf)


def _solve_power(xp: Namespace, p: float, point: Point) -> tuple[Array, Array]:
    """Step size and δ of Power(p) for p < 1; p = 0 is the exponential."""
    height, grad_sq, lr, half, z, _ = point
    limits = xp.limits(z)
    first_order = 1.0 - (1.0 - p) * z
    # The series' next terms, (1 − p)z² and (1 − p)²z², are below rounding.
    small = z < 0.25 * min(1.0, math.sqrt(limits.eps) / max(1.0 - p, math.sqrt(1.0 - p)))
    height, grad_sq, rate, z = (xp.where(small, 1.0, value) for value in (height, grad_sq, lr, z))
    ceiling = 0.5 * limits.max / (1.0 + 2.0 * abs(p))  # the guess multiplies z
    beyond = z > ceiling
    log_z = None
    if not (xp.concrete and xp.all(z <= ceiling)):
        log_z = xp.log(rate) + xp.log(grad_sq) - xp.log(height)  # used only where z is about to overflow
        z = xp.where(beyond, ceiling, z)
    s = _lambert_exponent(xp, z, log_z, beyond) if p == 0 else _power_exponent(xp, p, z, log_z, beyond)

    scale = xp.exp(-(1.0 - p) * s)
    fall = s if p == 0 else -xp.expm1(-abs(p) * s) / abs(p)
    if p >= 0:  # E = fall
        long, product = fall, scale * fall
    else:  # E = fall·e^(−ps), which can overflow where t·E does not
        long, product = fall * xp.exp(-p * s), xp.exp(-s) * fall
    size = xp.where(z > 1.0, (height / grad_sq) * long, rate * scale)
    if log_z is not None and p < 0:
        size = xp.where(beyond, xp.exp(xp.log(rate) - (1.0 - p) * s), size)
    size = xp.where(small, lr * first_order, size)
    delta = height * (-xp.expm1(-s) - 0.5 * product)
    return xp.minimum(size, lr), xp.where(small, half * first_order, delta)


def _lambert_exponent(xp: Namespace, z: Array, log_z: Array | None, beyond: Array) -> Array:
    """s = W₀(z), the root for p = 0."""
    w = lambert_w_positive(xp, z)
    return w if log_z is None else xp.where(beyond, omega_above_one(xp, xp.where(beyond, log_z, 1.0)), w)


def _power_exponent(xp: Namespace, p: float, z: Array, log_z: Array | None, beyond: Array) -> Array:
    """The root s of log z = (1 − p)s + log((1 − e^(−ps))/p) = c·s + log s + log φ(a s), φ(u) = (1 − e^(−u))/u."""
    a, c = abs(p), 1.0 - p + max(-p, 0.0)
    value, log_value = xp.detach(z), None if log_z is None else xp.detach(log_z)
    s = _guess(xp, p, value, xp.log(value) if log_value is None else xp.where(beyond, log_value, xp.log(value)))
    for last in (False, False, False, True):
        if last:  # the correction that carries the gradient
            value, log_value = z, log_z
        u = a * s
        fall = -xp.expm1(-u)
        residual = xp.log(value / s)
        if log_value is not None:
            residual = xp.where(beyond, log_value - xp.log(s), residual)
        residual = residual - c * s - xp.log(fall / u)
        inverse = xp.exp(-u) / fall  # 1/(e^u − 1)
        slope = c + a * inverse
        bend = 0.5 * residual * (a * a * inverse * (1.0 + inverse)) / (slope * slope)
        step = (residual / slope) / (1.0 - xp.where(bend < 0.5, bend, 0.5))
        s = xp.maximum(s + step, 0.1 * s)
    return s


def _guess(xp: Namespace, p: float, z: Array, log_z: Array) -> Array:
    """A starting point on the left of the root or close to it: the larger of two lower bounds."""
    if p < 0:
        c = 1.0 - 2.0 * p  # from E ≤ s e^(−ps) and E ≤ e^(−ps)/|p|
        return xp.maximum(lambert_w_guess(xp, c * z) / c, (log_z + math.log(-p)) / c)
    q = 1.0 - p
    # From E ≤ s; and from E = (1 − e^(−ps))/p with −log(1 − y) ≥ y, which is sharp where p is close to 1.
    near = lambert_w_guess(xp, q * z) / q
    edge = (log_z + math.log(p)) / q
    far = edge + omega_guess(xp, math.log(p / q) - p * edge) / p
    # e^(−ps) = 1 − p z t ≥ 1 − p z bounds the root from above while p z < 1.
    below = xp.where(p * z < 1.0, p * z, 0.0)
    ceiling = xp.where(p * z < 1.0, -xp.log1p(-below) / p, math.inf)
    return xp.minimum(xp.maximum(near, far), ceiling)
