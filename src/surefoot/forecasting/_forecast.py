"""From runs to fits, one for each model and data set, and to answers: a loss, the best rate, the best schedule."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._base.arguments import number, whole
from surefoot._base.progress import Tell, reporter
from surefoot.forecasting import _fit, _read, _schedules
from surefoot.forecasting import curve as form
from surefoot.forecasting._answers import BestSchedule, Choice, Option, Prediction
from surefoot.forecasting._fit import Fit
from surefoot.forecasting._read import Run
from surefoot.forecasting._schedules import Floats, Schedule

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SCHEDULES = (
    "constant", "cosine", "linear", "wsd(cooldown=0.1)", "wsd(cooldown=0.2)", "wsd(cooldown=0.4)", "wsd(cooldown=0.6)",
    "wsd(cooldown=0.8)",
)  # fmt: skip
"""What :meth:`Forecast.best` chooses from."""

Group = tuple[tuple[str, Any], ...]


class Forecast:
    """Fitted runs. Comes from :func:`surefoot.forecasting.forecast`."""

    def __init__(self, fits: dict[Group, Fit], refused: dict[Group, str], *, share: bool, notes: list[str]) -> None:
        self.fits = fits
        """One fit per group of runs (model, data set, …)."""
        self.refused = refused
        """Groups that could not be fitted, and why."""
        self.notes = [*self._notes(share), *notes]
        """Notes on the fit: groups that could not be fitted, runs that were left out, a bad fit, what was guessed."""

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The groups that were fitted, the largest first; one of them is what ``group=`` asks for."""
        return [dict(group) for group in self.fits]

    def longest(self, group: Mapping[str, Any] | None = None) -> int:
        """The steps of the longest run that was fitted."""
        return int(self._fit(group).box["steps"][1])

    def parameters(self, group: Mapping[str, Any] | None = None) -> dict[str, float]:
        """The fitted numbers, by the names of ``surefoot.forecasting.curve.PARAMETERS``, and the curves' offset."""
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
            schedule: A name of :mod:`surefoot.theory.schedules` with options, such as ``"wsd(cooldown=0.2)"``, an
                array with one factor per step, or a function that returns it for T.
            steps: T. With an array it may be left out.
            group: Which model and data set, if the runs are of several: ``{"parameters": 124_000_000}``.
            resume: Rates α_t of the steps that are done already; the schedule is of the steps that are left.
            **options: Of a named schedule, in place of those in its name; ``warmup`` is by default that of the runs.
        """
        fit = self._fit(group)
        rate = number("lr", lr, positive=True)
        if steps is None:
            if isinstance(schedule, str) or callable(schedule):
                raise ValueError("steps must be given, unless the schedule is an array of factors")
            steps = len(schedule) + (0 if resume is None else len(resume))
        total = _schedules.length(steps)
        fit.reach(total, rate)
        if resume is None:
            return fit.predict(rate * _schedules.factors(schedule, total, default_warmup=fit.warmup, **options))
        done = _done(resume, total)
        left = rate * _schedules.factors(schedule, total - len(done), **options)
        return fit.predict(np.concatenate([done, left]))

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
            lrs: Rates to choose from. By default from the smallest to the largest of the runs; ``note`` says where the
                best one is the smallest or the largest.
            group: Which model and data set, if the runs are of several.
            **options: Of all named schedules, such as ``warmup``.
        """
        fit = self._fit(group)
        total = _schedules.length(steps)
        fit.reach(total)
        chosen = [schedules] if isinstance(schedules, str) else SCHEDULES if schedules is None else schedules
        named = dict(chosen) if isinstance(chosen, Mapping) else _named(chosen, fit.warmup, options)
        if not named:
            raise ValueError("schedules must have at least one schedule, got none")
        candidates = fit.candidates()
        if lrs is not None:
            candidates = np.array([number("lrs", lr, positive=True) for lr in lrs])
            if not len(candidates):
                raise ValueError("lrs must have at least one rate, got none")
            for lr in (candidates.min(), candidates.max()):
                fit.reach(total, float(lr))
        rows = []
        for label, schedule in named.items():
            extra = options if isinstance(schedule, str) else {}
            shape = _schedules.factors(schedule, total, default_warmup=fit.warmup, **extra)
            parts = form.coarse(total, candidates[:, None] * form.part_means(shape), weight_decay=fit.weight_decay)
            place = int(np.argmin(fit.losses(parts)))
            rows.append((label, float(candidates[place]), fit.predict(candidates[place] * shape)))
        rows.sort(key=lambda row: row[2].loss)
        label, lr, value = rows[0]
        note = fit.doubts(value, lr if lrs is None else None)
        return Choice(lr, label, total, *value, [Option(name, rate, *forecast) for name, rate, forecast in rows], note)

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
            lr: The largest rate of the steps to come; by default it is chosen as well.
            group: Which model and data set, if the runs are of several.
            warmup: Steps of the ramp at the start; by default as in the runs.
            resume: Rates α_t of the steps that are done already: only the rest is free.
        """
        from surefoot.forecasting._shape import optimise

        fit = self._fit(group)
        total = _schedules.length(steps, 2)
        rate = None if lr is None else number("lr", lr, positive=True)
        fit.reach(total, rate)
        done = np.empty(0) if resume is None else _done(resume, total)
        ramp = (fit.warmup if resume is None else 0) if warmup is None else whole("warmup", warmup, 0)
        if len(done) + ramp >= total:
            raise ValueError(f"steps must be more than the {len(done) + ramp} of warmup and resume, got {total}")
        candidates = fit.candidates() if rate is None else np.array([rate])
        rates = optimise(fit, total, candidates, ramp, done)
        chosen, top = float(rates[len(done) :].max()), float(rates.max())
        value = fit.predict(rates)
        return BestSchedule(top, rates / top, total, *value, fit.doubts(value, chosen if lr is None else None))

    def compare(self, runs: Any, curves: Any = None, **options: Any) -> pd.DataFrame:
        """Forecasts of known runs beside what was measured: one row per run, with ``error`` = forecast − loss.

        Takes what :func:`surefoot.forecasting.forecast` takes. Rows of groups that were not fitted are left out.
        """
        import pandas as pd

        rows = []
        for run in _read.read(runs, curves, **options)[0]:
            fit = next(iter(self.fits.values())) if len(self.fits) == 1 else self.fits.get(run.group)
            if fit is not None:
                forecast = fit.predict(run.rates)
                row = {"run": run.name, "lr": run.lr, "schedule": run.schedule, "steps": run.steps}
                rows.append({**row, "measured": run.loss, **forecast._asdict(), "error": forecast.loss - run.loss})
        return pd.DataFrame(rows)

    def summary(self) -> str:
        """What was fitted, in a few lines."""
        lines = []
        for group, fit in self.fits.items():
            name = self._title(group).replace("=", " ").replace("'", "") or "all runs"
            low, high = fit.box["lr"]
            lines.append(
                f"{name}: {len(fit.runs)} runs up to {fit.box['steps'][1]:.0f} steps, lr {low:g} to {high:g}; "
                f"residuals of {fit.typical:.2g} in loss"
            )
        return "\n".join([*lines, *self.notes])

    def plot(self, steps: int | None = None, *, group: Mapping[str, Any] | None = None) -> Figure:
        """Measured against fitted losses, and forecasts over the rate for T steps (by default twice the longest)."""
        from surefoot.forecasting._plot import draw

        fit = self._fit(group)
        total = _schedules.length(2 * self.longest(group) if steps is None else steps, 2)
        fit.reach(total)
        return draw(fit, total)

    def __repr__(self) -> str:
        return f"Forecast of\n{self.summary()}"

    def _notes(self, share: bool) -> list[str]:
        notes = []
        if len(self.fits) > 1:
            how = "exponents lean on those of the largest" if share else "fitted apart"
            notes.append(f"{len(self.fits)} groups of runs, each with its own floor, bias and noise; {how}.")
        notes += [f"Not fitted: {self._title(group)}: {reason}." for group, reason in self.refused.items()]
        lost = [run for fit in self.fits.values() for run in fit.lost]
        if lost:
            named = ", ".join(f"{run.name} (lr {run.lr:g}, loss {run.loss:.4g})" for run in lost[:5])
            notes.append(f"Left out as diverged: {named}{' …' if len(lost) > 5 else ''}.")
        for group, fit in self.fits.items():
            if fit.misfit:
                who = f"{self._title(group)}: " if len(self.fits) > 1 else ""
                notes.append(
                    f"{who}The form does not fit these runs well: residuals of {fit.typical:.2g}, where the losses "
                    f"differ by {fit.spread:.2g}. Check forecasts and the best rate with a run before you rely on them."
                )
        return notes

    def _title(self, group: Group) -> str:
        """The keys and values in which a group differs from the others."""
        groups = [*self.fits, *self.refused]
        return ", ".join(f"{key}={value!r}" for key, value in group if len({dict(each)[key] for each in groups}) > 1)

    def _fit(self, group: Mapping[str, Any] | None) -> Fit:
        titles = "; ".join(map(self._title, self.fits))
        if group is None:
            if len(self.fits) == 1:
                return next(iter(self.fits.values()))
            raise ValueError(f"group must say which of {len(self.fits)} models or data sets is meant: {titles}")
        if not isinstance(group, Mapping):
            raise TypeError(f"group must be a mapping such as {{'dataset': 'mine'}}, got {group!r}")
        matches = [key for key in [*self.fits, *self.refused] if group.items() <= dict(key).items()]
        if len(matches) != 1:
            raise ValueError(f"group must fit one of the groups, got {dict(group)!r} (fits {len(matches)}): {titles}")
        if matches[0] in self.refused:
            raise ValueError(f"group {dict(group)!r} was not fitted: {self.refused[matches[0]]}")
        return self.fits[matches[0]]


def _done(resume: Any, steps: int) -> Floats:
    """The rates of the steps that are done, checked."""
    done = np.asarray(resume, float)
    if done.ndim != 1 or not len(done) or not ((done >= 0).all() and np.isfinite(done).all()) or not done.max() > 0:
        raise ValueError("resume must be the rates of the steps that are done: a list of numbers, not all 0")
    if len(done) >= steps:
        raise ValueError(f"steps must be more than the {len(done)} that are done, got {steps}")
    return done


def _named(given: Iterable[Schedule], warmup: int, options: dict[str, Any]) -> dict[str, Schedule]:
    """The schedules by what they are called in full; of equal names all but the first get a number."""
    named: dict[str, Schedule] = {}
    for place, schedule in enumerate(given):
        if isinstance(schedule, str):
            label = schedule = _schedules.in_full(schedule, warmup, **options)
        else:
            label = getattr(schedule, "__name__", "factors")
        named[label if label not in named else f"{label} {place + 1}"] = schedule
    return named


def forecast(
    runs: Any,
    *,
    curves: Any = None,
    loss: str | None = None,
    groups: Sequence[str] | None = None,
    share: bool = True,
    seed: int = 0,
    progress: Tell | None = None,
) -> Forecast:
    """Fit finished or partial runs, and forecast the loss of other rates, schedules and lengths.

    The form is that of the last-iterate bound (``surefoot.forecasting.curve``), with eight numbers per group of runs.

    Args:
        runs: A CSV file's path or a table (DataFrame, list of dicts, dict of columns) with one row per run: ``lr``,
            ``steps``, the final loss (``final_valid_loss``, ``final_loss`` or ``loss``; ∞ if it diverged, empty if it
            is not finished and has a curve), ``schedule`` (a name; arrays and functions of T too, in lists of dicts);
            optional are ``run``, ``warmup`` (steps), ``decay_fraction``, ``decay_shape``, ``end``, ``weight_decay``,
            ``losses`` ({step: loss}), and columns that identify model and data. Or a table of curves alone, as
            experiment trackers export it (``run``, ``step``, ``learning_rate``, ``loss``), or the result of a study.
        curves: Losses along the way, a table or a CSV file (also .csv.gz) with ``run``, ``step``, a loss
            (``valid_loss``, ``loss`` or ``train_loss``) and, better than any name of a schedule, the rates ``lr``.
            They may be measured on another set than the final losses: the offset is fitted.
        loss: Column of the losses, if it has another name.
        groups: Columns that identify model and data set; by default those of dataset, model, parameters,
            batch, sequence, optimizer, algorithm and weight_decay that are there.
        share: Whether exponents of the largest group are the prior of smaller ones; else all are fitted apart.
        seed: Of the resampled runs, from which the intervals come.
        progress: True for a bar, False for none, or a function of (fits done, all); by default a bar appears on a
            terminal where there are several groups.

    >>> rates, lengths = [0.01, 0.03, 0.1], [200, 400, 800]
    >>> measured = lambda lr, steps: 1 + (lr * steps) ** -0.5 + 2 * lr
    >>> rows = [dict(lr=lr, schedule="linear", steps=T, loss=measured(lr, T)) for lr in rates for T in lengths]
    >>> fit = forecast(rows)
    >>> value, low, high = fit.predict(lr=0.05, schedule="linear", steps=1600)
    >>> low < measured(0.05, 1600) < high
    True
    """
    found, notes = _read.read(runs, curves, loss=loss, groups=groups)
    members: dict[Group, list[Run]] = {}
    for run in found:
        members.setdefault(run.group, []).append(run)
    fits: dict[Group, Fit] = {}
    refused: dict[Group, str] = {}
    prior = None
    shown = sys.stderr.isatty() and len(members) > 1 if progress is None else progress
    with reporter(shown, total=len(members), unit="fits") as report:
        for done, group in enumerate(sorted(members, key=lambda group: -len(members[group])), start=1):
            try:
                fits[group] = _fit.fit(members[group], prior, seed=seed)
            except ValueError as error:
                if len(members) == 1:
                    raise
                refused[group] = str(error)
            if share and prior is None and fits:
                prior = fits[group].prior()
            report(done)
    if not fits:
        reason = next(iter(refused.values()))
        raise ValueError(f"runs must have one group that can be fitted, of {len(members)}: {reason}")
    return Forecast(fits, refused, share=share, notes=notes)
