"""What all models share: guards at the edges, broadcasting, and two indices that belong to no model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from surefoot.theory.arrays import FLOATS, NUMPY, Array, Namespace, blockwise, coerce

INFINITY = float("inf")
_DOUBLE = FLOATS.limits(0.0)


class Step(NamedTuple):
    """A step x − size·g and its stability index."""

    size: Array
    """Multiplier of the gradient (the paper's α, τ or γ)."""
    delta: Array
    """Stability index δ ≥ 0."""

    def __str__(self) -> str:
        return f"step size {_shown(self.size)}, stability index δ {_shown(self.delta)}"

    def _repr_html_(self) -> str:
        return f"step size <b>{_shown(self.size)}</b>, stability index δ <b>{_shown(self.delta)}</b>"


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
    """What a model sees of the loss at one point, with F > 0; all other edges are taken care of."""

    height: Array
    """F = f − C > 0 (∞ if C = −∞)."""
    grad_sq: Array
    lr: Array
    half: Array
    """½ α‖g‖²; may be ∞."""
    z: Array
    """α‖g‖²/F; may be ∞."""
    regular: bool
    """Nothing is zero, and nothing overflows: ``half`` and ``z`` are finite and positive."""


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
        bound = self.lower_bound
        if type(loss) is type(grad_sq) is type(lr) is type(bound) is float:  # a short way for scalars
            height, decrease = self.height(loss, bound), lr * grad_sq
            if lr > 0 and height > 0 and _DOUBLE.tiny < decrease <= _DOUBLE.max:
                z = decrease / height
                if _DOUBLE.tiny < z <= _DOUBLE.max:
                    return Step(*self.solve(FLOATS, Point(height, grad_sq, lr, 0.5 * decrease, z, True)))
            return Step(*self._guarded(FLOATS, loss, grad_sq, lr, bound))
        xp, arrays = coerce(loss, grad_sq, lr, bound)
        if xp is not NUMPY:
            return Step(*self._guarded(xp, *arrays))
        with xp.quiet():
            size, delta = blockwise(lambda *pieces: self._guarded(xp, *pieces), arrays, outputs=2)
        return Step(size[()], delta[()])

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
            value = self._value(xp, height, size * grad_sq, loss, bound)
            value = xp.where(live, xp.where(bounded, value, loss - size * grad_sq), loss)  # linear without a bound
        return value[()] if xp is NUMPY else value

    def _value(self, xp: Namespace, height: Array, decrease: Array, loss: Array, bound: Array) -> Array:
        return bound + height * self.relative_value(xp, decrease / height)

    def _guarded(self, xp: Namespace, loss: Array, grad_sq: Array, lr: Array, bound: Array) -> tuple[Array, Array]:
        """The step with every edge taken care of; ``solve`` sees positive heights and finite numbers only."""
        if xp is NUMPY:
            height, decrease = self.height(loss, bound), lr * grad_sq
            z = decrease / height
            limits = xp.limits(z)
            # A normal q and a finite, positive z leave no room for anything special in the four inputs.
            if spans(decrease, limits.tiny, limits.max) and spans(z, limits.tiny, limits.max) and spans(lr, 0.0):
                return self.solve(xp, Point(height, grad_sq, lr, 0.5 * decrease, z, True))
        if xp.concrete:
            reject_negative(xp, grad_sq=grad_sq, lr=lr)
        good = xp.isfinite(loss) & xp.isfinite(grad_sq) & (lr >= 0) & (grad_sq >= 0) & (bound < INFINITY)
        live = good & (loss > bound)
        height = xp.where(live, self.height(loss, bound), 1.0)
        grad_sq = xp.where(live, grad_sq, 0.0)
        lr = xp.where(lr < INFINITY, lr, xp.limits(lr).max)
        z = relative_decrease(xp, height, grad_sq, lr)
        size, delta = self.solve(xp, Point(height, grad_sq, lr, half_decrease(xp, grad_sq, lr), z, False))
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


def spans(x: Array, low: float, high: float = INFINITY) -> bool:
    """Whether all of a NumPy array lies in (low, high]; a NaN does not."""
    return x.size > 0 and bool(x.min() > low and (high == INFINITY or x.max() <= high))


def reject_negative(xp: Namespace, **values: Array) -> None:
    """Raise for a negative number; NaN passes, it has its documented result."""
    for name, value in values.items():
        negative = value < 0
        if negative if xp is FLOATS else negative.any():
            raise ValueError(f"{name} must be at least 0, got {value if xp is FLOATS else value[negative][0]}")


def relative_decrease(xp: Namespace, height: Array, grad_sq: Array, lr: Array) -> Array:
    """z = α‖g‖²/F, right to rounding even where α‖g‖² overflows or underflows (∞ only if z itself is too large)."""
    decrease = lr * grad_sq
    limits = xp.limits(decrease)
    normal = (decrease >= limits.tiny) & (decrease <= limits.max)
    # The smaller factor over F neither overflows nor underflows where the product does.
    return xp.where(normal, decrease / height, (xp.minimum(lr, grad_sq) / height) * xp.maximum(lr, grad_sq))


def half_decrease(xp: Namespace, grad_sq: Array, lr: Array) -> Array:
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
    if type(loss) is type(grad_sq) is type(lr) is type(size) is type(lower_bound) is float:  # a short way for scalars
        regular = 0.0 < size <= lr < INFINITY and 0.0 <= grad_sq < INFINITY and -INFINITY < loss < INFINITY
        if regular and lower_bound < INFINITY:
            return _safe_delta(FLOATS, loss - lower_bound, grad_sq, lr, size)
    xp, (loss, grad_sq, lr, size, bound) = coerce(loss, grad_sq, lr, size, lower_bound)
    if xp.concrete:
        reject_negative(xp, grad_sq=grad_sq, lr=lr)
    with xp.quiet():
        good = xp.isfinite(loss) & xp.isfinite(grad_sq) & (grad_sq >= 0) & (bound < INFINITY)
        good = good & (size >= 0) & (size <= lr) & xp.isfinite(lr)
        moving = good & (lr > 0)
        lr, size, grad_sq = xp.where(moving, lr, 1.0), xp.where(moving, size, 1.0), xp.where(moving, grad_sq, 0.0)
        delta = xp.where(good, _safe_delta(xp, loss - bound, grad_sq, lr, size), INFINITY)
    return delta[()] if xp is NUMPY else delta


def _safe_delta(xp: Namespace, excess: Array, grad_sq: Array, lr: Array, size: Array) -> Array:
    """The safe index of numbers in their range, with lr > 0."""
    # 1 − t as (α − size)/α is exact; t = 1 loses nothing of F, even where F is infinite (C = −∞).
    lost = xp.where((excess > 0) & (size < lr), excess, 0.0) * ((lr - size) / lr)
    # ½ t² q = t · ½ size‖g‖²: size‖g‖² stays finite where α‖g‖² overflows.
    return lost + (size / lr) * half_decrease(xp, grad_sq, size)


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
