"""Learning-rate schedules as arrays of T positive factors η_t, so that α_t = α·η_t.

All are strictly positive, because the last-iterate bound is infinite for a schedule that ends at zero: the decaying
ones would reach zero at step T + 1.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._base.arguments import number, one_of, parse_call, whole

if TYPE_CHECKING:
    import torch

Floats = np.ndarray[Any, np.dtype[np.float64]]


def constant(T: int) -> Floats:
    """η_t = 1.

    >>> constant(3)
    array([1., 1., 1.])
    """
    return np.ones(whole("T", T, 1))


def warmup(T: int, steps: int = 100, start: float = 1e-10) -> Floats:
    """A straight line from ``start`` at the first step to 1 at step ``steps``, then constant (Sec. 5.1 of the paper).

    >>> warmup(5, steps=3, start=0.5)
    array([0.5 , 0.75, 1.  , 1.  , 1.  ])
    """
    factors = np.ones(whole("T", T, 1))
    start = number("start", start, positive=True, most=1)
    if whole("steps", steps, 1) > 1:
        factors[:steps] = np.linspace(start, 1.0, steps)[:T]
    return factors


def linear(T: int) -> Floats:
    """η_t = 1 − (t − 1)/T: a straight line that would reach zero at step T + 1.

    >>> linear(4)
    array([1.  , 0.75, 0.5 , 0.25])
    """
    return np.arange(whole("T", T, 1), 0, -1) / T


def cosine(T: int) -> Floats:
    """η_t = ½(1 + cos(π(t − 1)/T)): half a cosine that would reach zero at step T + 1.

    >>> cosine(2)
    array([1. , 0.5])
    """
    # cos² keeps its digits where 1 + cos cancels, at the end.
    return np.cos(0.5 * math.pi * np.arange(whole("T", T, 1)) / T) ** 2


def wsd(T: int, warmup_steps: int = 0, cooldown: float = 0.2) -> Floats:
    """Warmup, stable, decay: a ramp over ``warmup_steps``, constant, a straight line down over the last share.

    >>> wsd(5, cooldown=0.4)
    array([1.        , 1.        , 1.        , 0.66666667, 0.33333333])
    """
    T = whole("T", T, 1)
    warmup_steps = whole("warmup_steps", warmup_steps, 0)
    decay = round(number("cooldown", cooldown, least=0, most=1) * T)
    if warmup_steps + decay > T:
        raise ValueError(f"warmup_steps={warmup_steps} and a cooldown of {decay} steps do not fit into T={T}")
    factors = np.ones(T)
    factors[:warmup_steps] = np.arange(1, warmup_steps + 1) / (warmup_steps + 1)
    factors[T - decay :] = np.arange(decay, 0, -1) / (decay + 1)
    return factors


def inverse_sqrt(T: int, offset: float = 1.0) -> Floats:
    """η_t = √(offset/(t − 1 + offset)), which is 1 at the first step.

    >>> inverse_sqrt(4)[[0, 3]]
    array([1. , 0.5])
    """
    offset = number("offset", offset, positive=True)
    return np.asarray(np.sqrt(offset / (np.arange(whole("T", T, 1)) + offset)))


SCHEDULES: dict[str, Callable[..., Floats]] = {
    schedule.__name__: schedule for schedule in (constant, warmup, linear, cosine, wsd, inverse_sqrt)
}


def from_name(text: str, T: int) -> Floats:
    """The schedule that a spec names, such as ``"constant"`` or ``"warmup(steps=50)"``.

    >>> from_name("warmup(steps=2, start=0.1)", 3)
    array([0.1, 1. , 1. ])
    """
    name, options = parse_call(text)
    name = one_of("schedule", name.replace("-", "_"), SCHEDULES)
    allowed = list(inspect.signature(SCHEDULES[name]).parameters)[1:]
    for key in options:
        one_of(f"option of schedule {name!r}", key, allowed)
    return SCHEDULES[name](T, **options)


def factors(schedule: Any, steps: int | None, *, may_rest: bool = False) -> tuple[str, Floats]:
    """The name and the factors of a schedule, which is given by its name or as one factor per step.

    Args:
        schedule: The name or the factors.
        steps: How many there are to be; None for as many as are given.
        may_rest: Whether factors may be 0, at steps that do not move; the first may not.
    """
    if isinstance(schedule, str):
        if steps is None:
            raise ValueError(f"schedule={schedule!r} needs the horizon, the number of steps of the run")
        return "".join(schedule.split()), from_name(schedule, steps)
    expected = "a name or factors, one per step" if steps is None else f"a name or {steps} factors, one per step"
    try:
        values = np.array(schedule, float)
    except (TypeError, ValueError):
        raise ValueError(f"schedule must be {expected}, got {schedule!r}") from None
    if values.ndim != 1 or not len(values) or (steps is not None and len(values) != steps):
        raise ValueError(f"schedule must be {expected}, got an array of shape {values.shape}")
    if not (np.isfinite(values) & (values > 0) | ((values == 0) & may_rest)).all() or values[0] == 0:
        allowed = "finite factors of at least 0, the first above 0" if may_rest else "positive, finite factors only"
        raise ValueError(f"schedule must have {allowed}: the last-iterate bound is infinite otherwise")
    return "custom", values


def to_torch(optimizer: torch.optim.Optimizer, factors: Floats) -> torch.optim.lr_scheduler.LambdaLR:
    """A torch scheduler that multiplies each group's rate by the factors; the last one stays in force after T steps.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    >>> scheduler = to_torch(optimizer, linear(4))
    >>> optimizer.step(); scheduler.step(); scheduler.get_last_lr()
    [1.5]
    """
    from torch.optim.lr_scheduler import LambdaLR

    values = [float(factor) for factor in np.asarray(factors, float).ravel()]
    if not values or not all(0 < value < math.inf for value in values):
        raise ValueError("factors must be a non-empty array of positive, finite numbers")
    return LambdaLR(optimizer, lambda step: values[min(step, len(values) - 1)])
