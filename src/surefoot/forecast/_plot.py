"""Pictures of a forecast."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from surefoot.forecast._answers import Prediction
from surefoot.forecast._fit import Fit
from surefoot.forecast._schedules import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"constant": "#d55e00", "cosine": "#0072b2", "wsd(decay_fraction=0.2)": "#009e73"}


def draw(fit: Fit, steps: int, over_rates: Callable[[str], tuple[Floats, list[Prediction]]]) -> Figure:
    """Left: how well the fit agrees with its own runs. Right: the forecast over the rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    measured = np.array([run.loss for run in fit.runs])
    left.scatter(measured - fit.residuals, measured, s=12, color="#0072b2")
    ends = [np.nanmin(measured), np.nanmax(measured)] if np.isfinite(measured).any() else [0.0, 1.0]
    left.plot(ends, ends, color="#999999", linewidth=1)
    left.set_xlabel("fitted final loss")
    left.set_ylabel("measured final loss")
    for schedule, colour in COLOURS.items():
        rates, found = over_rates(schedule)
        right.plot(rates, [each.loss for each in found], color=colour, label=schedule.replace("decay_fraction=", ""))
        right.fill_between(rates, [each.low for each in found], [each.high for each in found], color=colour, alpha=0.15)
    right.set_xscale("log")
    right.set_xlabel("learning rate")
    right.set_ylabel(f"forecast loss after {steps} steps")
    right.legend(frameon=False, fontsize=8)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure
