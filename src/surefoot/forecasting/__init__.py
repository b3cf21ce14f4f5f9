"""Forecast the final loss over rate × schedule × horizon, from a few short runs.

>>> import surefoot as sf
>>> measured = lambda lr, steps: 1 + (lr * steps) ** -0.5 + 2 * lr
>>> cases = [(lr, steps) for lr in (0.01, 0.03, 0.1) for steps in (200, 800)]
>>> runs = [dict(lr=lr, schedule="linear", steps=steps, loss=measured(lr, steps)) for lr, steps in cases]
>>> fit = sf.forecast(runs)
>>> fit.best(steps=1600, schedules=["linear"]).steps
1600
"""

from __future__ import annotations

from surefoot.forecasting._answers import Choice, Prediction
from surefoot.forecasting._forecast import Forecast, forecast

__all__ = ["Choice", "Forecast", "Prediction", "forecast"]
