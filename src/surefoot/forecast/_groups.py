"""Runs to fits: one fit for each model and data set."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from surefoot.forecast import _fit, _read
from surefoot.forecast._fit import Fit
from surefoot.forecast._forecast import Forecast, Group
from surefoot.forecast._read import Run
from surefoot.runs import reporter
from surefoot.theory import forecast as form

MANY = 2
"""So many groups may take more than two seconds to fit."""


def forecast(
    runs: Any,
    *,
    curves: Any = None,
    loss: str | None = None,
    curve_loss: str | None = None,
    groups: Sequence[str] | None = None,
    share: bool = True,
    seed: int = 0,
    progress: bool | Callable[[int, int], None] | None = None,
) -> Forecast:
    """Fit finished or partial runs, and forecast the loss of other rates, schedules and lengths.

    The form is that of the last-iterate bound (``surefoot.theory.forecast``), with eight numbers a group of runs.

    Args:
        runs: A CSV file's path or a table (DataFrame, list of dicts, dict of columns) with one row a run: ``lr``,
            ``steps``, the final loss (``final_valid_loss``, ``final_loss`` or ``loss``; ∞ if it diverged, empty if it
            is not finished and has a curve), ``schedule`` (a name; arrays and functions of T too, in lists of dicts);
            optional are ``run``, ``warmup`` (steps), ``decay_fraction``, ``decay_shape``, ``end``, ``weight_decay``,
            ``losses`` ({step: loss}), and what tells models and data apart. Or a table of curves alone. Or the result
            of a study.
        curves: Losses along the way, a table or a CSV file (also .csv.gz) with ``run``, ``step``, a loss
            (``valid_loss``, ``loss`` or ``train_loss``) and, better than any name of a schedule, the rates ``lr``.
            They may be measured on another set than the final losses: the offset is fitted.
        loss: Column of the final losses, if it has another name.
        curve_loss: Column of the curves' losses, if it has another name.
        groups: Columns whose values tell models and data sets apart; by default those of dataset, model, parameters,
            batch, sequence, optimizer, algorithm and weight_decay that are there.
        share: Whether exponents of smaller groups lean on those of the largest; else all are fitted apart.
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
    everything = _read.read(runs, curves, loss=loss, curve_loss=curve_loss, groups=groups)
    members: dict[Group, list[Run]] = {}
    for run in everything:
        members.setdefault(run.group, []).append(run)
    ordered = sorted(members, key=lambda group: -len(members[group]))
    fits: dict[Group, Fit] = {}
    refused: dict[Group, str] = {}
    prior = None
    shown = sys.stderr.isatty() and len(ordered) >= MANY if progress is None else progress
    with reporter(shown, total=len(ordered), unit="fits") as tell:
        for done, group in enumerate(ordered):
            try:
                fits[group] = _fit.fit(members[group], prior, seed=seed)
            except ValueError as error:
                if len(ordered) == 1:
                    raise
                refused[group] = str(error)
            if share and prior is None and fits:
                prior = _leaning(next(iter(fits.values())))
            tell(done + 1, 0.0)
    if not fits:
        raise ValueError(f"runs must have one group that can be fitted, of {len(ordered)}: {refused[ordered[0]]}")
    found = Forecast(fits, refused, [])
    found.notes += _notes(found, share)
    return found


def _leaning(fit: Fit) -> dict[str, tuple[float, float]]:
    """The prior of smaller groups: centred at the exponents of the largest, half as wide or as wide as its draws."""
    wide = fit.draws.std(axis=0)
    places = {name: place for place, name in enumerate(form.PARAMETERS)}
    return {
        name: (float(fit.parameters[places[name]]), max(0.5 * width, float(wide[places[name]])))
        for name, (_, width) in _fit.PRIOR.items()
    }


def _notes(found: Forecast, share: bool) -> list[str]:
    fits, notes = found.fits, []
    if len(fits) > 1:
        how = "exponents lean on those of the largest" if share else "fitted apart"
        notes.append(f"{len(fits)} groups of runs, each with its own floor, bias and noise; {how}.")
    notes += [f"Not fitted: {found._title(group)}: {reason}." for group, reason in found.refused.items()]
    lost = [run for fit in fits.values() for run in fit.lost]
    if lost:
        named = ", ".join(f"{run.name} (lr {run.lr:g}, loss {run.loss:.4g})" for run in lost[:5])
        notes.append(f"Left out as diverged: {named}{' …' if len(lost) > 5 else ''}.")
    return notes
