"""``surefoot forecast``: how long, how high, how to cool down, from a table of runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from surefoot._base.text import visible
from surefoot.cli._output import print_json, print_table
from surefoot.forecasting import Choice, Forecast, forecast


def run(
    runs: Path,
    curves: Path | None,
    steps: int | None,
    lr: float | None,
    schedule: str | None,
    group: list[str],
    picture: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fit, then print the fit, the best rate of each schedule, and the forecast that was asked for."""
    if (lr is None) != (schedule is None):
        raise ValueError("--lr and --schedule go together: a forecast of one run needs both")
    chosen = {}
    for text in group:
        key, _, value = text.partition("=")
        if not key or not value:
            raise ValueError(f"--group must be of the form KEY=VALUE, got {text!r}")
        chosen[key] = value
    fitted = forecast(runs, curves=curves, progress=False if quiet or as_json else None)
    which = _group(fitted, chosen)
    choices: list[Choice] = []
    if which is not None or len(fitted.fits) == 1:
        longest = fitted.longest(which)
        choices = [fitted.best(T, group=which) for T in ([longest, 2 * longest] if steps is None else [steps])]
    answer: dict[str, Any] = {"groups": fitted.groups, "notes": fitted.notes}
    if choices:
        answer["parameters"] = fitted.parameters(which)
        answer["best"] = [{**asdict(choice), "table": [row._asdict() for row in choice.table]} for choice in choices]
        if lr is not None and schedule is not None:
            predicted = fitted.predict(lr, schedule, choices[-1].steps, group=which)
            answer["forecast"] = {"lr": lr, "schedule": schedule, "steps": choices[-1].steps, **predicted._asdict()}
        if picture is not None:
            fitted.plot(choices[-1].steps, group=which).savefig(picture, dpi=150)
    elif steps is not None or lr is not None or picture is not None:
        fitted.parameters(None)  # says which groups there are
    if as_json:
        print_json(answer)
        return
    typer.echo(visible(fitted.summary()))
    for choice in choices:
        typer.echo("")
        rows = [
            (row.schedule, f"{row.lr:.3g}", f"{row.loss:.4f}", f"{row.low:.4f} – {row.high:.4f}")
            for row in choice.table
        ]
        print_table(("schedule", "best lr", "loss", "90 % interval"), rows, f"{choice.steps} steps")
    if choices:
        last = choices[-1]
        note = f" ({last.note})" if last.note else ""
        typer.echo(f"\nBest for {last.steps} steps: {last.schedule} with lr = {last.lr:.3g}{note}")
    else:
        typer.echo("\nForecasts are of one model and data set: name one with --group KEY=VALUE.")
    if "forecast" in answer:
        typer.echo(f"Forecast of {schedule} with lr = {lr:g} for {last.steps} steps: {predicted}")


def _group(fitted: Forecast, chosen: dict[str, str]) -> dict[str, Any] | None:
    """The group whose values print as those on the command line."""
    if not chosen:
        return None
    matches = [
        group
        for group in [*fitted.groups, *map(dict, fitted.refused)]
        if all(key in group and str(group[key]) == value for key, value in chosen.items())
    ]
    if len(matches) != 1:
        raise ValueError(
            f"--group must fit one group of runs, got {chosen} (fits {len(matches)}); there are {fitted.groups}"
        )
    return matches[0]
