"""Pictures of a forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surefoot.forecasting._fit import Fit
from surefoot.forecasting._schedules import factors
from surefoot.plots.methods import BLUE, GREEN, GREY, VERMILION
from surefoot.plots.style import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"constant": VERMILION, "cosine": BLUE, "wsd(cooldown=0.2)": GREEN}


def draw(fit: Fit, steps: int) -> Figure:
    """Draw how well the fit agrees with its own runs (left), and the forecast over the rate (right)."""
    figure, (left, right) = new_figure(2, width=4.5, height=3.8)
    measured = np.array([run.loss for run in fit.runs])
    left.scatter(measured - fit.residuals, measured, s=12, color=BLUE)
    ends = [np.nanmin(measured), np.nanmax(measured)] if np.isfinite(measured).any() else [0.0, 1.0]
    left.plot(ends, ends, color=GREY, linewidth=1)
    left.set(xlabel="fitted final loss", ylabel="measured final loss")
    for schedule, colour in COLOURS.items():
        rates, shape = fit.candidates[::2], factors(schedule, steps, default_warmup=fit.warmup)
        losses, lows, highs = zip(*(fit.predict(rate * shape) for rate in rates), strict=True)
        right.plot(rates, losses, color=colour, label=schedule)
        right.fill_between(rates, lows, highs, color=colour, alpha=0.15)
    right.set(xscale="log", xlabel="learning rate", ylabel=f"forecast loss after {steps} steps")
    right.legend(frameon=False, fontsize=8)
    return figure
