"""Checks of arguments: an error names argument, value and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot import _checks
from surefoot._checks import number
from surefoot.rules import Floats
from surefoot.theory.arguments import unknown

__all__ = ["factors", "number", "positive", "tracked", "whole"]

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
    return _checks.whole(name, value, 1)


def positive(name: str, value: Any) -> float:
    """A finite number above 0."""
    return number(name, value, positive=True)
