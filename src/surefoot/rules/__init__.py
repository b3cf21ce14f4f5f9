"""What the numbers of a run say about it, without torch: its history, its partial bound, and rules that end it.

A monitor on a training run, every run of a study and a search use the same rules.

>>> from surefoot.rules import History, NonFinite
>>> NonFinite().first(History([1.0, float("inf")], [1.0, 1.0], [0.5, 0.5], [1.0] * 4)).step
1
"""

from surefoot.rules._history import ROUNDING, Floats, History, Stop, partial_weights
from surefoot.rules._rules import (
    Dead,
    DeltaExplosion,
    NonFinite,
    PartialBound,
    StopRule,
    check_rules,
    first_stop,
    is_shared,
    with_best,
)

__all__ = [
    "ROUNDING", "Dead", "DeltaExplosion", "Floats", "History", "NonFinite", "PartialBound", "Stop", "StopRule",
    "check_rules", "first_stop", "is_shared", "partial_weights", "with_best",
]  # fmt: skip
