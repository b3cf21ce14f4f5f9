"""The fit of one group of runs: robust least squares on final losses and on points along the curves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.forecasting import curve as form
from surefoot.forecasting._answers import Prediction
from surefoot.forecasting._read import Run
from surefoot.forecasting._schedules import Floats
from surefoot.forecasting._solve import FREE, PRIOR, Points, Prior, draws, points, scale_of, solve, spread_of

LEAST_RUNS = 4
"""Runs below which there is nothing to fit."""
LONGEST = 10.0
"""Beyond so many times the longest run a forecast is refused."""
HIGHEST, LOWEST = 4.0, 20.0
"""Rates above so many times the largest one, or so many times below the smallest, are refused as well."""
PER_DOUBLING = {"steps": 1.0, "lr": 2.0, "shape": 3.0, "finished": 1.2}
"""Residuals by which the interval widens per doubling beyond the runs: of steps, rate, N/A anywhere, N/A at the end."""
BADLY = 0.1
"""A fit is noted as bad if its residuals exceed this fraction of the spread of the losses."""
NORMAL = 1.645
"""90 % of a normal distribution lie within so many standard deviations."""


@dataclass(frozen=True)
class Fit:
    """The fitted numbers of one group."""

    parameters: Floats
    """The fitted numbers, in the order of ``curve.PARAMETERS``."""
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
    """Measured minus fitted final loss of each of ``runs``, NaN where there is none."""
    box: dict[str, tuple[float, float]]
    """What the runs cover: steps, lr, shape."""

    @cached_property
    def typical(self) -> float:
        """Mean size of the residuals."""
        finite = self.residuals[np.isfinite(self.residuals)]
        return float(np.mean(np.abs(finite))) if len(finite) else self.scale

    @cached_property
    def spread(self) -> float:
        """The spread of the runs' losses, without the largest ones."""
        return spread_of(np.array([run.loss if math.isfinite(run.loss) else run.curve[1][-1] for run in self.runs]))

    @property
    def misfit(self) -> bool:
        """Whether the residuals are large compared with the spread of the losses."""
        return self.typical > BADLY * self.spread

    @cached_property
    def warmup(self) -> int:
        """Steps of the ramp at the start that is usual in these runs."""
        return int(np.median([run.warmup for run in self.runs]))

    @cached_property
    def weight_decay(self) -> float:
        """The weight decay that is usual in these runs."""
        return float(np.median([run.weight_decay for run in self.runs]))

    @property
    def candidates(self) -> Floats:
        """Rates to choose from: those that the runs cover."""
        return np.geomspace(*self.box["lr"], 33)

    def losses(self, parts: form.Trace) -> Floats:
        """The forecasts of schedules, without intervals."""
        return form.loss(self.parameters, parts, self.reference)

    def predict(self, rates: Floats) -> Prediction:
        """The final loss of a run with these rates, and its interval."""
        parts = form.trace(rates, weight_decay=self.weight_decay)
        value = float(self.losses(parts))
        low, high = np.nanquantile(form.loss(self.draws, parts, self.reference), [0.05, 0.95])
        # How many doublings the schedule lies outside of what the runs cover.
        ratio = math.exp(float(shape(parts)))
        values = {"steps": float(len(rates)), "lr": float(rates.max()), "shape": ratio, "finished": ratio}
        beyond = {
            key: max(0.0, math.log2(here / self.box[key][1]), math.log2(self.box[key][0] / here))
            for key, here in values.items()
        }
        outside = ", ".join(key for key, far in beyond.items() if far > 0.01 and key != "finished")
        # Few runs make the residuals' own size uncertain; runs of about one length say little on longer ones.
        typical = self.scale * (1 + 1 / max(len(self.runs) - 5, 2))
        finite = [run for run in self.runs if math.isfinite(run.loss)]
        lengths = [run.steps for run in finite] or [1]
        beyond["steps"] = beyond["steps"] ** 1.5 / min(max(math.log2(max(lengths) / min(lengths)), 0.25), 1.0)
        spread = NORMAL * typical * math.hypot(1.0, *(PER_DOUBLING[key] * far for key, far in beyond.items()))
        low = value - math.hypot(max(value - low, 0.0), spread)
        high = value + math.hypot(max(high - value, 0.0), spread)
        if all(run.loss >= 0 for run in finite):
            low = max(low, 0.0)
        return Prediction(value, low, high, f"outside of what the runs cover in {outside}" if outside else "")

    def prior(self) -> Prior:
        """The prior of smaller groups: these exponents, with half the usual width, or that of the draws."""
        fitted = zip(form.PARAMETERS, self.parameters, self.draws.std(axis=0), strict=True)
        return {name: (float(at), max(0.5 * PRIOR[name][1], float(wide))) for name, at, wide in fitted if name in PRIOR}

    def reach(self, steps: int, *lrs: float) -> None:
        """Refuse lengths and rates that are too far from those of the runs."""
        longest = self.box["steps"][1]
        if steps > LONGEST * longest:
            raise ValueError(
                f"steps must be at most {LONGEST:g} times the longest run ({longest:.0f}), got {steps}: add longer runs"
            )
        low, high = self.box["lr"]
        for lr in lrs:
            if not low / LOWEST <= lr <= high * HIGHEST:
                raise ValueError(
                    f"lr must be between {low / LOWEST:g} and {high * HIGHEST:g} for runs with rates from {low:g} to "
                    f"{high:g}, got {lr:g}: add runs with such rates"
                )

    def doubts(self, value: Prediction, lr: float | None) -> str:
        """The note of a choice: that of its forecast, one on a chosen rate at the edge, and one on a bad fit."""
        notes, (low, high) = [value.note], self.box["lr"]
        if lr is not None and not low * 1.02 < lr < high / 1.02:
            which = "only" if low == high else "smallest" if lr < math.sqrt(low * high) else "largest"
            notes.append(f"the {which} rate of the runs, others may be better")
        notes.append("the form does not fit these runs well" if self.misfit else "")
        return "; ".join(filter(None, notes))


def fit(runs: list[Run], prior: Prior | None = None) -> Fit:
    """Fit the form to runs of one model and data set; ``check`` says beforehand whether that makes sense."""
    lost = [run for run in runs if math.isinf(run.loss)]
    finite = [run for run in runs if math.isfinite(run.loss) or (math.isnan(run.loss) and len(run.curve[0]))]
    while True:
        check(finite, lost)
        data = points(finite)
        if not len(data.losses):
            raise ValueError("runs must have losses after their warmup and first third, and none has")
        reference = _reference(data)
        values, problem = solve(data, reference, prior or PRIOR)
        residuals = -problem.differences(values)
        scale = scale_of(residuals, data)
        far = _far_above(data, residuals, scale, len(finite))
        if not far:
            break
        lost += [finite[place] for place in far]
        finite = [run for place, run in enumerate(finite) if place not in far]
    of_runs = np.full(len(finite), np.nan)
    of_runs[data.run[data.final]] = residuals[data.final]
    drawn, offset = draws(problem, values), float(values[FREE])
    return Fit(values[:FREE], offset, reference, scale, drawn, finite, lost, of_runs, _box(finite, data))


def check(runs: list[Run], lost: list[Run]) -> None:
    """Refuse runs from which nothing can be fitted, and say what is missing."""
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
    sums = form.sums(parts)
    return np.log(sums.noise / sums.typical)


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
    unit = form.Reference(middle(parts.rates.max(axis=-1)), middle(parts.growths.max(axis=-1)))
    sums = form.sums(parts, PRIOR["log_growth"][0], unit)
    return unit._replace(total=middle(sums.total), noise=middle(sums.noise))


def _far_above(data: Points, residuals: Floats, scale: float, count: int) -> list[int]:
    """Runs whose final loss is beyond anything that the form explains: they diverged and did not come back."""
    best = float(data.losses[data.final].min()) if data.final.any() else 0.0
    limit = max(15 * scale, 0.1 * abs(best))
    far = [int(place) for place, gap in zip(data.run[data.final], residuals[data.final], strict=True) if gap > limit]
    return far if len(far) <= max(1, count // 4) else []
