"""``surefoot reproduce``: figures and their tables; without names also the claims and the report."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from surefoot._progress import reporter
from surefoot._spawn import cores, done_in_processes
from surefoot.cli._claims import summary
from surefoot.paper import figures
from surefoot.paper.claims import all_claims, check

if TYPE_CHECKING:
    from surefoot.paper.figures.networks import NetworkFigure
    from surefoot.study import Result

LONGEST_FIRST = ("dna", "vowel", "pep-bounds", "level", "pep")
"""Figures that take seconds; the others are drawn while these are computed."""


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
    console = Console(quiet=quiet, highlight=False)
    # All are loaded first: an unknown name or preset stops everything before work starts.
    plain = {name: figures.load(name, studies).TITLE for name in chosen if name not in figures.NETWORKS}
    trained = [name for name in chosen if name in figures.NETWORKS]
    networks: dict[str, NetworkFigure] = {}
    if trained:
        from surefoot.paper import presets
        from surefoot.paper.figures.networks import NetworkFigure

        presets.check(preset)
        networks = {name: NetworkFigure(name, studies, preset, device, data) for name in trained}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass  # who cannot write there is told so now, not after the work

    console.print(f"[bold]Figures[/], each as .png, .pdf and .csv in {escape(str(out))}")
    if plain:
        _write(plain, studies, out, console, quiet)
    if networks:
        _write_networks(networks, out, console, quiet, finished)
    if not names:
        _tell_left_out(console)
    on_cifar = preset != "smoke" and bool(set(trained) & set(figures.CIFAR10))
    ids = [name for name in all_claims() if not names or (on_cifar and name.startswith("cifar-"))]
    if not names or on_cifar:
        rows = check(ids, folder=studies, progress=not quiet)
        console.print(f"\n[bold]Claims of the paper[/]; `surefoot claims --store {escape(str(studies))}` has all rules")
        for line in summary(rows):
            console.print(f"  {line}", soft_wrap=True)
    if not names:
        _tell_next(console, _report(studies, out))


def _write(titles: dict[str, str], studies: Path, out: Path, console: Console, quiet: bool) -> None:
    """Compute and write figures on all cores, and say so as each is done."""
    order = sorted(titles, key=lambda name: LONGEST_FIRST.index(name) if name in LONGEST_FIRST else 99)
    calls = {name: (name, studies, out) for name in order}
    with reporter(not quiet, total=len(order), unit="figures") as tell:
        for done, (name, seconds) in enumerate(done_in_processes(make, calls, cores()), 1):
            _tell(console, name, titles[name], seconds)
            tell(done)


def make(name: str, studies: Path, out: Path) -> float:
    """Compute and write one figure; returns the seconds that it took."""
    start = time.perf_counter()
    figures.save(name, figures.load(name, studies).data(), out)
    return time.perf_counter() - start


def _write_networks(
    networks: dict[str, NetworkFigure], out: Path, console: Console, quiet: bool, finished: bool
) -> None:
    """Train what is missing, then draw; what lacks runs is named."""
    from surefoot.paper import summary
    from surefoot.paper.curves import MissingRuns

    results: dict[str, dict[str, Result]] = {}
    for name, figure in networks.items():
        if figure.sweep not in results:
            results[figure.sweep] = _finished(figure) if finished else _train(figure, console, quiet)
            path = out / f"{figure.sweep}-{figure.preset}.csv"
            summary.write(summary.summarise(results[figure.sweep]), path)
            console.print(f"  {path.name}: losses, bound and distance, one row a method and rate")
        start = time.perf_counter()
        try:
            columns = figure.table(results[figure.sweep])
        except MissingRuns as absent:
            console.print(f"  {name} is left out: there are no finished runs of {absent.args[0]}")
            continue
        figures.save(name, columns, out)
        _tell(console, name, figure.TITLE, time.perf_counter() - start)


def _tell(console: Console, name: str, title: str, seconds: float) -> None:
    console.print(f"  {name:23} {seconds:5.1f} s  {escape(figures.title_of(name, title))}", soft_wrap=True)


def _tell_left_out(console: Console) -> None:
    """Nothing is left out in silence."""
    lacking = figures.lacking()
    if lacking:
        extra = "pip install 'surefoot\\[pep]'"
        console.print(f"  not made, because the extra pep is not installed ({extra}): {', '.join(lacking)}")
    console.print(
        f"  made by name only, because they train networks for hours: {', '.join(figures.NETWORKS)}; "
        "try `surefoot reproduce cifar10 --preset smoke`, which takes seconds on digits",
        soft_wrap=True,
    )


def _tell_next(console: Console, page: Path) -> None:
    steps = {
        f"open {page}": "the six studies as one page to click through, in any browser, offline",
        "surefoot watch train.py": "runs a training script of yours unchanged and says whether its rate is right",
        "surefoot init && surefoot study SPEC.toml": "a sweep of your own: which rates hold, as a table",
    }
    console.print("\n[bold]Three things to do next[/]")
    for place, (what, words) in enumerate(steps.items(), 1):
        console.print(f"  {place}. [bold]{escape(what)}[/]: {words}", soft_wrap=True)


def _report(studies: Path, out: Path) -> Path:
    from surefoot.paper import experiments
    from surefoot.report import write_many

    titles = {name: experiments.experiment(name).title for name in figures.SWEEPS}
    return write_many({titles[name]: experiments.run(name, studies) for name in titles}, out / "report.html")


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
    start, computed = time.perf_counter(), 0
    with reporter(not quiet, about=f"runs of {figure.sweep} ({figure.preset})") as tell:

        def count(done: int, total: int) -> None:
            nonlocal computed
            computed = done
            tell(done, total=total)

        results = figure.run(count)
    total = sum(result.dataset.status.size for result in results.values())
    seconds = time.perf_counter() - start
    console.print(f"{figure.sweep} ({figure.preset}): {total} runs, {computed} of them computed now in {seconds:.0f} s")
    return results
