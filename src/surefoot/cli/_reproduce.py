"""``surefoot reproduce``: figures and their tables; without names also the claims and the report."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from surefoot import figures


def reproduce(names: list[str], out: Path, quiet: bool) -> None:
    """Compute and write the named figures; without names all of them, then claims and report."""
    chosen = list(dict.fromkeys(names)) or figures.available()
    studies = out / "studies"
    # All are loaded first: an unknown name stops everything before work starts.
    modules = {name: figures.load(name, studies) for name in chosen}
    table = Table("figure", "shows", "seconds", title=f"written to {out}/, each as .png, .pdf and .csv")
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        task = progress.add_task("figures", total=len(chosen))
        for name, module in modules.items():
            progress.update(task, description=name)
            start = time.perf_counter()
            figures.save(name, module.data(), out)
            table.add_row(name, module.TITLE, f"{time.perf_counter() - start:.1f}")
            progress.advance(task)
    console = Console(quiet=quiet)
    console.print(table)
    missing = [name for name in figures.FIGURES if name not in figures.available()]
    if missing and not names:
        console.print(f"left out, because an extra is missing (surefoot doctor says which): {', '.join(missing)}")
    if not names:
        from surefoot.cli._claims import checked
        from surefoot.cli._claims import table as claims_table
        from surefoot.figures import experiments
        from surefoot.report import write_many

        console.print(claims_table(checked(None, studies, quiet)))
        page = write_many(
            {experiments.experiment(name).title: experiments.run(name, studies) for name in figures.SWEEPS},
            out / "report.html",
        )
        console.print(f"report: {page} (opens in any browser, needs no network)")
