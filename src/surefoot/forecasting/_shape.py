"""The schedule with the smallest forecast, among those that never rise after the warmup."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from surefoot.forecasting import curve as form
from surefoot.forecasting._fit import Fit
from surefoot.forecasting._schedules import Floats

KNOTS = 20


def optimise(fit: Fit, steps: int, candidates: Floats, warmup: int) -> Floats:
    """The rates of all steps with the smallest forecast; the largest rate lies within the candidates."""
    free = steps - warmup
    ends = form.part_ends(steps)
    middle = 0.5 * (ends[:-1] + ends[1:])
    ramp = np.clip(middle / max(warmup, 1), 0.0, 1.0) if warmup else 1.0
    place = np.clip((middle - warmup) / free, 0.0, 1.0)
    knots = 1 - (1 - np.linspace(0.0, 1.0, KNOTS)) ** 1.7  # where the shape is free, closer towards the end
    low, high = math.log(candidates.min()), math.log(candidates.max())

    def losses(points: Floats) -> Floats:
        shape = np.stack([np.interp(place, knots, row) for row in _heights(points[:, 1:])])
        rates = np.exp(points[:, :1]) * ramp * shape
        return fit.losses(form.coarse(steps, rates, weight_decay=fit.weight_decay))

    def value_and_slope(point: Floats) -> tuple[float, Floats]:
        step = 1e-4 * np.eye(len(point))
        value, *moved = losses(np.concatenate([point[None], point + step, point - step]))
        up, down = np.split(np.array(moved), 2)
        return float(value), (up - down) / 2e-4

    def solved(flat: float) -> Any:
        """The solution from a start that is flat for this share, and then falls in a straight line."""
        heights = np.clip((1 - knots) / (1 - flat), 1e-3, 1.0)
        ratios = np.clip(heights[1:] / heights[:-1], 1e-3, 0.999)
        start = np.concatenate([[0.5 * (low + high)], logit(ratios)])
        limits = [(low, high), *[(-7.0, 7.0)] * (len(knots) - 1)]
        return minimize(value_and_slope, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 150})

    point = min(map(solved, (0.0, 0.5, 0.8)), key=lambda solution: float(solution.fun)).x
    shape = np.interp((np.arange(free) + 0.5) / free, knots, _heights(point[None, 1:])[0])
    ramped = np.arange(1, warmup + 1) / (warmup + 1)
    return np.asarray(math.exp(point[0]) * np.concatenate([ramped, shape]))


def _heights(ratios: Floats) -> Floats:
    """Falling heights from logits of the ratio of each to the one before it."""
    return np.asarray(np.cumprod(np.pad(expit(ratios), ((0, 0), (1, 0)), constant_values=1.0), axis=1))
