"""The models with a closed form: linear (SGD), truncated (SPS) and square root (NGN)."""

from __future__ import annotations

from dataclasses import dataclass, field

from surefoot.theory.arrays import NUMPY, Array, Namespace
from surefoot.theory.models._base import INFINITY, Model, Point, spans


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

    def _guarded(self, xp: Namespace, loss: Array, grad_sq: Array, lr: Array, bound: Array) -> tuple[Array, Array]:
        if xp is NUMPY and loss.shape == grad_sq.shape == lr.shape:  # so simple that the general way would cost more
            decrease = lr * grad_sq
            limits = xp.limits(decrease)
            finite = spans(decrease, limits.tiny, limits.max) and spans(loss, -INFINITY, limits.max)
            if finite and spans(lr, 0.0):
                decrease *= 0.5
                return lr.copy(), decrease
        return super()._guarded(xp, loss, grad_sq, lr, bound)

    def _value(self, xp: Namespace, height: Array, decrease: Array, loss: Array, bound: Array) -> Array:
        return loss - decrease

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
        height, grad_sq, lr, half, z, regular = point
        short = z > 1.0
        if not regular:  # harmless numbers where they are not used
            height, grad_sq, z = (xp.where(short, value, 1.0) for value in (height, grad_sq, z))
        return _shorter(xp, short, height, grad_sq, lr), xp.where(short, height * (1.0 - 0.5 / z), half)

    def size(self, xp: Namespace, point: Point) -> Array:
        """The size of ``solve`` alone at a regular point, for loops in which the index can wait."""
        return _shorter(xp, point.z > 1.0, point.height, point.grad_sq, point.lr)

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


def _shorter(xp: Namespace, short: Array, height: Array, grad_sq: Array, lr: Array) -> Array:
    """F/‖g‖² where the linear model falls below the bound, else α."""
    return xp.minimum(xp.where(short, height / grad_sq, lr), lr)
