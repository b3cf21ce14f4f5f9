"""``surefoot reproduce``: figures and their tables; without names also the claims and the report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from surefoot.cli._claims import checked
from surefoot.cli._claims import table as claims_table
from surefoot.paper import figures
from surefoot.plots.panels import Columns

if TYPE_CHECKING:
    from surefoot.paper.figures.networks import NetworkFigure
    from surefoot.study import Result


def reproduce(
    names: list[str],
    out: Path,
    quiet: bool,
    preset: str = "small",
    device: str = "cpu",
    data: str | None = None,
    finished: bool = False,
) -> None:
    """Compute and write the named figures; without names all of them, then claims and report.

    Preset, device and data are for figures of networks; with ``finished`` these show what was run before.
    """
    chosen = figures.expanded(names) or figures.available()
    studies = out / "studies"
    console = Console(quiet=quiet)
    # All are loaded first: an unknown name or preset stops everything before work starts.
    convex = {name: figures.load(name, studies) for name in chosen if name not in figures.NETWORKS}
    titles = {name: module.TITLE for name, module in convex.items()}
    makers: dict[str, Callable[[], Columns]] = {name: module.data for name, module in convex.items()}
    trained = [name for name in chosen if name in figures.NETWORKS]
    networks: dict[str, NetworkFigure] = {}
    if trained:
        from surefoot.paper.curves import MissingRuns
        from surefoot.paper.figures.networks import NetworkFigure

        networks = {name: NetworkFigure(name, studies, preset, device, data) for name in trained}
        titles |= {name: figure.TITLE for name, figure in networks.items()}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass  # who cannot write there is told so now, not after the work
    results: dict[str, dict[str, Result]] = {}
    for figure in networks.values():
        if figure.sweep not in results:
            results[figure.sweep] = _finished(figure) if finished else _train(figure, console, quiet)
    for name, figure in networks.items():
        try:
            makers[name] = partial(dict, figure.table(results[figure.sweep]))
        except MissingRuns as absent:
            console.print(f"{name} is left out: there are no finished runs of {absent.args[0]}")

    console.print(_write({name: makers[name] for name in chosen if name in makers}, titles, out, quiet))
    missing = figures.lacking()
    if missing and not names:
        console.print(f"left out, because an extra is missing (surefoot doctor says which): {', '.join(missing)}")
    if preset != "smoke" and set(trained) & set(figures.CIFAR10):
        from surefoot.paper.claims import all_claims

        console.print(
            claims_table(checked([name for name in all_claims() if name.startswith("cifar-")], studies, quiet))
        )
    if not names:
        from surefoot.paper import experiments
        from surefoot.report import write_many

        console.print(claims_table(checked(None, studies, quiet)))
        page = write_many(
            {experiments.experiment(name).title: experiments.run(name, studies) for name in figures.SWEEPS},
            out / "report.html",
        )
        console.print(f"report: {page} (opens in any browser, needs no network)")


def _finished(figure: NetworkFigure) -> dict[str, Result]:
    """What is there of a figure's sweep, without running more of it."""
    from surefoot.paper import presets

    assert figure.folder is not None
    found = presets.finished(figure.sweep, figure.preset, figure.folder)
    if found is None:
        raise FileNotFoundError(
            f"no finished runs of {figure.sweep} in {presets.store_of(figure.sweep, figure.preset, figure.folder)}"
        )
    return found


def _train(figure: NetworkFigure, console: Console, quiet: bool) -> dict[str, Result]:
    """Run what is missing of a figure's sweep, with a bar over all of it; runs take minutes, so all of them count."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    start, computed = time.perf_counter(), 0
    with Progress(*columns, console=Console(stderr=True), disable=quiet, speed_estimate_period=1e9) as progress:
        task = progress.add_task(f"{figure.sweep} ({figure.preset})", total=None)

        def tell(done: int, total: int) -> None:
            nonlocal computed
            computed = done
            progress.update(task, completed=done, total=total)

        results = figure.run(tell)
    total = sum(result.dataset.status.size for result in results.values())
    seconds = time.perf_counter() - start
    console.print(f"{figure.sweep} ({figure.preset}): {total} runs, {computed} of them computed now in {seconds:.0f} s")
    return results


def _write(makers: dict[str, Callable[[], Columns]], titles: dict[str, str], out: Path, quiet: bool) -> Table:
    """Write the figures, and say how long each took."""
    table = Table("figure", "shows", "seconds", title=f"written to {out}/, each as .png, .pdf and .csv")
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        task = progress.add_task("figures", total=len(makers))
        for name, make in makers.items():
            progress.update(task, description=name)
            start = time.perf_counter()
            figures.save(name, make(), out)
            table.add_row(name, titles[name], f"{time.perf_counter() - start:.1f}")
            progress.advance(task)
    return table
