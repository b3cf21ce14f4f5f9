"""Schedules of runs as arrays of rates: from a name with options, factors, a function of T, or logged rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from surefoot._base.arguments import one_of, parse_call
from surefoot.theory import schedules

Floats = np.ndarray[Any, np.dtype[np.float64]]
Schedule = str | Sequence[float] | Floats | Callable[[int], Any]

NAMES = ("constant", "cosine", "linear", "wsd", "inverse_sqrt")
ALIASES = {"cos": "cosine", "const": "constant", "warmup": "constant", "wsd_linear": "wsd", "rsqrt": "inverse_sqrt"}
OPTIONS = ("warmup", "decay_fraction", "decay_shape", "end")
OPTION_ALIASES = {"cooldown": "decay_fraction", "warmup_steps": "warmup", "steps": "warmup"}
SHAPES = ("linear", "sqrt", "cosine")


def factors(schedule: Schedule, steps: int, *, default_warmup: int = 0, **options: Any) -> Floats:
    """The T factors of a schedule, at most 1 by convention; a wrong schedule is refused before anything is computed.

    >>> factors("wsd", 5, decay_fraction=0.4).round(2)
    array([1.  , 1.  , 1.  , 0.75, 0.25])
    >>> factors("linear", 4, warmup=1).round(2)
    array([0.5 , 1.  , 0.67, 0.33])
    """
    steps = whole("steps", steps, 1)
    chosen = _options(options)
    if isinstance(schedule, str):
        name, inner = parse_call(schedule)
        return _named(name, steps, default_warmup, {**_options(inner), **chosen})
    if chosen:
        raise ValueError(f"options such as {next(iter(chosen))!r} go with a schedule's name, not with its factors")
    values = schedule(steps) if callable(schedule) else schedule
    try:
        array = np.array(values, float)
    except (TypeError, ValueError):
        raise TypeError(
            f"schedule must be a name ({', '.join(NAMES)}), {steps} factors, or a function of T, got {schedule!r}"
        ) from None
    if array.shape != (steps,):
        raise ValueError(f"schedule must have one factor a step, steps={steps}, got an array of shape {array.shape}")
    if not ((array >= 0).all() and (array < math.inf).all() and array.max() > 0):
        raise ValueError("schedule must have finite factors of at least 0, and a positive one")
    return array


def known(name: str) -> bool:
    """Whether a schedule can be built from its name alone."""
    try:
        return _canonical(parse_call(name)[0]) in NAMES
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


def describe(schedule: Schedule, **options: Any) -> str:
    """A short name for tables."""
    if not isinstance(schedule, str):
        return getattr(schedule, "__name__", "factors")
    name, inner = parse_call(schedule)
    chosen = {**_options(inner), **_options(options)}
    inside = ", ".join(f"{key}={value}" for key, value in chosen.items())
    return f"{_canonical(name)}({inside})" if inside else _canonical(name)


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


def _canonical(name: str) -> str:
    plain = name.strip().lower().replace("-", "_")
    return ALIASES.get(plain, plain)


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that have a value, under their own names; an empty cell of a table is NaN."""
    there = {key: value for key, value in options.items() if value is not None and value == value}
    named = {OPTION_ALIASES.get(key, key): value for key, value in there.items()}
    for key in named:
        one_of("option of a schedule", key, OPTIONS)
    return named


def _named(name: str, steps: int, default_warmup: int, options: dict[str, Any]) -> Floats:
    kind = one_of("schedule", _canonical(name), NAMES)
    warmup = whole("warmup", options.get("warmup", default_warmup), 0)
    if warmup >= steps:
        raise ValueError(f"steps must be more than the warmup of {warmup} steps, got {steps}")
    end = _share("end", options.get("end", 0.0))
    decay = _share("decay_fraction", options.get("decay_fraction", 0.2 if kind == "wsd" else 0.0))
    shape = one_of("decay_shape", options.get("decay_shape") or "linear", SHAPES)
    body = np.ones(steps - warmup)
    if kind == "linear":
        body = end + (1 - end) * schedules.linear(len(body))
    elif kind == "cosine":
        body = end + (1 - end) * schedules.cosine(len(body))
    elif kind == "inverse_sqrt":
        body = schedules.inverse_sqrt(len(body), offset=max(1.0, float(warmup)))
    elif kind == "wsd" and (length := min(round(decay * steps), len(body))):
        gone = (np.arange(length) + 0.5) / length
        left = {"linear": 1 - gone, "sqrt": 1 - np.sqrt(gone), "cosine": np.cos(0.5 * math.pi * gone) ** 2}[shape]
        body[-length:] = end + (1 - end) * left
    return np.concatenate([np.arange(1, warmup + 1) / (warmup + 1), body])


def _share(name: str, value: Any) -> float:
    if not 0 <= number(value) <= 1:
        raise ValueError(f"{name} must be a share from 0 to 1, got {value!r}")
    return number(value)
