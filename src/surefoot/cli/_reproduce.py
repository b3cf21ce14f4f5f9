"""``surefoot reproduce``: figures and their tables."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from surefoot import figures


def reproduce(names: list[str], out: Path, quiet: bool) -> None:
    """Compute and write the named figures, or all of them."""
    chosen = list(dict.fromkeys(names)) or list(figures.FIGURES)
    modules = {name: figures.load(name) for name in chosen}  # an unknown name stops everything before work starts
    console = Console(stderr=True, quiet=quiet)
    table = Table("figure", "shows", "seconds", title=f"written to {out}/, each as .png, .pdf and .csv")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=quiet) as progress:
        task = progress.add_task("figures", total=len(chosen))
        for name, module in modules.items():
            progress.update(task, description=name)
            start = time.perf_counter()
            figures.save(name, module.data(), out)
            table.add_row(name, module.TITLE, f"{time.perf_counter() - start:.1f}")
            progress.advance(task)
    if not quiet:
        Console().print(table)
