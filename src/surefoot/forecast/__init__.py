"""Forecast the final loss over rate × schedule × horizon, from a few short runs.

The room is called like its function, so it can be called itself: ``sf.forecast(runs)``.

>>> import surefoot as sf
>>> measured = lambda lr, steps: 1 + (lr * steps) ** -0.5 + 2 * lr
>>> cases = [(lr, steps) for lr in (0.01, 0.03, 0.1) for steps in (200, 800)]
>>> runs = [dict(lr=lr, schedule="linear", steps=steps, loss=measured(lr, steps)) for lr, steps in cases]
>>> fit = sf.forecast(runs)
>>> fit.best(steps=1600, schedules=["linear"]).steps
1600
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from surefoot.forecast._answers import BestSchedule, Choice, Option, Prediction
from surefoot.forecast._forecast import Forecast, forecast

__all__ = ["BestSchedule", "Choice", "Forecast", "Option", "Prediction", "forecast"]


class _Room(ModuleType):
    """A module that can be called, because ``surefoot.forecast`` is both the room and what it does."""

    def __call__(self, runs: Any, **options: Any) -> Forecast:
        return forecast(runs, **options)


_Room.__call__.__doc__ = forecast.__doc__
sys.modules[__name__].__class__ = _Room
