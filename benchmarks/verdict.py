"""Is the verdict right? Runs of small networks at ten rates each, judged after a tenth of their steps.

The window of a task and optimizer are the rates whose final loss is at most best + 0.1·(first − best), on data that was
not trained on; where no rate lowers the loss by a hundredth there is none, and the runs are left out. The weights of
``surefoot.monitor`` were fitted on development tasks. Two sets of other tasks judge it: ``fresh`` ones, which were
written down before the weights were fitted and first trained after, and older ``held-out`` ones, at which earlier
weights were looked at once. Whole runs take long (an hour or two): they are kept in --cache, and a recording that was
broken off goes on there.

python benchmarks/verdict.py --held-out
python benchmarks/verdict.py --held-out --finished      only what the cache has, without training
python benchmarks/verdict.py                            the development tasks
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from _verdict_runs import Spec, ended, known_ends, specs, watched
from _verdict_tasks import TASKS


@dataclass(frozen=True)
class Judged:
    """A run, where its rate stands, and what the monitor said."""

    spec: Spec
    place: str
    """``below``, ``inside`` or ``above`` its window, or ``between`` rates of it."""
    lost: bool
    """Whether it ended not finite, or above the first loss."""
    best: float
    window: tuple[float, float]
    state: str
    lr_range: tuple[float, float] | None


LEAST = 0.01
"""Share of the first loss that the best rate of a group has to gain for the group to have a window."""


def judged(wanted: list[Spec], ends: dict[str, tuple[float, float]]) -> list[Judged]:
    """The runs with their verdicts; those of groups in which no rate has lowered the loss say nothing."""
    groups: dict[str, list[Spec]] = {}
    for spec in wanted:
        groups.setdefault(spec.group, []).append(spec)
    found = []
    with Progress(console=Console(stderr=True)) as progress:
        for group in progress.track(list(groups.values()), description="watching the first steps"):
            first, lasts = ends[group[0].key][0], [ends[spec.key][1] for spec in group]
            best = min(lasts)
            if not best <= first - LEAST * abs(first):
                continue
            good = [spec.lr for spec, last in zip(group, lasts, strict=True) if last <= best + 0.1 * (first - best)]
            window = min(good), max(good)
            for spec, last in zip(group, lasts, strict=True):
                place = "inside" if spec.lr in good else "below" if spec.lr < window[0] else "above"
                place = "between" if place == "above" and spec.lr < window[1] else place
                rate, verdict = group[lasts.index(best)].lr, watched(spec).verdict()
                found.append(Judged(spec, place, not last < first, rate, window, str(verdict.state), verdict.lr_range))
    return found


def share(runs: Iterable[Judged], holds: Callable[[Judged], bool]) -> float:
    """How many of the runs."""
    answers = [holds(run) for run in runs]
    return sum(answers) / len(answers) if answers else math.nan


def table(title: str, runs: list[Judged]) -> Table:
    """The runs against what is wanted of them."""
    places = {place: [run for run in runs if run.place == place] for place in ("below", "inside", "above")}
    small, large = (lambda run: run.state == "too small"), (lambda run: run.state == "too large")
    holds, edge = (lambda run: run.state == "holds"), (lambda run: run.state in ("too large", "at the edge"))
    lost = [run for run in places["above"] if run.lost]
    ranged = [run for run in runs if run.place != "between"]
    shown = Table("runs", "number", "verdict", "share", "must", "met", title=title)
    rows: list[tuple[str, list[Judged], str, Callable[[Judged], bool], float, bool]] = [
        ("below the window", places["below"], "too small", small, 0.8, True),
        ("inside", places["inside"], "holds", holds, 0.7, True),
        ("inside", places["inside"], "too small or too large", lambda r: small(r) or large(r), 0.05, False),
        ("above", places["above"], "too large", large, 0.5, True),
        ("above", places["above"], "too large or at the edge", edge, 0.75, True),
        ("blown up", lost, "too large", large, 0.95, True),
        ("all", ranged, "range holds the best rate", _holds_best, 0.62, True),
        ("all", ranged, "range overlaps the window", _overlaps, 0.9, True),
        ("all", ranged, "range wider than 1.5 decades", _wide, 0.0, False),
    ]
    for name, chosen, verdict, question, must, at_least in rows:
        value = share(chosen, question)
        met = value >= must if at_least else value <= must
        sign = "≥" if at_least else "≤"
        shown.add_row(name, str(len(chosen)), verdict, f"{value:.1%}", f"{sign} {must:.0%}", "yes" if met else "NO")
    return shown


def _holds_best(run: Judged) -> bool:
    return run.lr_range is not None and run.lr_range[0] <= run.best <= run.lr_range[1]


def _overlaps(run: Judged) -> bool:
    return run.lr_range is not None and run.lr_range[0] <= run.window[1] and run.window[0] <= run.lr_range[1]


def _wide(run: Judged) -> bool:
    return run.lr_range is not None and math.log10(run.lr_range[1] / run.lr_range[0]) > 1.5 + 1e-9


def by_optimizer(runs: list[Judged]) -> Table:
    """The states of every optimizer's runs."""
    shown = Table(
        "optimizer", "below: too small", "inside: holds", "inside: wrong", "above: too large or edge", "range"
    )
    for name in dict.fromkeys(run.spec.optimizer for run in runs):
        own = [run for run in runs if run.spec.optimizer == name]
        below, inside, above = ([r for r in own if r.place == place] for place in ("below", "inside", "above"))
        values = (
            share(below, lambda r: r.state == "too small"),
            share(inside, lambda r: r.state == "holds"),
            share(inside, lambda r: r.state in ("too small", "too large")),
            share(above, lambda r: r.state in ("too large", "at the edge")),
            share(own, _holds_best),
        )
        shown.add_row(name, *(f"{value:.0%}" for value in values))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="judge the fresh and held-out tasks, not development's")
    parser.add_argument("--finished", action="store_true", help="only groups of runs that the cache has in full")
    parser.add_argument("--slow", action="store_true", help="add convolutions, recurrent networks and transformers")
    parser.add_argument("--cache", type=Path, default=Path("out/verdict"), help="where finished runs are kept")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=140)
    for half in ("fresh", "held-out") if chosen.held_out else ("development",):
        wanted, cache = list(specs(half, chosen.slow)), chosen.cache / f"{half}.jsonl"
        if chosen.finished:
            ends = known_ends(cache)
            missing = {spec.group for spec in wanted if spec.key not in ends}
            wanted = [spec for spec in wanted if spec.group not in missing]
        else:
            ends = ended(wanted, cache, Console(stderr=True).print)
        runs = judged(wanted, ends)
        left_out = len({spec.group for spec in wanted}) - len({run.spec.group for run in runs})
        kinds = len({TASKS[run.spec.task].kind for run in runs})
        optimizers = len({run.spec.optimizer for run in runs})
        title = f"{len(runs)} {half} runs: {kinds} kinds of task, {optimizers} optimizers, {left_out} groups left out"
        console.print(table(title, runs))
        console.print(by_optimizer(runs))


if __name__ == "__main__":
    main()
