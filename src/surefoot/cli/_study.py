"""``surefoot study``: a sweep from a spec, and its answer as a table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from surefoot._text import visible
from surefoot.cli._output import print_json
from surefoot.cli._spec import read
from surefoot.report import prepare
from surefoot.study import Result, Sensitivity, table, windows


def study(spec: Path, store: Path | None, quiet: bool, as_json: bool, **engine: Any) -> None:
    """Run what is missing and print which rates hold; ``engine`` are options of ``Study.run``."""
    sweep = read(spec)
    path = store or spec.with_suffix(".db")
    plan = sweep.plan(path)
    if not quiet and not as_json:
        Console(stderr=True).print(f"{plan.total} runs of {sweep.steps} steps; {plan.done} are in {path} already")
    result = sweep.run(path, progress=not quiet and not as_json, **engine)
    prepare(result)  # so that a report can be written from the store alone
    rows = windows(result)
    if as_json:
        print_json({"store": str(path), "methods": [asdict(row) for row in rows]})
        return
    Console().print(shown(result, rows))
    typer.echo(f"All traces are in {path}; `surefoot report {path}` makes a page of them.")


def shown(result: Result, rows: list[Sensitivity]) -> Table:
    """Which rates hold, measured and predicted."""
    head, *body = table(result, rows)
    title = f"{result.settings['problem']['name']}: rates with f(x_T) ≤ best + 0.1 (f(x_1) − f⋆)"
    drawn = Table(*head, title=Text(visible(title)))
    for line in body:
        drawn.add_row(*(Text(visible(cell)) for cell in line))
    return drawn
