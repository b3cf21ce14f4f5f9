"""``surefoot study``: a sweep from a spec, and its answer as a table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from surefoot.cli._json import without_nonfinite
from surefoot.report import prepare
from surefoot.study import Result, Sensitivity, Study


def study(spec: Path, store: Path | None, quiet: bool, as_json: bool) -> None:
    """Run what is missing and print which rates hold."""
    path = store or spec.with_suffix(".db")
    sweep = Study.from_spec(spec)
    plan = sweep.plan(path)
    if not quiet and not as_json:
        Console(stderr=True).print(f"{plan.total} runs of {sweep.steps} steps; {plan.done} are in {path} already")
    result = sweep.run(path, progress=not quiet and not as_json)
    prepare(result)  # so that a report can be written from the store alone
    rows = list(windows(result))
    if as_json:
        answer = {"store": str(path), "methods": [asdict(row) for row in rows]}
        typer.echo(json.dumps(without_nonfinite(answer), indent=2))
        return
    Console().print(table(result, rows))
    typer.echo(f"All traces are in {path}; `surefoot report {path}` makes a page of them.")


def windows(result: Result) -> list[Sensitivity]:
    """One row a method, with the bound of the study's D, of the true one, or else of the envelope."""
    known = result.settings["distance"] is not None or result.optimum().distance is not None
    return list(result.sensitivity() if known else result.sensitivity(bias="envelope"))


def table(result: Result, rows: list[Sensitivity]) -> Table:
    """Which rates hold, measured and predicted."""
    shown = Table(
        "method", "best rate", "loss there", "holds from", "to", "decades", "bound says", "diverged",
        title=f"{result.settings['problem']['name']}: rates with f(x_T) within 10 % of the best",
    )  # fmt: skip
    diverged = (result.dataset.status == "diverged").sum(["lr", "seed"])
    total = len(result.lrs) * len(result.settings["seeds"])
    for row in rows:
        numbers = (row.best_rate, row.best_loss, row.low, row.high)
        shown.add_row(
            row.algorithm,
            *(f"{number:.3g}" for number in numbers),
            f"{row.decades:.1f}",
            f"{row.bound_low:.2g} – {row.bound_high:.2g}",
            f"{int(diverged.sel(algorithm=row.algorithm))} of {total}",
        )
    return shown
