"""``surefoot study``: a sweep from a spec, and its answer as a table."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from surefoot.cli._json import without_nonfinite
from surefoot.cli._spec import read
from surefoot.report import prepare
from surefoot.study import Result, Sensitivity


def study(spec: Path, store: Path | None, quiet: bool, as_json: bool, **engine: Any) -> None:
    """Run what is missing and print which rates hold; ``engine`` are options of ``Study.run``."""
    sweep = read(spec)
    path = store or spec.with_suffix(".db")
    plan = sweep.plan(path)
    if not quiet and not as_json:
        Console(stderr=True).print(f"{plan.total} runs of {sweep.steps} steps; {plan.done} are in {path} already")
    result = sweep.run(path, progress=not quiet and not as_json, **engine)
    prepare(result)  # so that a report can be written from the store alone
    rows = list(windows(result))
    if as_json:
        answer = {"store": str(path), "methods": [asdict(row) for row in rows]}
        typer.echo(json.dumps(without_nonfinite(answer), indent=2))
        return
    Console().print(table(result, rows))
    typer.echo(f"All traces are in {path}; `surefoot report {path}` makes a page of them.")


def windows(result: Result) -> list[Sensitivity]:
    """One row a method, with the bound of the study's D, of the true one, or else of the envelope or the pool."""
    if result.settings["distance"] is not None or result.optimum().distance is not None:
        return list(result.sensitivity())
    try:
        return list(result.sensitivity(bias="envelope"))
    except NotImplementedError:
        return list(result.sensitivity(bias="pool"))


def table(result: Result, rows: list[Sensitivity]) -> Table:
    """Which rates hold, measured and predicted."""
    shown = Table(
        "method", "best lr", "loss", "holds", "decades", "bound says", "diverged",
        title=f"{result.settings['problem']['name']}: rates with f(x_T) ≤ best + 0.1 (f(x_1) − f⋆)",
    )  # fmt: skip
    diverged = (result.dataset.status == "diverged").sum(["lr", "seed"])
    total = len(result.lrs) * len(result.settings["seeds"])
    for row in rows:
        shown.add_row(
            row.algorithm,
            "none" if math.isnan(row.best_rate) else f"{row.best_rate:.3g}",
            f"{row.best_loss:.3g}",
            _range(row.low, row.high),
            "" if math.isinf(row.decades) else f"{row.decades:.1f}",
            _range(row.bound_low, row.bound_high),
            f"{int(diverged.sel(algorithm=row.algorithm))} of {total}",
        )
    return shown


def _range(low: float, high: float) -> str:
    return "none" if math.isnan(low) else f"{low:.3g} – {high:.3g}"
