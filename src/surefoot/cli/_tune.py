"""``surefoot tune``: the best rate of a spec, and what it took to find it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.progress import TimeElapsedColumn

from surefoot.cli._output import bar, print_json
from surefoot.cli._spec import read
from surefoot.search import tune as search


def tune(spec: Path, objective: str, store: Path | None, quiet: bool, as_json: bool, **who: Any) -> None:
    """Search, then print the answer, the table and the certificate; ``who`` computes are options of ``tune``."""
    sweep = read(spec)
    steps = "{task.completed} of at most {task.total} steps"
    with bar(quiet or as_json, TimeElapsedColumn(), text=steps) as progress:
        task = progress.add_task("steps", total=len(sweep.runs) * sweep.steps)
        found = search(
            sweep,
            store=store or spec.with_suffix(".db"),
            objective=objective,  # type: ignore[arg-type]
            progress=lambda done: progress.update(task, completed=done),
            **who,
        )
    if as_json:
        rows = [{**asdict(row), "bound": row.bound} for row in found.table]
        answer = {"method": found.method, "lr": found.lr, "loss": found.loss, "bound": found.bound, "cost": found.cost}
        sure = {"confidence": found.confidence, "warnings": list(found.warnings)}
        certified = {"certified": found.certificate is not None, "table": rows}
        print_json({**answer, **sure, **certified})
        return
    typer.echo(found)
    if found.certificate is not None:
        typer.echo(f"\n{found.certificate}")
