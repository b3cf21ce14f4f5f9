"""What the stop rules do on the convex sweeps of the paper: which SGD runs end, when, and which by mistake.

    python benchmarks/stop_rules.py

Five seeds per problem and rate. A run is unstable if its final loss is above the initial one, and good if its
normalised regret, (loss − best)/(initial − best) with the best mean loss of the method's rates, is at most 10 %. Steps
are given as a share of the run; one that a rule does not end counts as 100 %. The rules' defaults were chosen on the
first four problems; v2 was not looked at.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

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


def row(problem: str, rule: str, parts: list[tuple[list[StopRule], list[Run]]]) -> str:
    """A row of the table: what the rules do to the runs of one or more problems."""
    unstable = [ended(rules, run) for rules, runs in parts for run in runs if run.unstable]
    good = [ended(rules, run) for rules, runs in parts for run in runs if run.good]
    median = statistics.median(1.0 if share is None else share for share in unstable)
    caught = sum(share is not None for share in unstable)
    met = "yes" if median <= EARLY else "NO"
    return f"| {problem} | {rule} | {caught} of {len(unstable)} | {median:.1%} | {met} | {mistakes(good)} |"


def mistakes(shares: list[float | None]) -> str:
    """How many good runs were ended, and the earliest share of the steps at which that happened."""
    wrong = [share for share in shares if share is not None]
    return f"{len(wrong)} of {len(shares)}" + (f", first at {min(wrong):.0%}" if wrong else "")


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"| problem | rule | unstable runs ended | median step | ≤ {EARLY:.0%} | good runs ended |")
    print("|---|---|---|---|---|---|")
    pooled: dict[str, list[tuple[list[StopRule], list[Run]]]] = {}
    for problem in PROBLEMS:
        runs, best = runs_of(experiments.run(problem, methods=["sgd"], seeds=5))
        rules: dict[str, list[StopRule]] = {
            "PartialBound, slack 3": [PartialBound(best)],
            "PartialBound, slack 1": [PartialBound(best, slack=1.0)],
            "DeltaExplosion": [DeltaExplosion()],
            "Dead": [Dead()],
            "NonFinite": [NonFinite()],
            "together, slack 3": [PartialBound(best), DeltaExplosion(), Dead(), NonFinite()],
        }
        for name, chosen in rules.items():
            pooled.setdefault(name, []).append((chosen, runs))
        print(row(problem, "together, slack 3", pooled["together, slack 3"][-1:]))
    for name, parts in pooled.items():
        print(row("all", name, parts))


if __name__ == "__main__":
    main()
