"""Schedules of runs as arrays of factors: from a name with options, an array, or a function of T."""

from __future__ import annotations

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
    if isinstance(schedule, str):
        schedule = in_full(schedule, default_warmup, **options)
    elif options:
        raise ValueError(f"options such as {next(iter(options))!r} go with a schedule's name, not with its factors")
    return schedules.factors(schedule, steps, may_rest=True)[1]


def in_full(schedule: str, default_warmup: int = 0, **options: Any) -> str:
    """A named schedule with all its options, as a study takes it too.

    >>> in_full("wsd", 20, cooldown=0.4)
    'wsd(cooldown=0.4, warmup=20)'
    """
    name, chosen = schedules.parse(schedule, **options)
    if default_warmup and "warmup" in schedules.options_of(name):
        chosen.setdefault("warmup", default_warmup)
    inside = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
    return f"{name}({inside})" if inside else name
