"""The numbers of the form that fit measured losses: robust least squares beside a prior, with a scale of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from surefoot.forecasting import curve as form
from surefoot.forecasting._read import Run
from surefoot.forecasting._schedules import Floats

POINTS = 8
"""Points used per curve, at most."""
CURVE_WEIGHT = 0.25
"""Weight of such a point's residual: the errors of neighbours on a curve are correlated."""
EARLIEST = 0.35
"""Points before this fraction of the longest run are not used: early training does not follow the form."""
DRAWS = 300

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Prior = dict[str, tuple[float, float]]

PRIOR: Prior = {
    "bias_power": (0.42, 0.15),
    "noise_power": (0.7, 0.1),
    "rate_power": (-0.12, 0.06),
    "time_power": (0.03, 0.04),
    "log_growth": (1.0, 0.5),
}
"""Mean and width of the exponents' prior, which decides only where runs are few."""
VANISHED = 8.0
"""A second descent starts this far below the expected logarithm of the growth, where growth has no effect."""
FAR = 3.0
"""Beyond this many widths the pull of the prior stays the same."""
UNSURE = 0.1
"""Weight of the prior in the first pass of a descent."""
PASSES = 5
"""Passes with the full prior, after each of which the scale is estimated again."""

FREE = len(form.PARAMETERS)


class Points(NamedTuple):
    """Measured losses, and the schedules up to them."""

    parts: form.Trace
    losses: Floats
    final: Flags
    run: np.ndarray[Any, np.dtype[np.int64]]
    """Position of each point's run."""

    @property
    def counted(self) -> Flags:
        """The final losses; all points where no run is finished."""
        return self.final if self.final.any() else ~self.final

    @property
    def beside(self) -> Flags:
        """Points of curves beside final losses, from which they may differ by an offset."""
        return ~self.counted


def points(runs: list[Run]) -> Points:
    """Final losses, and up to ``POINTS`` points of each curve."""
    earliest = EARLIEST * max(run.steps for run in runs)
    traces, losses, final, owner = [], [], [], []
    for place, run in enumerate(runs):
        steps, values = run.curve
        usable = np.flatnonzero(steps >= max(earliest, 2 * run.warmup, 1))
        if len(usable):
            usable = usable[np.unique(np.linspace(0, len(usable) - 1, POINTS).round().astype(int))]
        at, measured = steps[usable].astype(int).tolist(), values[usable].tolist()
        if finished := math.isfinite(run.loss):
            at, measured = [*at, run.steps], [*measured, run.loss]
        if at:
            traces.append(form.trace(run.rates, at, weight_decay=run.weight_decay))
            losses += measured
            final += [False] * (len(at) - finished) + [True] * finished
            owner += [place] * len(at)
    return Points(form.stack(traces), np.array(losses), np.array(final), np.array(owner))


@dataclass(frozen=True)
class Problem:
    """Least squares: differences of losses in units of a scale, and of parameters from the prior in its widths.

    Large ones count less than their squares (soft L1): those of losses beyond one scale, those of parameters beyond
    ``FAR`` widths. ``sure`` is the weight of the prior.
    """

    data: Points
    reference: form.Reference
    expected: Prior
    scale: float
    sure: float = 1.0

    @cached_property
    def weights(self) -> Floats:
        """Late losses predict later ones best: each is weighed in proportion to its step."""
        at = self.data.parts.counts.sum(axis=-1)
        return np.asarray(np.where(self.data.counted, 1.0, CURVE_WEIGHT) * at / at.max() / self.scale)

    @cached_property
    def prior(self) -> tuple[Floats, Floats]:
        """Centre of every number, the offset at last, and one over its width: 0 if there is no prior."""
        prior = [self.expected.get(name, (0.0, math.inf)) for name in form.PARAMETERS]
        centre, width = np.array([*prior, (0.0, 30 * self.scale)]).T
        return centre, self.sure / width

    def differences(self, values: Floats) -> Floats:
        """Fitted minus measured."""
        fitted = form.loss(values[:FREE], self.data.parts, self.reference)
        return np.asarray(fitted - values[FREE] * self.data.beside - self.data.losses)

    def residuals(self, values: Floats) -> Floats:
        """Weighted differences of the losses, then those of the numbers."""
        centre, sure = self.prior
        return np.concatenate([self.differences(values) * self.weights, (values - centre) * sure])

    def softened(self, squares: Any) -> Any:
        """What residuals of these squares count, and its first two derivatives, as SciPy asks for them."""
        knees = np.ones(len(squares))
        knees[-FREE - 1 :] = FAR**2
        root = np.sqrt(1 + squares / knees)
        return np.stack([2 * knees * (root - 1), 1 / root, -0.5 / (knees * root**3)])

    def improbability(self, values: Floats) -> float:
        """Minus the logarithm of the probability of the numbers and the scale, given the runs, up to a constant."""
        count = _freedom(self.data) + CURVE_WEIGHT**2 * float(self.data.beside.sum())
        return count * math.log(self.scale) + 0.5 * float(self.softened(self.residuals(values) ** 2)[0].sum())


def solve(data: Points, reference: form.Reference, expected: Prior) -> tuple[Floats, Problem]:
    """The parameters and the offset, and the problem that they solve, with the scale of its residuals.

    A bad fit has a large scale, which gives the runs little weight, so that the prior decides and the fit stays bad.
    So every descent starts with a weak prior, one at the expected growth and one without growth. Of all fits on the
    way the most probable one is taken, where a large scale counts against a fit.
    """
    centre, width = expected["log_growth"]
    modes = [{**expected, "log_growth": (growth, width)} for growth in (centre, centre - VANISHED)]
    passed = [solution for mode in modes for solution in _descend(data, reference, mode)]
    return min(passed, key=lambda solution: solution[1].improbability(solution[0]))


def scale_of(differences: Floats, data: Points) -> float:
    """The typical size of the differences of the counted losses, and at least the noise of repeated runs."""
    level = data.losses[data.counted]
    smallest = 5e-4 * max(abs(float(np.median(level))), spread_of(level))
    typical = 1.4826 * float(np.median(np.abs(differences[data.counted])))
    return max(typical * math.sqrt(len(level) / _freedom(data)), smallest)


def spread_of(losses: Floats) -> float:
    """By how much losses differ, without the largest ones."""
    wide = float(np.percentile(losses, 75) - np.percentile(losses, 5))
    return wide or abs(float(np.median(losses))) or 1.0


def _freedom(data: Points) -> float:
    """Degrees of freedom that are left for the scale."""
    count = float(data.counted.sum())
    return max(count - 5, count / 3)


def _descend(data: Points, reference: form.Reference, expected: Prior) -> Iterator[tuple[Floats, Problem]]:
    """Fit parameters and scale in turn; the first pass has a weak prior."""
    from scipy.optimize import least_squares

    values = _start(data, reference, expected)
    # Amplitudes within two powers of e: without noise in the losses its logarithm would tend to −∞.
    expected = {**expected, "log_bias": (values[1], 2.0), "log_noise": (values[3], 2.0)}
    # Powers are positive, and losses that are never negative have a floor that is not.
    lowest = np.full(len(values), -math.inf)
    lowest[[2, 4]] = 0.01
    if data.losses.min() >= 0:
        lowest[0] = 0.0
    values = np.maximum(values, lowest)
    options: dict[str, Any] = {
        "bounds": (lowest, math.inf),
        "x_scale": "jac",
        "max_nfev": 50,
        "ftol": 1e-6,
        "xtol": 1e-6,
    }
    scale = 0.05 * spread_of(data.losses[data.counted])
    for sure in (UNSURE, *[1.0] * PASSES):
        problem = Problem(data, reference, expected, scale, sure)
        values = least_squares(problem.residuals, values, **options | {"loss": problem.softened}).x
        before, scale = scale, scale_of(problem.differences(values) * problem.weights * scale, data)
        yield values, Problem(data, reference, expected, scale)
        if sure == 1 and abs(math.log(scale / before)) < 0.05:
            break


def _start(data: Points, reference: form.Reference, expected: Prior) -> Floats:
    """Exponents in the middle of the prior; amplitudes, floor and offset by linear least squares."""
    values = np.array([expected.get(name, (0.0, 1.0))[0] for name in form.PARAMETERS] + [0.0])
    values[[1, 3]] = 0.0
    _, bias, noise = form.terms(values[:FREE], data.parts, reference)
    columns = [np.ones_like(bias), bias, noise, *([-1.0 * data.beside] if data.beside.any() else [])]
    ordered = np.argsort(data.losses)
    central = ordered[: max(len(columns), math.ceil(0.9 * len(ordered)))]  # a diverged run must not set the start
    linear = np.linalg.lstsq(np.stack(columns, axis=1)[central], data.losses[central], rcond=None)[0]
    least = 0.02 * spread_of(data.losses[data.counted])
    of_bias, of_noise = np.maximum(linear[1:3], least)
    values[0] = np.median((data.losses - of_bias * bias - of_noise * noise)[central])
    values[[1, 3]] = math.log(of_bias), math.log(of_noise)
    values[FREE:] = linear[3:] if data.beside.any() else 0.0
    return values


def draws(problem: Problem, values: Floats) -> Floats:
    """Parameters that other samples of the runs would have given: one Gauss–Newton step from the fit for each.

    Runs are drawn with replacement, with all their points; the centre of the prior is drawn as well, so that what the
    runs do not determine is not taken for certain.
    """
    from scipy.optimize import approx_fprime

    random, data = np.random.default_rng(0), problem.data
    off, rows = problem.residuals(values), approx_fprime(values, problem.residuals, 1e-6)
    slope = problem.softened(off**2)[1]
    own = len(data.losses)  # the other residuals are those of the prior
    count = int(data.run.max()) + 1
    squares, slopes = np.zeros((count, FREE + 1, FREE + 1)), np.zeros((count, FREE + 1))
    np.add.at(squares, data.run, (slope[:, None, None] * rows[:, :, None] * rows[:, None, :])[:own])
    np.add.at(slopes, data.run, (rows * (slope * off)[:, None])[:own])
    times = random.multinomial(count, np.full(count, 1 / count), size=DRAWS).astype(float)
    precision = slope[own:] * problem.prior[1] ** 2
    shift = random.standard_normal((DRAWS, FREE + 1)) * np.sqrt(precision)
    steepness = np.einsum("bi,ijk->bjk", times, squares) + np.diag(precision + 1e-9)
    pull = precision * (values - problem.prior[0]) - shift
    moved = -np.linalg.solve(steepness, (times @ slopes + pull)[..., None])[:, :FREE, 0]
    # The linear step is not valid further than this: not to a bias that hardly falls, nor to amplitudes near zero.
    for place, room in ((1, 0.8), (2, 0.6 * values[2]), (3, 0.8)):
        moved *= np.minimum(1.0, room / np.maximum(-moved[:, place], 1e-9))[:, None]
    # The step of an amplitude is taken in the amplitude itself, because exponentials of long steps are not realistic.
    moved[:, [1, 3]] = np.log1p(moved[:, [1, 3]])
    drawn = values[:FREE] + moved
    if data.losses.min() >= 0:
        drawn[:, 0] = np.maximum(drawn[:, 0], 0.0)
    return drawn
