"""``surefoot reproduce``: figures and their tables; without names also the claims and the report."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from surefoot._base.processes import cores, done_in_processes
from surefoot._base.progress import reporter
from surefoot.paper import experiments, figures, presets
from surefoot.paper.claims import SECTIONS, Checked, all_claims, check
from surefoot.paper.curves import MissingRuns
from surefoot.paper.summary import summarise
from surefoot.paper.summary import write as write_summary
from surefoot.study import Result


def reproduce(
    names: list[str], out: Path, preset: str, device: str, data: str | None, finished: bool, quiet: bool
) -> None:
    """Compute and write the named figures; without names all of them, then claims and report.

    Preset, device and data are for figures of networks; with ``finished`` these show what was run before.
    """
    chosen = figures.expanded(names) or figures.available()
    studies = out / "studies"
    console = Console(quiet=quiet, highlight=False, soft_wrap=True)
    plain = [name for name in chosen if name not in figures.NETWORKS]
    trained = [name for name in chosen if name in figures.NETWORKS]
    if trained:
        presets.check(preset)  # what is wrong stops everything before work starts
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass  # who cannot write there is told so now, not after the work

    console.print(f"[bold]Figures[/], each as .png, .pdf and .csv in {escape(str(out))}")
    if plain:
        _write(plain, studies, out, console)
    for sweep in dict.fromkeys(figures.FIGURES[name].sweep for name in trained):
        results = presets.finished(sweep, preset, studies) if finished else None
        if finished and results is None:
            raise FileNotFoundError(f"no finished runs of {sweep} in {presets.store_of(sweep, preset, studies)}")
        results = results or _train(sweep, preset, studies, device, data, console)
        shown = [name for name in trained if figures.FIGURES[name].sweep == sweep]
        _write_networks(shown, presets.sweep(sweep, preset), results, out, console)
        write_summary(summarise(results), out / f"{sweep}-{preset}.csv")
        console.print(f"  {sweep}-{preset}.csv: losses, bound and distance, one row a method and rate")
    if not names:
        _tell_left_out(console)
    on_cifar = preset != "smoke" and bool(set(trained) & set(figures.CIFAR10))
    if not names or on_cifar:
        ids = [name for name in all_claims() if not names or name.startswith("cifar-")]
        rows = check(ids, folder=studies, progress=not quiet)
        console.print(f"\n[bold]Claims of the paper[/]; `surefoot claims --store {escape(str(studies))}` has all rules")
        for line in summary(rows):
            console.print(f"  {line}")
    if not names:
        _report(studies, out / "report.html", console)


def _write(names: list[str], studies: Path, out: Path, console: Console) -> None:
    """Compute and write figures on all cores, the slow ones first, and say so as each is done."""
    order = sorted(names, key=lambda name: not figures.FIGURES[name].is_slow)
    calls = {name: (name, studies, out) for name in order}
    with reporter(not console.quiet, total=len(order), unit="figures") as tell:
        for done, (name, seconds) in enumerate(done_in_processes(make, calls, cores()), 1):
            _tell(console, name, seconds)
            tell(done)


def make(name: str, studies: Path, out: Path) -> float:
    """Compute and write one figure; returns the seconds that it took."""
    start = time.perf_counter()
    figures.save(name, figures.load(name).columns(studies), out)
    return time.perf_counter() - start


def _write_networks(
    names: list[str], sweep: presets.Sweep, results: dict[str, Result], out: Path, console: Console
) -> None:
    """Draw figures from the results of their sweep; what lacks runs is named."""
    for name in names:
        start = time.perf_counter()
        try:
            columns = figures.load(name).data(sweep, results)
        except MissingRuns as absent:
            console.print(f"  {name} is left out: there are no finished runs of {absent.args[0]}")
            continue
        figures.save(name, columns, out)
        _tell(console, name, time.perf_counter() - start, f", {presets.described(sweep)}")


def _tell(console: Console, name: str, seconds: float, more: str = "") -> None:
    console.print(f"  {name:23} {seconds:5.1f} s  {escape(f'{figures.FIGURES[name].heading}{more}')}")


def _tell_left_out(console: Console) -> None:
    """Name the figures that were not made, and say why."""
    lacking = figures.lacking()
    if lacking:
        extra = "pip install 'surefoot\\[pep]'"
        console.print(f"  not made, because the extra pep is not installed ({extra}): {', '.join(lacking)}")
    console.print(
        f"  made by name only, because they train networks for hours: {', '.join(figures.NETWORKS)}; "
        "try `surefoot reproduce cifar10 --preset smoke`, which takes seconds on digits"
    )


def summary(rows: Sequence[Checked]) -> Iterator[str]:
    """One line a section of claims, and a sentence a claim that fails."""
    by_id = {row.id: row for row in rows}
    for section, ids in SECTIONS.items():
        here = [by_id[name] for name in ids if name in by_id]
        held, failed, left = ([row for row in here if row.verdict == word] for word in ("holds", "fails", "not-run"))
        if held or failed:
            yield f"{section}: {len(held)} hold, {len(failed)} fail"
        for row in failed:
            yield f"  [red]fails[/] {escape(f'{row.claim}. Measured: {row.measured}. ({row.id})')}"
        for reason, absent in itertools.groupby(left, key=lambda row: row.measured):
            names = [row.id for row in absent]
            yield f"{section}: {len(names)} not checked; {escape(reason)} ({', '.join(names)})"


def _report(studies: Path, path: Path, console: Console) -> None:
    """Write the page of the six studies, and say what to do next."""
    from surefoot.report import write_many

    results = {experiment.title: experiments.run(name, studies) for name, experiment in experiments.EXPERIMENTS.items()}
    steps = {
        f"open {write_many(results, path)}": "the six studies as one page to click through, in any browser, offline",
        "surefoot watch train.py": "runs a training script of yours unchanged and says whether its rate is right",
        "surefoot init && surefoot study SPEC.toml": "a sweep of your own: which rates hold, as a table",
    }
    console.print("\n[bold]Three things to do next[/]")
    for place, (what, words) in enumerate(steps.items(), 1):
        console.print(f"  {place}. [bold]{escape(what)}[/]: {words}")


def _train(
    sweep: str, preset: str, studies: Path, device: str, data: str | None, console: Console
) -> dict[str, Result]:
    """Run what is missing of a sweep, with a bar over all of it; runs take minutes, so all of them count."""
    start, computed = time.perf_counter(), 0
    with reporter(not console.quiet, about=f"runs of {sweep} ({preset})") as tell:

        def count(done: int, total: int) -> None:
            nonlocal computed
            computed = done
            tell(done, total=total)

        results = presets.run(sweep, preset, studies, device=device, data=data, progress=count)
    total = sum(result.dataset.status.size for result in results.values())
    seconds = time.perf_counter() - start
    console.print(f"{sweep} ({preset}): {total} runs, {computed} of them computed now in {seconds:.0f} s")
    return results
