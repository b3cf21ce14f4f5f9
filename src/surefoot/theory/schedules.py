"""Learning-rate schedules: T positive factors η_t, so that α_t = α·η_t, and their names.

The factors are positive, because the last-iterate bound is infinite for a schedule that ends at zero: those that decay
would reach ``end`` (0 by default) one step, or half a step, after the last one.

Where a schedule is asked for (``Study``, ``tune``, ``TorchRun``, ``StabilityMonitor``, ``forecast``) it is given by its
name with options, such as ``"wsd(cooldown=0.4)"`` or ``"cosine(warmup=100)"``, or as an array of factors.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from surefoot._base.arguments import number, one_of, parse_call, whole

Floats = np.ndarray[Any, np.dtype[np.float64]]


def constant(T: int, warmup: int = 0) -> Floats:
    """η_t = 1, after a ramp of ``warmup`` steps: k/(warmup + 1) at step k, as for all schedules with this option.

    >>> constant(3)
    array([1., 1., 1.])
    >>> constant(3, warmup=1)
    array([0.5, 1. , 1. ])
    """
    return _after_ramp(T, warmup, np.ones)


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


def linear(T: int, warmup: int = 0, end: float = 0.0) -> Floats:
    """η_t = 1 − (t − 1)/T: a straight line that would reach ``end`` at step T + 1.

    >>> linear(4)
    array([1.  , 0.75, 0.5 , 0.25])
    """
    return _after_ramp(T, warmup, lambda left: np.arange(left, 0, -1) / left, end)


def cosine(T: int, warmup: int = 0, end: float = 0.0) -> Floats:
    """η_t = ½(1 + cos(π(t − 1)/T)): half a cosine that would reach ``end`` at step T + 1.

    >>> cosine(2)
    array([1. , 0.5])
    """
    # cos² keeps its digits where 1 + cos cancels, at the end.
    return _after_ramp(T, warmup, lambda left: np.cos(0.5 * math.pi * np.arange(left) / left) ** 2, end)


COOLDOWNS: dict[str, Callable[[Floats], Floats]] = {
    "linear": lambda gone: 1 - gone,
    "sqrt": lambda gone: 1 - np.sqrt(gone),
    "cosine": lambda gone: np.cos(0.5 * math.pi * gone) ** 2,
}
"""Shapes of the cooldown of :func:`wsd`: the factor after each share of it."""


def wsd(T: int, warmup: int = 0, cooldown: float = 0.2, shape: str = "linear", end: float = 0.0) -> Floats:
    """Warmup, stable, decay: a ramp, a constant rate, and a cooldown over the last share of the T steps.

    The cooldown would reach ``end`` half a step after the last one. It begins after the warmup at the earliest.

    >>> wsd(5, cooldown=0.4)
    array([1.  , 1.  , 1.  , 0.75, 0.25])
    """
    length = round(number("cooldown", cooldown, least=0, most=1) * whole("T", T, 1))
    curve = COOLDOWNS[one_of("shape", shape, COOLDOWNS)]

    def body(left: int) -> Floats:
        steps = min(length, left)
        return np.concatenate([np.ones(left - steps), curve((np.arange(steps) + 0.5) / max(steps, 1))])

    return _after_ramp(T, warmup, body, end)


def inverse_sqrt(T: int, warmup: int = 0, offset: float | None = None) -> Floats:
    """η_t = √(offset/(t − 1 + offset)), which is 1 at the first step; the offset is by default the warmup, at least 1.

    >>> inverse_sqrt(4)[[0, 3]]
    array([1. , 0.5])
    """
    shift = number("offset", max(1.0, warmup) if offset is None else offset, positive=True)
    return _after_ramp(T, warmup, lambda left: np.asarray(np.sqrt(shift / (np.arange(left) + shift))))


def _after_ramp(T: int, warmup: int, body: Callable[[int], Floats], end: float = 0.0) -> Floats:
    """A ramp of ``warmup`` steps, then what ``body`` gives for the steps that are left, with ``end`` in place of 0."""
    if whole("warmup", warmup, 0) >= whole("T", T, 1):
        raise ValueError(f"warmup must be less than the T={T} steps of the schedule, got {warmup}")
    last = number("end", end, least=0, most=1)
    return np.concatenate([np.arange(1, warmup + 1) / (warmup + 1), last + (1.0 - last) * body(int(T) - warmup)])


SCHEDULES: dict[str, Callable[..., Floats]] = {
    schedule.__name__: schedule for schedule in (constant, warmup, linear, cosine, wsd, inverse_sqrt)
}


def parse(text: str, **options: Any) -> tuple[str, dict[str, Any]]:
    """The name and the options of a schedule in words; options given apart count more than those in the text.

    ``cos`` is another name of ``cosine``, and dashes may stand for underscores.

    >>> parse("wsd(cooldown=0.4)", warmup=10)
    ('wsd', {'cooldown': 0.4, 'warmup': 10})
    """
    name, inside = parse_call(text)
    plain = name.lower().replace("-", "_")
    name = one_of("schedule", "cosine" if plain == "cos" else plain, SCHEDULES)
    chosen = {**inside, **options}
    for key in chosen:
        one_of(f"option of schedule {name!r}", key, options_of(name))
    return name, chosen


def options_of(name: str) -> list[str]:
    """The options that a schedule has.

    >>> options_of("linear")
    ['warmup', 'end']
    """
    return list(inspect.signature(SCHEDULES[name]).parameters)[1:]


def from_name(text: str, T: int, **options: Any) -> Floats:
    """The schedule that a name and its options stand for, such as ``"constant"`` or ``"warmup(steps=50)"``.

    >>> from_name("warmup(steps=2, start=0.1)", 3)
    array([0.1, 1. , 1. ])
    """
    name, chosen = parse(text, **options)
    return SCHEDULES[name](T, **chosen)


def factors(schedule: Any, steps: int | None, *, may_rest: bool = False) -> tuple[str, Floats]:
    """The name and the factors of a schedule, given by its name, as one factor per step, or as a function of T.

    Args:
        schedule: The name, the factors, or the function that returns them.
        steps: How many there are to be; None for as many as are given.
        may_rest: Whether some factors may be 0, at steps that do not move.

    >>> factors("warmup(steps=2, start=0.1)", 3)
    ('warmup(steps=2,start=0.1)', array([0.1, 1. , 1. ]))
    """
    if steps is None and (isinstance(schedule, str) or callable(schedule)):
        raise ValueError(f"schedule={schedule!r} needs the horizon, the number of steps of the run")
    if isinstance(schedule, str):
        return "".join(schedule.split()), from_name(schedule, int(steps or 0))
    expected = "a name or factors, one per step" if steps is None else f"a name or {steps} factors, one per step"
    try:
        values = np.array(schedule(steps) if callable(schedule) else schedule, float)
    except (TypeError, ValueError):
        raise ValueError(f"schedule must be {expected}, got {schedule!r}") from None
    if values.ndim != 1 or not len(values) or (steps is not None and len(values) != steps):
        raise ValueError(f"schedule must be {expected}, got an array of shape {values.shape}")
    if not (np.isfinite(values) & (values >= 0)).all() or not (values.any() if may_rest else values.all()):
        allowed = "finite factors of at least 0, and one above 0" if may_rest else "positive, finite factors only"
        raise ValueError(f"schedule must have {allowed}: the last-iterate bound is infinite otherwise")
    return "custom", values
