"""Checks of arguments: an error names argument, value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.monitor._history import Floats
from surefoot.theory._names import unknown

TRACKED = ("loss", "grad_sq", "step", "interval", "update_norm", "distance")
"""What can be asked for; the last three cost copies of the parameters and passes over them."""


def tracked(track: Any) -> tuple[str, ...]:
    """What to track, each name checked."""
    if isinstance(track, str) or not isinstance(track, Sequence) or not track:
        raise TypeError(f"track must be a sequence of {', '.join(TRACKED)}, got {track!r}")
    for name in track:
        if name not in TRACKED:
            raise unknown("track", str(name), TRACKED)
    return tuple(track)


def factors(schedule: Any, horizon: int | None) -> Floats | None:
    """The schedule as an array of one factor a step."""
    if schedule is None:
        return None
    factors: Floats = np.array(schedule, float)
    if factors.ndim != 1 or not len(factors) or (horizon is not None and len(factors) != horizon):
        raise ValueError(f"schedule must have one factor a step of the horizon {horizon}, got shape {factors.shape}")
    if not (np.isfinite(factors) & (factors >= 0)).all() or not factors[0] > 0:
        raise ValueError(f"schedule must have finite factors of at least 0, the first above 0, got {schedule!r}")
    return factors


def whole(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def number(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def positive(name: str, value: Any) -> float:
    """A finite number above 0."""
    if not number(name, value) > 0:
        raise ValueError(f"{name} must be above 0, got {value!r}")
    return float(value)
