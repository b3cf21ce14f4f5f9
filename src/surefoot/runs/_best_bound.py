"""The rules of a sweep as they stand while it runs: a shared bound is the best that any of its processes has told."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from surefoot._files import replacing
from surefoot._states import seal_of
from surefoot.rules import ROUNDING, StopRule, is_shared, with_best
from surefoot.runs._types import Settings


def live_rules(settings: Settings) -> tuple[StopRule, ...]:
    """The rules as they stand now; nothing is ended that rounding alone puts above the best."""
    if not any(is_shared(rule) for rule in settings.rules):
        return settings.rules
    return with_best(settings.rules, (1 + ROUNDING) * (math.inf if settings.best is None else told_best(settings.best)))


def told_best(path: str) -> float:
    """The best bound so far; ∞ where nobody has told one, or the file is damaged or on another machine."""
    try:
        text, _, seal = Path(path).read_bytes().partition(b" ")
        return float(text) if seal == seal_of(text) else math.inf
    except (OSError, ValueError):
        return math.inf


def tell_best(path: str, best: float) -> None:
    """Let all processes know a bound, if it is the best so far."""
    if best < told_best(path):
        file, text = Path(path), repr(best).encode()
        file.parent.mkdir(parents=True, exist_ok=True)
        # Where another process has just removed the folder there is no bound, and all runs come to their end.
        with suppress(FileNotFoundError), replacing(file, "the best bound", sync=False) as to:
            to.write(text + b" " + seal_of(text))
