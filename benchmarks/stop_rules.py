"""What the stop rules do on the sweeps of the paper: which SGD runs end, when, and which by mistake.

    python benchmarks/stop_rules.py [--studies out/studies]

A run is unstable if its final loss is above the initial one, and good if its normalised regret, (loss − best)/(initial
− best) with the best mean loss of the method's rates, is at most 10 %. Steps are given as a share of the run; one that
a rule does not end counts as 100 %. The rules' defaults were chosen on the first four problems; v2 and ResNet20 were
not looked at. ``--studies`` is a folder with the runs of ``surefoot reproduce cifar10 --preset small``.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from surefoot.monitor import Dead, DeltaExplosion, History, NonFinite, PartialBound, StopRule, first_stop
from surefoot.paper import experiments
from surefoot.study import Result

PROBLEMS = ("linear-regression", "v1", "vowel", "dna", "v2")
EARLY = 0.05


@dataclass
class Run:
    """One run of a study, and whether it was any good."""

    history: History
    lr: float
    unstable: bool
    good: bool


def sweeps(studies: Path | None) -> Iterator[tuple[str, Result]]:
    """The results by the problem's name."""
    for name in PROBLEMS:
        yield name, experiments.run(name, methods=["sgd"])
    if studies is not None:
        yield "ResNet20", Result.load(studies / "cifar10-small.db", study=-2)  # the last one has a warmup


def runs_of(result: Result, algorithm: str = "sgd") -> tuple[list[Run], float]:
    """All runs of a method, and the smallest of its finished bounds."""
    data = result.dataset.sel(algorithm=algorithm)
    final = data.last_loss.values
    best = float(final.mean(axis=1).min())
    found = []
    for position, lr in enumerate(data.lr.values.tolist()):
        for seed in range(final.shape[1]):
            run = data.isel(lr=position, seed=seed)
            regret = (final[position, seed] - best) / (result.initial_loss - best)
            history = History(
                run.loss.values,
                run.grad_sq.values,
                run.delta.values,
                result.rates[position],
                result.settings["distance"],
            )
            found.append(Run(history, lr, not final[position, seed] <= result.initial_loss, bool(regret <= 0.1)))
    return found, float(result.bound().total.sel(algorithm=algorithm).min())


def ended(rules: list[StopRule], run: Run) -> float | None:
    """Share of the steps after which the first of the rules ends a run."""
    stop = first_stop(rules, run.history)
    return None if stop is None else (stop.step + 1) / len(run.history.rates)


def row(name: str, rules: list[StopRule], runs: list[Run]) -> list[str]:
    unstable = [ended(rules, run) for run in runs if run.unstable]
    good = [ended(rules, run) for run in runs if run.good]
    median = statistics.median(1.0 if share is None else share for share in unstable) if unstable else None
    caught = sum(share is not None for share in unstable)
    return [
        name,
        f"{caught} of {len(unstable)}",
        "–" if median is None else f"{median:.1%}",
        "–" if median is None else "yes" if median <= EARLY else "NO",
        mistakes(good),
    ]


def mistakes(shares: list[float | None]) -> str:
    """How many good runs were ended, and the earliest share of the steps at which that happened."""
    wrong = [share for share in shares if share is not None]
    return f"{len(wrong)} of {len(shares)}" + (f", first at {min(wrong):.0%}" if wrong else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=Path, help="folder that keeps the runs of cifar10, such as out/studies")
    arguments = parser.parse_args()
    console = Console(width=130)
    table = Table("problem", "rule", "unstable runs ended", "median step", f"≤ {EARLY:.0%}", "good runs ended")
    pooled: dict[str, list[tuple[list[StopRule], list[Run]]]] = {}
    for problem, result in sweeps(arguments.studies):
        runs, best = runs_of(result)
        rules: dict[str, list[StopRule]] = {
            "PartialBound, slack 3": [PartialBound(best)],
            "PartialBound, slack 1": [PartialBound(best, slack=1.0)],
            "DeltaExplosion": [DeltaExplosion()],
            "Dead": [Dead()],
            "NonFinite": [NonFinite()],
            "all, slack 3": [PartialBound(best), DeltaExplosion(), Dead(), NonFinite()],
        }
        for name, chosen in rules.items():
            table.add_row(problem, *row(name, chosen, runs))
            pooled.setdefault(name, []).append((chosen, runs))
        table.add_section()
    for name, parts in pooled.items():
        shares = [ended(chosen, run) for chosen, runs in parts for run in runs if run.unstable]
        good = [ended(chosen, run) for chosen, runs in parts for run in runs if run.good]
        median = statistics.median(1.0 if share is None else share for share in shares)
        caught = sum(share is not None for share in shares)
        met = "yes" if median <= EARLY else "NO"
        table.add_row("all", name, f"{caught} of {len(shares)}", f"{median:.1%}", met, mistakes(good))
    console.print("SGD on the sweeps of the paper")
    console.print(table)


if __name__ == "__main__":
    main()
