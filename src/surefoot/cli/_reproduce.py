"""``surefoot reproduce``: figures and their tables; without names also the claims and the report."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from joblib import Parallel, delayed
from rich.console import Console
from rich.markup import escape

from surefoot._base.arguments import one_of
from surefoot._base.processes import cores
from surefoot._base.progress import reporter
from surefoot.paper import cifar10, experiments, figures
from surefoot.paper.claims import SECTIONS, Checked, all_claims, check

if TYPE_CHECKING:
    import xarray as xr

IN_REPORT = ("linear-regression", "vowel", "dna")


def reproduce(names: list[str], out: Path, preset: str | None, device: str, data: str | None, quiet: bool) -> None:
    """Compute and write the named figures; without names all that need no training, then claims and report.

    Figures of networks are drawn from runs that are there, in the folder or in the package; with a preset, what is
    missing of that size is trained first, on the device and with the data.
    """
    chosen = figures.expanded(names) or figures.available()
    studies = out / "studies"
    console = Console(quiet=quiet, highlight=False, soft_wrap=True)
    if preset is not None:
        one_of("preset", preset, cifar10.PRESETS)  # what is wrong stops everything before work starts
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass  # who cannot write there is told so now, not after the work

    trains = preset is not None and any(figures.FIGURES[name].is_sweep for name in chosen)
    if preset is not None and trains:
        cifar10.write(_train(preset, studies, device, data, console), studies / f"cifar10-{preset}.nc")
        console.print(f"  studies/cifar10-{preset}.nc: losses, bounds and distance of every run")
    console.print(f"[bold]Figures[/], each as .png, .pdf and .csv in {escape(str(out))}")
    order = sorted(chosen, key=lambda name: not figures.FIGURES[name].studies)
    calls = [delayed(make)(name, studies, out, ["smoke"] if preset == "smoke" else cifar10.TRUSTED) for name in order]
    workers = Parallel(n_jobs=min(cores(), len(calls)), return_as="generator_unordered")
    with reporter(not console.quiet, total=len(order), unit="figures") as tell:
        for done, (name, seconds) in enumerate(workers(calls), 1):
            console.print(f"  {name:23} {seconds:5.1f} s  {escape(figures.FIGURES[name].heading)}")
            tell(done)
    if not names:
        _tell_left_out(console)
    if not names or (trains and preset != "smoke"):
        ids = [name for name in all_claims() if not names or name.startswith("cifar-")]
        rows = check(ids, folder=studies, progress=not quiet)
        console.print(f"\n[bold]Claims of the paper[/]; `surefoot claims --store {escape(str(studies))}` has all rules")
        for line in summary(rows):
            console.print(f"  {line}")
    if not names:
        _report(studies, out / "report.html", console)


def make(name: str, studies: Path, out: Path, presets: Sequence[str]) -> tuple[str, float]:
    """Compute and write one figure; returns its name and the seconds that it took."""
    start = time.perf_counter()
    figures.save(name, figures.data(name, studies, presets), out)
    return name, time.perf_counter() - start


def _tell_left_out(console: Console) -> None:
    """Name the figures that were not made, and say why."""
    lacking = figures.lacking()
    if lacking:
        extra = "pip install 'surefoot\\[pep]'"
        console.print(f"  not made, because the extra pep is not installed ({extra}): {', '.join(lacking)}")


def summary(rows: Sequence[Checked]) -> Iterator[str]:
    """One line per section of claims, and a sentence per claim that fails."""
    by_id = {row.id: row for row in rows}
    for section, ids in SECTIONS.items():
        here = [by_id[name] for name in ids if name in by_id]
        held, failed, left = ([row for row in here if row.verdict == word] for word in ("holds", "fails", "not-run"))
        if held or failed:
            yield f"{section}: {len(held)} hold, {len(failed)} fail"
        for row in failed:
            yield f"  [red]fails[/] {escape(f'{row.claim}. Measured: {row.measured}. ({row.id})')}"
        for reason, absent in itertools.groupby(left, key=lambda row: row.measured.partition(";")[0]):
            names = [row.id for row in absent]
            begin = " " if held or failed else f"{section}:"
            yield f"{begin} {len(names)} not checked; {escape(reason)} ({', '.join(names)})"


def _report(studies: Path, path: Path, console: Console) -> None:
    """Write the page of three studies, and say what to do next."""
    from surefoot.report import write_many

    results = {experiments.EXPERIMENTS[name].title: experiments.run(name, studies) for name in IN_REPORT}
    steps = {
        f"open {write_many(results, path)}": "the studies as one page to click through, in any browser, offline",
        "surefoot watch train.py": "runs a training script of yours unchanged and says whether its rate is right",
        "surefoot study SPEC.toml": "a sweep of your own: which rates work, as a table",
    }
    console.print("\n[bold]Three things to do next[/]")
    for place, (what, words) in enumerate(steps.items(), 1):
        console.print(f"  {place}. [bold]{escape(what)}[/]: {words}")


def _train(preset: str, studies: Path, device: str, data: str | None, console: Console) -> xr.Dataset:
    """Run what is missing of a sweep, with a bar over all of it; runs take minutes, so all of them count."""
    start, computed = time.perf_counter(), 0
    with reporter(not console.quiet, about=f"runs of cifar10 ({preset})") as tell:

        def count(done: int, total: int) -> None:
            nonlocal computed
            computed = done
            tell(done, total=total)

        results = cifar10.run(preset, studies, device=device, data=data, progress=count)
    total = sum(result.dataset.status.size for result in results.values())
    seconds = time.perf_counter() - start
    console.print(f"cifar10 ({preset}): {total} runs, {computed} of them computed now in {seconds:.0f} s")
    return cifar10.measure(preset, results)
