"""The fit of one group of runs: robust least squares on final losses and on points along the curves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from surefoot.forecast._answers import Prediction
from surefoot.forecast._read import Run
from surefoot.forecast._schedules import Floats
from surefoot.theory import forecast as form

POINTS = 8
"""At most so many points of a curve are used."""
CURVE_WEIGHT = 0.25
"""Weight of such a point's residual: neighbours on a curve err alike."""
EARLIEST = 0.35
"""Points before this share of the longest run are not used: early training follows other laws."""
LEAST_RUNS = 4
"""Runs below which there is nothing to fit."""
DRAWS = 300
LONGEST = 10.0
"""Times the longest run: beyond, a forecast is refused."""
HIGHEST, LOWEST = 4.0, 20.0
"""Times the largest rate, and the smallest one's share, beyond which it is refused."""
PER_DOUBLING = {"steps": 1.0, "lr": 2.0, "shape": 3.0, "finished": 1.2}
"""By how many residuals the interval widens outside of what the runs cover: a doubling of steps or rate, of N/A at any
step, and of N/A at the end of a run."""
NORMAL = 1.645
"""90 % of a normal distribution lie within so many standard deviations."""

Prior = dict[str, tuple[float, float]]

PRIOR: Prior = {
    "bias_power": (0.42, 0.15),
    "noise_power": (0.7, 0.1),
    "rate_power": (-0.12, 0.06),
    "time_power": (0.03, 0.04),
    "log_growth": (1.0, 0.5),
}
"""Where the exponents are expected, and how sure that is: it decides only where runs are few."""

FREE = len(form.PARAMETERS)


class Points(NamedTuple):
    """Measured losses, and the schedules up to them."""

    parts: form.Trace
    losses: Floats
    final: np.ndarray[Any, np.dtype[np.bool_]]
    run: np.ndarray[Any, np.dtype[np.int64]]
    """Position of each point's run."""

    @property
    def counted(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The final losses; all points where no run is finished."""
        return self.final if self.final.any() else np.ones(len(self.final), bool)

    @property
    def beside(self) -> Floats:
        """1 for points of curves beside final losses, from which they may differ by an offset; 0 for all others."""
        return np.where(self.counted, 0.0, 1.0)


@dataclass(frozen=True)
class Fit:
    """The fitted numbers of one group."""

    parameters: Floats
    """In the order of ``theory.forecast.PARAMETERS``."""
    offset: float
    """By how much final losses lie above the curves at the same step."""
    reference: form.Reference
    scale: float
    """Typical size of a final loss's residual."""
    draws: Floats
    """Parameters of fits to resampled runs."""
    runs: list[Run]
    """The runs that were used."""
    lost: list[Run]
    """The runs that diverged or stand far above the fit."""
    residuals: Floats
    """Measured minus fitted final loss, NaN where there is none, for ``runs``."""
    box: dict[str, tuple[float, float]]
    """What the runs cover: steps, lr, shape."""

    @property
    def warmup(self) -> int:
        """Steps of the ramp at the start that is usual in these runs."""
        return int(np.median([run.warmup for run in self.runs]))

    @property
    def weight_decay(self) -> float:
        """The weight decay that is usual in these runs."""
        return float(np.median([run.weight_decay for run in self.runs]))

    def losses(self, parts: form.Trace) -> Floats:
        """The forecasts of schedules, without intervals."""
        return form.loss(self.parameters, parts, self.reference)

    def predict(self, rates: Floats) -> Prediction:
        """The final loss of a run with these rates, and its interval."""
        parts = form.trace(rates, weight_decay=self.weight_decay)
        value = float(self.losses(parts))
        drawn = form.loss(self.draws, parts, self.reference)
        drawn = np.where(np.isfinite(drawn), drawn, math.inf)
        below, above = value - np.quantile(drawn, 0.05), np.quantile(drawn, 0.95) - value
        beyond = self._beyond(rates, parts)
        # Few runs make the residuals' own size uncertain; runs of about one length say little on longer ones.
        typical = self.scale * (1 + 1 / max(len(self.runs) - 5, 2))
        lengths = [run.steps for run in self.runs if math.isfinite(run.loss)] or [1]
        doublings = math.log2(max(lengths) / min(lengths))
        beyond["steps"] = beyond["steps"] ** 1.5 / min(max(doublings, 0.25), 1.0)
        spread = NORMAL * typical * math.sqrt(1 + sum((PER_DOUBLING[key] * far) ** 2 for key, far in beyond.items()))
        low = value - math.hypot(max(below, 0.0), spread)
        if all(run.loss >= 0 for run in self.runs if math.isfinite(run.loss)):
            low = max(low, 0.0)
        high = value + math.hypot(max(above, 0.0), spread)
        outside = ", ".join(key for key, far in beyond.items() if far > 0.01 and key != "finished")
        return Prediction(value, low, high, f"outside of what the runs cover in {outside}" if outside else "")

    def prior(self) -> Prior:
        """What smaller groups lean on: these exponents, half as sure as the usual prior, or as sure as the draws."""
        wide = dict(zip(form.PARAMETERS, self.draws.std(axis=0), strict=True))
        centre = dict(zip(form.PARAMETERS, self.parameters, strict=True))
        return {name: (float(centre[name]), max(0.5 * width, float(wide[name]))) for name, (_, width) in PRIOR.items()}

    def _beyond(self, rates: Floats, parts: form.Trace) -> dict[str, float]:
        """By how many doublings a schedule lies outside of what the runs cover."""
        form_of = math.exp(float(shape(parts)))
        values = {"steps": float(len(rates)), "lr": float(rates.max()), "shape": form_of, "finished": form_of}
        return {
            key: max(0.0, math.log2(value / self.box[key][1]), math.log2(self.box[key][0] / value))
            for key, value in values.items()
        }

    def reach(self, steps: int, lr: float | None = None) -> None:
        """Refuse lengths and rates that are too far from those of the runs."""
        longest = self.box["steps"][1]
        if steps > LONGEST * longest:
            raise ValueError(
                f"steps must be at most {LONGEST:g} times the longest run ({longest:.0f}), got {steps}: add longer runs"
            )
        low, high = self.box["lr"]
        if lr is not None and not low / LOWEST <= lr <= high * HIGHEST:
            raise ValueError(
                f"lr must be between {low / LOWEST:g} and {high * HIGHEST:g} for runs with rates from {low:g} to "
                f"{high:g}, got {lr:g}: add runs with such rates"
            )

    def candidates(self) -> Floats:
        """Rates to choose from: the smallest to twice the largest, below the smallest one that was lost."""
        low, high = self.box["lr"]
        top = 2 * high
        lost = [run.lr for run in self.lost if run.lr > high]
        if lost:
            top = min(top, math.sqrt(high * min(lost)))
        return np.geomspace(low, max(top, low * 1.001), 33)


def points(runs: list[Run]) -> Points:
    """Final losses, and up to ``POINTS`` points of each curve."""
    earliest = EARLIEST * max(run.steps for run in runs)
    traces, losses, final, owner = [], [], [], []
    for place, run in enumerate(runs):
        steps, values = run.curve
        usable = np.flatnonzero(steps >= max(earliest, 2 * run.warmup, 1))
        if len(usable):
            usable = usable[np.unique(np.linspace(0, len(usable) - 1, POINTS).round().astype(int))]
        at = steps[usable].astype(int).tolist()
        measured = values[usable].tolist()
        if finished := math.isfinite(run.loss):
            at, measured = [*at, run.steps], [*measured, run.loss]
        if at:
            traces.append(form.trace(run.rates, at, weight_decay=run.weight_decay))
            losses += measured
            final += [False] * (len(at) - finished) + [True] * finished
            owner += [place] * len(at)
    return Points(form.stack(traces), np.array(losses), np.array(final), np.array(owner))


def fit(runs: list[Run], prior: Prior | None = None, *, seed: int = 0) -> Fit:
    """Fit the form to runs of one model and data set; ``check`` says beforehand whether that makes sense."""
    expected = prior or PRIOR
    finite = [run for run in runs if math.isfinite(run.loss) or (math.isnan(run.loss) and len(run.curve[0]))]
    lost = [run for run in runs if math.isinf(run.loss)]
    while True:
        check(finite, lost)
        data = points(finite)
        if not len(data.losses):
            raise ValueError("runs must have losses after their warmup and first third, and none has")
        reference = _reference(data)
        values, problem = _solve(data, reference, expected)
        far = _far_above(problem, values, len(finite))
        if not far:
            break
        lost += [finite[place] for place in far]
        finite = [run for place, run in enumerate(finite) if place not in far]
    residual = np.full(len(finite), np.nan)
    fitted = form.loss(values[:FREE], data.parts, reference)
    residual[data.run[data.final]] = (data.losses - fitted)[data.final]
    draws = _draws(problem, values, seed)
    offset = float(values[FREE]) if data.beside.any() else 0.0
    return Fit(values[:FREE], offset, reference, problem.scale, draws, finite, lost, residual, _box(finite, data))


def check(runs: list[Run], lost: list[Run]) -> None:
    """Say what is missing, before anything is computed."""
    gone = f" ({len(lost)} more diverged)" if lost else ""
    wants = (
        f"a forecast wants at least {LEAST_RUNS} runs that did not diverge, better 8 to 12, with two or more rates or "
        "schedules and two or more lengths (or losses along the way)"
    )
    if len(runs) < LEAST_RUNS:
        raise ValueError(f"{wants}; got {len(runs)}{gone}")
    rates, lengths = {run.lr for run in runs}, {run.steps for run in runs}
    shapes = {round(float(shape(form.trace(run.rates))), 2) for run in runs}
    if len(rates) == 1 and len(shapes) == 1:
        raise ValueError(
            f"{wants}; all {len(runs)} runs have one schedule and lr={runs[0].lr:g}: nothing tells noise from progress"
        )
    if len(lengths) == 1 and not any(len(run.curve[0]) > 1 for run in runs):
        raise ValueError(f"{wants}; all {len(runs)} runs have steps={runs[0].steps} and no curve")


def shape(parts: form.Trace) -> Floats:
    """log(N/A): what a schedule's form does to the noise, whatever its rate."""
    found = form.sums(parts)
    return np.log(found.noise / found.typical)


def _box(runs: list[Run], data: Points) -> dict[str, tuple[float, float]]:
    """What the runs cover: lengths, rates, and N/A at all points and at the ends of runs."""
    at, ends = data.parts.counts.sum(axis=-1), data.counted
    shapes = np.exp(shape(data.parts))
    rates = [run.lr for run in runs]
    return {
        "steps": (float(at.min()), float(at[ends].max())),
        "lr": (min(rates), max(rates)),
        "shape": (float(shapes.min()), float(shapes.max())),
        "finished": (float(shapes[ends].min()), float(shapes[ends].max())),
    }


def _reference(data: Points) -> form.Reference:
    """The geometric means of what the runs have."""

    def middle(values: Floats) -> float:
        return float(np.exp(np.mean(np.log(values))))

    parts = form.Trace(*(part[data.counted] for part in data.parts))
    unit = form.Reference(rate=middle(parts.rates.max(axis=-1)), growth=middle(parts.growths.max(axis=-1)))
    found = form.sums(parts, PRIOR["log_growth"][0], unit)
    return replace(unit, total=middle(found.total), noise=middle(found.noise))


def _solve(data: Points, reference: form.Reference, expected: Prior) -> tuple[Floats, _Problem]:
    """The parameters and the offset, and the problem that they solve: the residuals' scale is estimated on the way."""
    from scipy.optimize import least_squares

    counted = data.counted
    level = data.losses[counted]
    spread = float(np.percentile(level, 75) - np.percentile(level, 5)) or abs(float(np.median(level))) or 1.0
    # A start in the middle of the prior; amplitudes and floor by linear least squares.
    values = np.array([expected.get(name, (0.0, 1.0))[0] for name in form.PARAMETERS] + [0.0])
    values[[1, 3]] = 0.0
    _, gradient = form.loss_and_gradient(values[:FREE], data.parts, reference)
    columns = [gradient[:, 0], gradient[:, 1], gradient[:, 3], *([-data.beside] if data.beside.any() else [])]
    ordered = np.argsort(data.losses)
    central = ordered[: max(len(columns), math.ceil(0.9 * len(ordered)))]  # a diverged run must not set the start
    linear = np.linalg.lstsq(np.stack(columns, axis=1)[central], data.losses[central], rcond=None)[0]
    bias, noise = (max(float(amount), 0.02 * spread) for amount in linear[1:3])
    values[1], values[3] = math.log(bias), math.log(noise)
    values[0] = float(np.median((data.losses - bias * gradient[:, 1] - noise * gradient[:, 3])[central]))
    values[FREE] = float(linear[3]) if data.beside.any() else 0.0
    # Amplitudes within two powers of e: where there is no noise to be seen, its logarithm would run away.
    expected = {**expected, "log_bias": (values[1], 2.0), "log_noise": (values[3], 2.0)}
    smallest = 5e-4 * max(abs(float(np.median(level))), spread)
    scale = max(0.05 * spread, smallest)
    freedom = max(counted.sum() - 5, counted.sum() / 3)
    # Losses that are never negative have a floor that is not.
    lowest = np.full(len(values), -math.inf)
    if data.losses.min() >= 0:
        lowest[0] = 0.0
        values[0] = max(values[0], 1e-3 * spread)
    for _ in range(4):
        problem = _Problem(data, reference, expected, scale)
        options: dict[str, Any] = {"x_scale": "jac", "max_nfev": 50, "ftol": 1e-6, "xtol": 1e-6}
        values = least_squares(problem.residuals, values, problem.jacobian, bounds=(lowest, math.inf), **options).x
        left = np.abs(problem.differences(values)[0][counted])
        before, scale = scale, max(1.4826 * float(np.median(left)) * math.sqrt(counted.sum() / freedom), smallest)
        if abs(math.log(scale / before)) < 0.05:
            break
    return values, _Problem(data, reference, expected, scale)


class _Problem:
    """Residuals in units of the scale, each made robust (soft L1), and those of the prior."""

    def __init__(self, data: Points, reference: form.Reference, expected: Prior, scale: float) -> None:
        self.data, self.reference, self.scale = data, reference, scale
        self._last: tuple[Floats, tuple[Floats, Floats]] | None = None
        # What comes last says most about what comes next: a loss counts in proportion to its step.
        at = data.parts.counts.sum(axis=-1)
        self.weights = np.where(data.counted, 1.0, CURVE_WEIGHT) * at / at.max() / scale
        self.prior = np.array([expected.get(name, (0.0, math.inf)) for name in form.PARAMETERS] + [(0.0, 30 * scale)])

    def differences(self, values: Floats) -> tuple[Floats, Floats]:
        """Fitted minus measured, and its derivatives; kept, because the solver asks for both at the same place."""
        if self._last is not None and np.array_equal(self._last[0], values):
            return self._last[1]
        fitted, gradient = form.loss_and_gradient(values[:FREE], self.data.parts, self.reference)
        beside = self.data.beside
        found = fitted - values[FREE] * beside - self.data.losses, np.column_stack([gradient, -beside])
        self._last = values.copy(), found
        return found

    def robust(self, values: Floats) -> tuple[Floats, Floats]:
        """The differences in units of the scale, large ones softened, and their derivatives."""
        off, gradient = self.differences(values)
        raw = np.nan_to_num(off * self.weights, nan=1e6, posinf=1e6, neginf=-1e6)
        root = np.sqrt(1 + raw * raw)
        slope = np.sqrt((root + 1) / 2) / root
        soft = np.sign(raw) * np.sqrt(2 * (raw * raw / (root + 1)))
        return soft, np.nan_to_num(gradient * (self.weights * slope)[:, None])

    def residuals(self, values: Floats) -> Floats:
        """What is squared and minimised: differences, and how far parameters are from where they are expected."""
        return np.concatenate([self.robust(values)[0], (values - self.prior[:, 0]) / self.prior[:, 1]])

    def jacobian(self, values: Floats) -> Floats:
        """Derivatives of the residuals."""
        return np.concatenate([self.robust(values)[1], np.diag(1 / self.prior[:, 1])])


def _far_above(problem: _Problem, values: Floats, count: int) -> list[int]:
    """Runs whose final loss is beyond anything that the form explains: they diverged and did not come back."""
    data = problem.data
    off = (data.losses - form.loss(values[:FREE], data.parts, problem.reference))[data.final]
    owner = data.run[data.final]
    best = float(data.losses[data.final].min()) if data.final.any() else 0.0
    limit = max(15 * problem.scale, 0.1 * abs(best))
    far = [int(place) for place, gap in zip(owner, off, strict=True) if gap > limit]
    return far if len(far) <= max(1, count // 4) else []


def _draws(problem: _Problem, values: Floats, seed: int) -> Floats:
    """Parameters that other samples of the runs would have given: one Gauss–Newton step from the fit for each.

    Runs are drawn with replacement, with all their points; the centre of the prior is drawn as well, so that what the
    runs do not determine is not taken for certain.
    """
    random, data = np.random.default_rng(seed), problem.data
    soft, rows = problem.robust(values)
    count = int(data.run.max()) + 1
    squares, slopes = np.zeros((count, FREE + 1, FREE + 1)), np.zeros((count, FREE + 1))
    np.add.at(squares, data.run, rows[:, :, None] * rows[:, None, :])
    np.add.at(slopes, data.run, rows * soft[:, None])
    times = random.multinomial(count, np.full(count, 1 / count), size=DRAWS).astype(float)
    finite = np.isfinite(problem.prior[:, 1])
    precision = np.where(finite, 1 / problem.prior[:, 1] ** 2, 0.0)
    shift = random.standard_normal((DRAWS, FREE + 1)) * np.where(finite, problem.prior[:, 1], 0.0)
    steepness = np.einsum("bi,ijk->bjk", times, squares) + np.diag(precision + 1e-9)
    pull = precision * (values - problem.prior[:, 0] - shift)
    step = np.linalg.solve(steepness, (times @ slopes + pull)[..., None])[..., 0]
    moved = -step[:, :FREE]
    # One step from the fit cannot say more than this: a bias that hardly falls, or amplitudes near zero, are cut short.
    for place, room in ((1, 0.8), (2, 0.6 * values[2]), (3, 0.8)):
        moved *= np.minimum(1.0, room / np.maximum(-moved[:, place], 1e-9))[:, None]
    # A step in the logarithm of an amplitude is one in the amplitude: exponentials of long steps would mean nothing.
    moved[:, [1, 3]] = np.log1p(moved[:, [1, 3]])
    drawn = values[:FREE] + moved
    if data.losses.min() >= 0:
        drawn[:, 0] = np.maximum(drawn[:, 0], 0.0)
    return drawn
