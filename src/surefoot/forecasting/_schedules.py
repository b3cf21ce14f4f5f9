"""Schedules of runs as arrays of rates: from a name with options, factors, a function of T, or logged rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from surefoot.theory import schedules

Floats = np.ndarray[Any, np.dtype[np.float64]]
Schedule = str | Sequence[float] | Floats | Callable[[int], Any]


def factors(schedule: Schedule, steps: int, *, default_warmup: int = 0, **options: Any) -> Floats:
    """The T factors of a schedule in any form, as :mod:`surefoot.theory.schedules` understands it.

    >>> factors("wsd", 5, cooldown=0.4)
    array([1.  , 1.  , 1.  , 0.75, 0.25])
    >>> factors("linear", 4, default_warmup=1).round(2)
    array([0.5 , 1.  , 0.67, 0.33])
    """
    steps = whole("steps", steps, 1)
    if isinstance(schedule, str):
        return schedules.from_name(in_full(schedule, default_warmup, **options), steps)
    if options:
        raise ValueError(f"options such as {next(iter(options))!r} go with a schedule's name, not with its factors")
    return schedules.factors(schedule, steps, may_rest=True)[1]


def in_full(schedule: str, default_warmup: int = 0, **options: Any) -> str:
    """A named schedule with all that is known about it, as a study takes it too.

    >>> in_full("wsd", 20, cooldown=0.4)
    'wsd(cooldown=0.4, warmup=20)'
    """
    name, chosen = schedules.parse(schedule, **options)
    if default_warmup and "warmup" in schedules.options_of(name):
        chosen = {**chosen, "warmup": chosen.get("warmup", default_warmup)}
    inside = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
    return f"{name}({inside})" if inside else name


def known(name: str) -> bool:
    """Whether a schedule can be built from its name alone."""
    try:
        return bool(schedules.parse(name))
    except ValueError:
        return False


def from_log(base: Floats, steps: Floats, rates: Floats) -> Floats:
    """The rates as they were logged, and ``base`` before the log begins.

    A last logged rate of 0 is what many trainers write after the last step: it is replaced by where the two rates
    before it lead, which is 0 for a linear cooldown and the same rate for a constant one.

    >>> from_log(np.ones(4), np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 0.8, 0.6, 0.0])).round(1)
    array([1. , 0.9, 0.7, 0.5])
    """
    order = np.argsort(steps, kind="stable")
    when, logged = steps[order], rates[order].copy()
    if len(when) > 2 and logged[-1] == 0 and when[-2] > when[-3]:
        slope = (logged[-2] - logged[-3]) / (when[-2] - when[-3])
        logged[-1] = max(0.0, logged[-2] + slope * (when[-1] - when[-2]))
    middle = np.arange(len(base)) + 0.5
    return np.where(middle >= when[0], np.interp(middle, when, logged), base)


def number(value: Any, default: float = math.nan) -> float:
    """The value as a float; the default for what is no number, and for NaN, which an empty cell of a table becomes."""
    try:
        converted = float(value)
    except (TypeError, ValueError):
        return default
    return default if math.isnan(converted) else converted


def positive(name: str, value: Any) -> float:
    """The value as a number above 0."""
    if not 0 < number(value) < math.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return number(value)


def whole(name: str, value: Any, least: int) -> int:
    """The value as a whole number; 5e4 and 50000.0 pass."""
    if isinstance(value, bool) or not number(value).is_integer() or number(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(number(value))
