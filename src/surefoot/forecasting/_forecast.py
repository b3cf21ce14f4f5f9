"""From runs to fits, one for each model and data set, and to answers: a loss, the best rate, the best schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._base.arguments import number, whole
from surefoot.forecasting import _fit, _read, _schedules
from surefoot.forecasting import curve as form
from surefoot.forecasting._answers import Choice, Prediction
from surefoot.forecasting._fit import Fit
from surefoot.forecasting._read import Run
from surefoot.forecasting._schedules import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEDULES = (
    "constant", "cosine", "linear", "wsd(cooldown=0.1)", "wsd(cooldown=0.2)", "wsd(cooldown=0.4)", "wsd(cooldown=0.6)",
    "wsd(cooldown=0.8)",
)  # fmt: skip
"""What :meth:`Forecast.best` chooses from."""

Group = tuple[tuple[str, Any], ...]


class Forecast:
    """Fitted runs. Comes from :func:`surefoot.forecasting.forecast`."""

    def __init__(self, fits: dict[Group, Fit], refused: dict[Group, str], notes: list[str]) -> None:
        self.fits = fits
        """One fit per group of runs (model, data set, …)."""
        self.refused = refused
        """Groups that could not be fitted, and why."""
        self.notes = [*self._notes(), *notes]
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
        **options: Any,
    ) -> Prediction:
        """The final loss of a run, and an interval that should hold it in nine cases of ten.

        Args:
            lr: The base rate α, which the schedule multiplies.
            schedule: A name of :mod:`surefoot.theory.schedules` with options, such as ``"wsd(cooldown=0.2)"``, an
                array with one factor per step, or a function that returns it for T.
            steps: T. With an array it may be left out.
            group: Which model and data set, if the runs are of several: ``{"parameters": 124_000_000}``.
            **options: Of a named schedule, in place of those in its name; ``warmup`` is by default that of the runs.
        """
        fit = self._fit(group)
        rate = number("lr", lr, positive=True)
        if steps is None:
            if isinstance(schedule, str) or callable(schedule):
                raise ValueError("steps must be given, unless the schedule is an array of factors")
            steps = len(schedule)
        fit.reach(whole("steps", steps, 1), rate)
        return fit.predict(rate * _schedules.factors(schedule, steps, default_warmup=fit.warmup, **options))

    def best(
        self,
        steps: int,
        schedules: str | Iterable[Schedule] = SCHEDULES,
        *,
        lrs: Iterable[float] | None = None,
        group: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Choice:
        """The rate and schedule with the smallest forecast for T steps.

        Args:
            steps: T.
            schedules: What to choose from, as in :meth:`predict`. By default constant, cosine, linear, and wsd with
                cooldowns of 10 to 80 %.
            lrs: Rates to choose from. By default from the smallest to the largest of the runs; ``note`` says where the
                best one is the smallest or the largest.
            group: Which model and data set, if the runs are of several.
            **options: Of all named schedules, such as ``warmup``.
        """
        fit = self._fit(group)
        fit.reach(whole("steps", steps, 1))
        candidates = fit.candidates if lrs is None else np.array([number("lrs", lr, positive=True) for lr in lrs])
        if not len(candidates):
            raise ValueError("lrs must have at least one rate, got none")
        fit.reach(steps, candidates.min(), candidates.max())
        choices = []
        for schedule in [schedules] if isinstance(schedules, str) else schedules:
            name, own = getattr(schedule, "__name__", "factors"), {}
            if isinstance(schedule, str):
                name, own = (
                    _schedules.in_full(schedule, fit.warmup, **options),
                    {"default_warmup": fit.warmup, **options},
                )
            factors = _schedules.factors(schedule, steps, **own)
            parts = form.coarse(steps, candidates[:, None] * form.part_means(factors), weight_decay=fit.weight_decay)
            lr = float(candidates[np.argmin(fit.losses(parts))])
            value = fit.predict(lr * factors)
            choices.append(Choice(lr, name, factors, *value, fit.doubts(value, lr if lrs is None else None)))
        if not choices:
            raise ValueError("schedules must have at least one schedule, got none")
        choices.sort(key=lambda choice: choice.loss)
        return replace(choices[0], table=choices)

    def best_schedule(
        self,
        steps: int,
        lr: float | None = None,
        *,
        group: Mapping[str, Any] | None = None,
        warmup: int | None = None,
    ) -> Choice:
        """The schedule with the smallest forecast among all that rise once (the warmup) and then never again.

        Args:
            steps: T.
            lr: The largest rate; by default it is chosen as well.
            group: Which model and data set, if the runs are of several.
            warmup: Steps of the ramp at the start; by default as in the runs.
        """
        from surefoot.forecasting._shape import optimise

        fit = self._fit(group)
        candidates = fit.candidates if lr is None else np.array([number("lr", lr, positive=True)])
        fit.reach(whole("steps", steps, 2), candidates.min(), candidates.max())
        ramp = fit.warmup if warmup is None else whole("warmup", warmup, 0)
        if ramp >= steps:
            raise ValueError(f"steps must be more than the {ramp} of warmup, got {steps}")
        rates = optimise(fit, steps, candidates, ramp)
        value, top = fit.predict(rates), float(rates.max())
        return Choice(top, "optimised", rates / top, *value, fit.doubts(value, top if lr is None else None))

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
        steps = 2 * self.longest(group) if steps is None else whole("steps", steps, 2)
        fit.reach(steps)
        return draw(fit, steps)

    def __repr__(self) -> str:
        return f"Forecast of\n{self.summary()}"

    def _notes(self) -> list[str]:
        notes = []
        if len(self.fits) > 1:
            own = "each with its own floor, bias and noise; exponents lean on those of the largest"
            notes.append(f"{len(self.fits)} groups of runs, {own}.")
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


def forecast(
    runs: Any,
    *,
    curves: Any = None,
    loss: str | None = None,
    groups: Sequence[str] | None = None,
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
    for group in sorted(members, key=lambda group: -len(members[group])):
        try:
            fits[group] = _fit.fit(members[group], prior)
            prior = prior or fits[group].prior()
        except ValueError as error:
            refused[group] = str(error)
    if not fits:
        apart = f"runs must have one group that can be fitted, of {len(members)}: " if len(members) > 1 else ""
        raise ValueError(apart + next(iter(refused.values())))
    return Forecast(fits, refused, notes)
