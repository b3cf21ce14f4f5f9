"""What a fit is asked: the loss of a run that was not done, the best rate, the best schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.forecast import _fit, _read, _schedules
from surefoot.forecast._answers import BestSchedule, Choice, Option, Prediction
from surefoot.forecast._fit import Fit
from surefoot.forecast._schedules import Floats, Schedule
from surefoot.theory import forecast as form

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SCHEDULES = (
    "constant", "cosine", "linear", "wsd(decay_fraction=0.1)", "wsd(decay_fraction=0.2)", "wsd(decay_fraction=0.4)",
    "wsd(decay_fraction=0.6)", "wsd(decay_fraction=0.8)",
)  # fmt: skip
"""What :meth:`Forecast.best` chooses from."""
LONGEST = 10.0
"""Times the longest run: beyond, a forecast is refused."""
HIGHEST, LOWEST = 4.0, 20.0
"""Times the largest rate, and the smallest one's share, beyond which it is refused."""
PER_DOUBLING = {"steps": 1.0, "lr": 2.0, "shape": 3.0, "finished": 1.2}
"""By how many residuals the interval widens outside of what the runs cover: a doubling of steps or rate, of N/A at any
step, and of N/A at the end of a run."""
NORMAL = 1.645
"""90 % of a normal distribution lie within so many standard deviations."""

Group = tuple[tuple[str, Any], ...]


class Forecast:
    """Fitted runs. Comes from :func:`surefoot.forecast.forecast`."""

    def __init__(self, fits: dict[Group, Fit], refused: dict[Group, str], notes: list[str]) -> None:
        self.fits = fits
        """One fit a group of runs (model, data set, …)."""
        self.refused = refused
        """Groups that could not be fitted, and why."""
        self.notes = notes
        """What the reader should know about the fit."""

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The groups that were fitted, the largest first; one of them is what ``group=`` asks for."""
        return [dict(group) for group in self.fits]

    def parameters(self, group: Mapping[str, Any] | None = None) -> dict[str, float]:
        """The fitted numbers, by the names of ``surefoot.theory.forecast.PARAMETERS``, and the curves' offset."""
        fit = self._fit(group)
        return {**dict(zip(form.PARAMETERS, map(float, fit.parameters), strict=True)), "offset": fit.offset}

    def predict(
        self,
        lr: float,
        schedule: Schedule = "constant",
        steps: int | None = None,
        *,
        group: Mapping[str, Any] | None = None,
        resume: Sequence[float] | Floats | None = None,
        **options: Any,
    ) -> Prediction:
        """The final loss of a run, and an interval that should hold it in nine cases of ten.

        Args:
            lr: The base rate α, which the schedule multiplies.
            schedule: A name (constant, cosine, linear, wsd, inverse_sqrt) with options, an array of factors, one a
                step, or a function that returns it for T.
            steps: T. With an array it may be left out.
            group: Which model and data set, if the runs are of several: ``{"parameters": 124_000_000}``.
            resume: Rates α_t of the steps that are done already; the schedule is of the steps that are left.
            **options: Of a named schedule: ``warmup`` (steps; by default as in the runs), ``decay_fraction`` (the
                share of the steps that the cooldown of wsd takes), ``decay_shape`` (linear, sqrt or cosine), ``end``
                (the last factor).
        """
        fit = self._fit(group)
        rates = self._rates(fit, lr, schedule, steps, resume, options)
        return self._of_rates(fit, rates)

    def best(
        self,
        steps: int,
        schedules: Iterable[Schedule] | Mapping[str, Schedule] | None = None,
        *,
        lrs: Iterable[float] | None = None,
        group: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Choice:
        """The rate and schedule with the smallest forecast for T steps.

        Args:
            steps: T.
            schedules: What to choose from, as in :meth:`predict`; a mapping gives them names. By default constant,
                cosine, linear, and wsd with cooldowns of 10 to 80 %.
            lrs: Rates to choose from. By default from the smallest of the runs to twice the largest, below the
                smallest rate that was lost.
            group: Which model and data set, if the runs are of several.
            **options: Of all named schedules, such as ``warmup``.
        """
        fit = self._fit(group)
        total = _schedules.whole("steps", steps, 1)
        self._reach(fit, total, None)
        named = dict(schedules) if isinstance(schedules, Mapping) else _named(schedules or SCHEDULES)
        if not named:
            raise ValueError("schedules must have at least one schedule, got none")
        candidates = self._candidates(fit, lrs)
        rows = []
        for label, schedule in named.items():
            shape = self._factors(fit, schedule, total, options)
            parts = form.coarse(total, candidates[:, None] * form.part_means(shape), weight_decay=_decay(fit))
            losses = form.loss(fit.parameters, parts, fit.reference)
            place = int(np.argmin(losses))
            prediction = self._of_rates(fit, candidates[place] * shape)
            rows.append(Option(label, float(candidates[place]), *prediction))
        rows.sort(key=lambda row: row.loss)
        first = rows[0]
        return Choice(first.lr, first.schedule, total, first.loss, first.low, first.high, rows)

    def best_schedule(
        self,
        steps: int,
        lr: float | None = None,
        *,
        group: Mapping[str, Any] | None = None,
        warmup: int | None = None,
        resume: Sequence[float] | Floats | None = None,
    ) -> BestSchedule:
        """The schedule with the smallest forecast among all that rise once (the warmup) and then never again.

        Args:
            steps: T.
            lr: The largest rate; by default it is chosen as well.
            group: Which model and data set, if the runs are of several.
            warmup: Steps of the ramp at the start; by default as in the runs.
            resume: Rates α_t of the steps that are done already: only the rest is free.
        """
        from surefoot.forecast._shape import optimise

        fit = self._fit(group)
        total = _schedules.whole("steps", steps, 2)
        self._reach(fit, total, lr)
        done = np.empty(0) if resume is None else self._done(resume, total)
        ramp = (_warmup(fit) if resume is None else 0) if warmup is None else _schedules.whole("warmup", warmup, 0)
        if len(done) + ramp >= total:
            raise ValueError(f"steps must be more than the {len(done) + ramp} of warmup and resume, got {total}")
        given = None if lr is None else np.array([_schedules.positive("lr", lr)])
        candidates = self._candidates(fit, None) if given is None else given
        rates = optimise(fit, total, candidates, ramp, done, _decay(fit))
        prediction = self._of_rates(fit, rates)
        top = float(rates[len(done) :].max())
        return BestSchedule(top, rates / top, total, *prediction)

    def compare(self, runs: Any, curves: Any = None, **options: Any) -> pd.DataFrame:
        """Forecasts of runs that are known, beside what was measured: one row a run, with ``error`` = forecast − loss.

        Takes what :func:`surefoot.forecast.forecast` takes. Rows of groups that were not fitted are left out.
        """
        import pandas as pd

        rows = []
        for run in _read.read(runs, curves, **options):
            fit = self.fits.get(run.group)
            if fit is None and len(self.fits) == 1:
                fit = next(iter(self.fits.values()))
            if fit is None:
                continue
            forecast = self._of_rates(fit, run.rates)
            head = {"run": run.name, "lr": run.lr, "schedule": run.schedule, "steps": run.steps, "measured": run.loss}
            rows.append({**head, **forecast._asdict(), "error": forecast.loss - run.loss})
        return pd.DataFrame(rows)

    def summary(self) -> str:
        """What was fitted, in a few lines."""
        lines = []
        for group, fit in self.fits.items():
            name = self._title(group).replace("=", " ").replace("'", "") or "all runs"
            left = fit.residuals[np.isfinite(fit.residuals)]
            typical = float(np.mean(np.abs(left))) if len(left) else fit.scale
            low, high = fit.box["lr"]
            lines.append(
                f"{name}: {len(fit.runs)} runs up to {fit.box['steps'][1]:.0f} steps, lr {low:g} to {high:g}; "
                f"residuals of {typical:.2g} in loss"
            )
        return "\n".join([*lines, *self.notes])

    def plot(self, steps: int | None = None, *, group: Mapping[str, Any] | None = None) -> Figure:
        """Measured against fitted losses, and forecasts over the rate for T steps (by default twice the longest)."""
        from surefoot.forecast._plot import draw

        fit = self._fit(group)
        total = _schedules.whole("steps", 2 * fit.box["steps"][1] if steps is None else steps, 2)
        self._reach(fit, total, None)

        def over_rates(schedule: str) -> tuple[Floats, list[Prediction]]:
            candidates = self._candidates(fit, None)[::2]
            shape = self._factors(fit, schedule, total, {})
            return candidates, [self._of_rates(fit, rate * shape) for rate in candidates]

        return draw(fit, total, over_rates)

    def __repr__(self) -> str:
        return f"Forecast of\n{self.summary()}"

    def _title(self, group: Group) -> str:
        """What tells a group from the others."""
        everything = [*self.fits, *self.refused]
        return ", ".join(
            f"{key}={value!r}" for key, value in group if len({dict(each)[key] for each in everything}) > 1
        )

    def _fit(self, group: Mapping[str, Any] | None) -> Fit:
        if group is None:
            if len(self.fits) == 1:
                return next(iter(self.fits.values()))
            known = "; ".join(map(self._title, self.fits))
            raise ValueError(f"group must say which of {len(self.fits)} models or data sets is meant: {known}")
        if not isinstance(group, Mapping):
            raise TypeError(f"group must be a mapping such as {{'dataset': 'mine'}}, got {group!r}")
        found = [key for key in [*self.fits, *self.refused] if group.items() <= dict(key).items()]
        if len(found) != 1:
            known = "; ".join(map(self._title, self.fits))
            raise ValueError(f"group must fit one of the groups, got {dict(group)!r} (fits {len(found)}): {known}")
        if found[0] in self.refused:
            raise ValueError(f"group {dict(group)!r} was not fitted: {self.refused[found[0]]}")
        return self.fits[found[0]]

    def _rates(
        self, fit: Fit, lr: float, schedule: Schedule, steps: int | None, resume: Any, options: dict[str, Any]
    ) -> Floats:
        rate = _schedules.positive("lr", lr)
        if steps is None:
            if isinstance(schedule, str) or callable(schedule):
                raise ValueError("steps must be given, unless the schedule is an array of factors")
            steps = len(schedule) + (0 if resume is None else len(resume))
        total = _schedules.whole("steps", steps, 1)
        self._reach(fit, total, rate)
        if resume is None:
            return rate * self._factors(fit, schedule, total, options)
        done = self._done(resume, total)
        left = _schedules.factors(schedule, total - len(done), default_warmup=0, **options)
        return np.concatenate([done, rate * left])

    @staticmethod
    def _factors(fit: Fit, schedule: Schedule, steps: int, options: dict[str, Any]) -> Floats:
        return _schedules.factors(schedule, steps, default_warmup=_warmup(fit), **options)

    @staticmethod
    def _done(resume: Any, steps: int) -> Floats:
        done = np.asarray(resume, float)
        if done.ndim != 1 or not len(done) or not ((done >= 0).all() and np.isfinite(done).all()) or not done.max() > 0:
            raise ValueError("resume must be the rates of the steps that are done: a list of numbers, not all 0")
        if len(done) >= steps:
            raise ValueError(f"steps must be more than the {len(done)} that are done, got {steps}")
        return done

    @staticmethod
    def _reach(fit: Fit, steps: int, lr: float | None) -> None:
        longest = fit.box["steps"][1]
        if steps > LONGEST * longest:
            raise ValueError(
                f"steps must be at most {LONGEST:g} times the longest run ({longest:.0f}), got {steps}: add longer runs"
            )
        low, high = fit.box["lr"]
        if lr is not None and not low / LOWEST <= lr <= high * HIGHEST:
            raise ValueError(
                f"lr must be between {low / LOWEST:g} and {high * HIGHEST:g} for runs with rates from {low:g} to "
                f"{high:g}, got {lr:g}: add runs with such rates"
            )

    @staticmethod
    def _candidates(fit: Fit, lrs: Iterable[float] | None) -> Floats:
        if lrs is not None:
            given = np.array([_schedules.positive("lrs", lr) for lr in lrs])
            if not len(given):
                raise ValueError("lrs must have at least one rate, got none")
            for lr in (given.min(), given.max()):
                Forecast._reach(fit, 1, float(lr))
            return given
        low, high = fit.box["lr"]
        top = 2 * high
        lost = [run.lr for run in fit.lost if run.lr > high]
        if lost:
            top = min(top, math.sqrt(high * min(lost)))
        return np.geomspace(low, max(top, low * 1.001), 33)

    @staticmethod
    def _of_rates(fit: Fit, rates: Floats) -> Prediction:
        parts = form.trace(rates, weight_decay=_decay(fit))
        value = float(form.loss(fit.parameters, parts, fit.reference))
        drawn = form.loss(fit.draws, parts, fit.reference)
        drawn = np.where(np.isfinite(drawn), drawn, math.inf)
        below, above = value - np.quantile(drawn, 0.05), np.quantile(drawn, 0.95) - value
        beyond = _beyond(fit, rates, parts)
        # Few runs make the residuals' own size uncertain; runs of about one length say little on longer ones.
        typical = fit.scale * (1 + 1 / max(len(fit.runs) - 5, 2))
        beyond["steps"] = beyond["steps"] ** 1.5 / min(max(_span(fit), 0.25), 1.0)
        spread = NORMAL * typical * math.sqrt(1 + sum((PER_DOUBLING[key] * far) ** 2 for key, far in beyond.items()))
        low = value - math.hypot(max(below, 0.0), spread)
        if all(run.loss >= 0 for run in fit.runs if math.isfinite(run.loss)):
            low = max(low, 0.0)
        high = value + math.hypot(max(above, 0.0), spread)
        outside = ", ".join(key for key, far in beyond.items() if far > 0.01 and key != "finished")
        return Prediction(value, low, high, f"outside of what the runs cover in {outside}" if outside else "")


def _named(schedules: Iterable[Schedule]) -> dict[str, Schedule]:
    named: dict[str, Schedule] = {}
    for place, schedule in enumerate([schedules] if isinstance(schedules, str) else schedules):
        label = _schedules.describe(schedule)
        named[label if label not in named else f"{label} {place + 1}"] = schedule
    return named


def _beyond(fit: Fit, rates: Floats, parts: form.Trace) -> dict[str, float]:
    """By how many doublings a schedule lies outside of what the runs cover."""
    shape = math.exp(float(_fit.shape(parts)))
    values = {"steps": float(len(rates)), "lr": float(rates.max()), "shape": shape, "finished": shape}
    return {
        key: max(0.0, math.log2(value / fit.box[key][1]), math.log2(fit.box[key][0] / value))
        for key, value in values.items()
    }


def _span(fit: Fit) -> float:
    """Doublings between the shortest and the longest finished run."""
    lengths = [run.steps for run in fit.runs if math.isfinite(run.loss)] or [1]
    return math.log2(max(lengths) / min(lengths))


def _warmup(fit: Fit) -> int:
    return int(np.median([run.warmup for run in fit.runs]))


def _decay(fit: Fit) -> float:
    return float(np.median([run.weight_decay for run in fit.runs]))
