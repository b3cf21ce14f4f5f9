"""Is the verdict right? Small networks, drawn at random, are trained at ten rates each and judged after a tenth of it.

The window of a task and optimizer are the rates whose final loss is at most best + 0.1·(first − best), on data that was
not trained on; where no rate lowers the loss by a hundredth there is none, and the runs are left out.

python benchmarks/verdict.py --fit      train the development tasks; print the weights of surefoot/monitor/_judge.py
python benchmarks/verdict.py --judge    train tasks that no development task has been, and judge the verdicts on them

Every run is recorded once, in --records, with what the monitor has seen of its first tenth: a recording that was broken
off goes on there, and --recorded takes what is there, to fit weights or to judge verdicts again without training.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from _verdict_runs import Run, development, fresh, recorded
from surefoot.monitor import Verdict
from surefoot.rules import Floats

NUMBERS = (1116, 1117)
"""Of the fresh tasks: one of every kind each."""

SMALL = ("promised", "away", "straight", "uphill", "learned", "spike", "noise", "above", "falls", "warmup")
LARGE = ("promised", "uphill", "learned", "away", "kept", "straight", "falls", "warmup", "shortened")
BEST = ("promised", "uphill", "away", "straight", "shortened", "warmup", "falls")
"""Numbers that the three sums are made of."""

WRONG_SMALL, WRONG_LARGE, EDGE = 0.023, 0.02, 0.13
"""Shares of the rates inside their window that may be called too small, too large, or (with those) at the edge."""
FOLDS = 12

Sum = tuple[float, Mapping[str, float]]
"""A constant, and the weights of numbers of the evidence."""
Weights = tuple[dict[str, tuple[float, float, float]], float]
"""The weights of the three sums, and the ``large`` sum from which on a rate is at the edge."""


class Fit:
    """The weights of the three sums, on all runs and with some of the tasks left out."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs, self.seen = runs, [run.seen() for run in runs]
        self.place = np.array([run.place for run in runs])
        self.use = np.array([seen.evidence is not None and not seen.lost for seen in self.seen])
        names, number, count = np.unique([run.spec.task for run in runs], return_inverse=True, return_counts=True)
        self.fold = np.random.default_rng(0).permutation(len(names))[number] % FOLDS
        self.weight = np.mean(np.sqrt(count[number])) / np.sqrt(count[number])

    def weights(self) -> list[Weights]:
        """Those of all runs first, then those without every FOLDS-th task; the cuts are such that of the rates inside
        their window, judged without their own task, as many are called wrong as may be."""
        inside = self.use & (self.place == "inside")
        taken = float(np.mean(~self.use[self.place == "inside"]))  # lost at once, and called too large anyhow
        below, above = ((self.place == side).astype(float) for side in ("below", "above"))
        small, sums = self._solved(logistic, SMALL, below, self.use)
        cut = float(np.quantile(sums[inside], 1 - WRONG_SMALL))
        large, sums = self._solved(logistic, LARGE, above, self.use)
        over, edge = (float(x) for x in np.quantile(sums[inside], (1 - WRONG_LARGE + taken, 1 - EDGE)))
        sane = np.array([seen.sane is not None for seen in self.seen])
        goal = np.array([middle(run) for run in self.runs])
        best, _ = self._solved(robust, BEST, goal, sane, "sane")
        lowered = ([(total[0] - by, total[1]) for total in sums] for sums, by in ((small, cut), (large, over)))
        return [(joined(sums), edge - over) for sums in zip(*lowered, best, strict=True)]

    def _solved(
        self, solve: Callable[..., Floats], names: tuple[str, ...], goal: Floats, use: Any, which: str = "evidence"
    ) -> tuple[list[Sum], Floats]:
        """Sums of all runs and without each fold; the runs' own values, of the sum without their fold."""
        found = [getattr(seen, which) for seen in self.seen]
        rows = np.array([[0.0 if row is None else getattr(row, name) for name in names] for row in found])
        sums, values = [], np.zeros(len(rows))
        for fold in (None, *range(FOLDS)):
            kept = use & (self.fold != fold) if fold is not None else use
            mean, scale = rows[kept].mean(0), rows[kept].std(0) + 1e-9
            solved = solve(np.c_[(rows[kept] - mean) / scale, np.ones(kept.sum())], goal[kept], self.weight[kept])
            weights = solved[:-1] / scale
            sums.append((float(solved[-1] - weights @ mean), dict(zip(names, map(float, weights), strict=True))))
            out = self.fold == fold
            values[out] = rows[out] @ weights + sums[-1][0]
        return sums, values


def logistic(rows: Floats, goal: Floats, weight: Floats) -> Floats:
    """Logistic regression by Newton's method; all but the last coefficient are held small."""
    held = np.array([*[2.0] * (rows.shape[1] - 1), 1e-6])
    found = np.zeros(rows.shape[1])
    for _ in range(12):
        chance = 1 / (1 + np.exp(-np.clip(rows @ found, -30, 30)))
        slope = rows.T @ (weight * (goal - chance)) - held * found
        bent = (rows * (weight * chance * (1 - chance) + 1e-9)[:, None]).T @ rows + np.diag(held)
        found += np.linalg.solve(bent, slope)
    return found


def robust(rows: Floats, goal: Floats, weight: Floats) -> Floats:
    """Linear regression in which errors above 0.4 count once, not squared."""
    held, now = np.diag([*[3.0] * (rows.shape[1] - 1), 1e-6]), weight
    for _ in range(8):
        found: Floats = np.linalg.solve((rows * now[:, None]).T @ rows + held, (rows * now[:, None]).T @ goal)
        now = weight * 0.4 / np.maximum(np.abs(goal - rows @ found), 0.4)
    return found


def middle(run: Run) -> float:
    """Where the range should be, in decades from the run's rate: at the best rate, and within the window."""
    low, high, best = (math.log10(rate / run.peak) for rate in (*run.window, run.best))
    goal = min(max(best, low + 0.5), high, low + 1.5) if high - low > 1.5 else 0.5 * best + 0.25 * (low + high)
    return min(max(goal, -4.0), 3.5)


def joined(sums: Iterable[Sum]) -> dict[str, tuple[float, float, float]]:
    """Three sums as one table."""
    small, large, best = ({"constant": constant, **factors} for constant, factors in sums)
    names = dict.fromkeys([*small, *large, *best])
    return {name: (small.get(name, 0.0), large.get(name, 0.0), best.get(name, 0.0)) for name in names}


def code(weights: Weights) -> str:
    """The weights as they stand in ``_judge.py``, but for the spaces."""
    table, edge = weights
    lines = [f'    "{name}": ({", ".join(f"{number:.2f}" for number in numbers)}),' for name, numbers in table.items()]
    return "\n".join(["WEIGHTS = {", *lines, "}", f"EDGE = {edge:.2f}"])


Judged = tuple[Run, Verdict]


def is_state(*states: str) -> Callable[[Judged], bool]:
    return lambda judged: judged[1].state in states


def holds_best(judged: Judged) -> bool:
    return touches(judged, judged[0].best, judged[0].best)


def overlaps(judged: Judged) -> bool:
    return touches(judged, *judged[0].window)


def touches(judged: Judged, low: float, high: float) -> bool:
    """Whether the range has a rate from low to high, to two digits, as it is printed."""
    found = judged[1].lr_range
    return found is not None and 0.98 * found[0] <= high and low <= 1.02 * found[1]


def is_wide(judged: Judged) -> bool:
    found = judged[1].lr_range
    return found is not None and math.log10(found[1] / found[0]) > 1.5 + 1e-9


def share(judged: Iterable[Judged], holds: Callable[[Judged], bool]) -> float:
    answers = [holds(one) for one in judged]
    return sum(answers) / len(answers) if answers else math.nan


def table(title: str, judged: list[Judged]) -> Table:
    """The shares of the runs, against what is wanted of them."""
    place = {side: [one for one in judged if one[0].place == side] for side in ("below", "inside", "above")}
    lost = [one for one in place["above"] if one[0].blown_up]
    high = [one for one in place["above"] if one[0].ended_high]
    small, large, edge = is_state("too small"), is_state("too large"), is_state("too large", "at the edge")
    rows: list[tuple[str, list[Judged], str, Callable[[Judged], bool], float, float, bool]] = [
        ("below the window", place["below"], "too small", small, 0.8, 0.9, True),
        ("inside", place["inside"], "holds", is_state("holds"), 0.7, 0.85, True),
        ("inside", place["inside"], "too small or too large", is_state("too small", "too large"), 0.05, 0.05, False),
        ("above", place["above"], "too large", large, 0.5, 0.5, True),
        ("above", place["above"], "too large or at the edge", edge, 0.75, 0.9, True),
        ("blown up", lost, "too large", large, 0.95, 0.95, True),
        ("above, and worse than the start on other data", high, "too large", large, math.nan, math.nan, True),
        ("all", judged, "range holds the best rate", holds_best, 0.62, 0.8, True),
        ("all", judged, "range overlaps the window", overlaps, 0.9, 0.9, True),
        ("all", judged, "range wider than 1.5 decades", is_wide, 0.0, 0.0, False),
    ]
    shown = Table("runs", "number", "verdict", "share", "must", "met", "aim", "met", title=title)
    for name, chosen, verdict, question, must, aim, at_least in rows:
        value, goals = share(chosen, question), []
        for goal in () if math.isnan(must) else (must, aim):
            met = value >= goal if at_least else value <= goal
            goals += [f"{'≥' if at_least else '≤'} {goal:.0%}", "yes" if met else "NO"]
        shown.add_row(name, str(len(chosen)), verdict, f"{value:.1%}", *goals)
    return shown


def parts(judged: list[Judged], name: Callable[[Run], str]) -> Table:
    """The states of some parts of the runs."""
    shown = Table("part", "runs", "below: too small", "inside: holds", "wrong", "above: too large or edge", "range")
    for part in sorted({name(run) for run, _ in judged}):
        own = [one for one in judged if name(one[0]) == part]
        below, inside, above = ([one for one in own if one[0].place == side] for side in ("below", "inside", "above"))
        values = (
            share(below, is_state("too small")),
            share(inside, is_state("holds")),
            share(inside, is_state("too small", "too large")),
            share(above, is_state("too large", "at the edge")),
            share(own, holds_best),
        )
        shown.add_row(part, str(len(own)), *(f"{value:.0%}" for value in values))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fit", action="store_true", help="fit the weights on the development tasks")
    which.add_argument("--judge", action="store_true", help="judge the verdicts on fresh tasks (the default)")
    parser.add_argument("--recorded", action="store_true", help="only groups of runs that are recorded in full")
    parser.add_argument(
        "--numbers", type=int, nargs="+", default=NUMBERS, help="of fresh tasks: others are other tasks"
    )
    parser.add_argument("--records", type=Path, default=Path("out/verdict"), help="where runs are recorded")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=150)
    name, wanted = ("development", development()) if chosen.fit else ("fresh", fresh(chosen.numbers))
    runs = recorded(list(wanted), chosen.records / f"{name}.jsonl", train=not chosen.recorded)
    if not runs:
        parser.error(f"{chosen.records / name}.jsonl has no group of runs in full; leave --recorded out to train them")
    tasks, optimizers = {run.spec.task for run in runs}, {run.spec.optimizer for run in runs}
    title = f"{len(runs)} {name} runs: {len(tasks)} tasks, {len(optimizers)} optimizers"
    if chosen.fit:
        fit = Fit(runs)
        weights = fit.weights()
        print(code(weights[0]))
        judged = [(run, run.verdict(*weights[1 + fold])) for run, fold in zip(runs, fit.fold, strict=True)]
        title += ", each judged by weights that have not seen its task"
    else:
        judged = [(run, run.verdict()) for run in runs]
    console.print(table(title, judged))
    console.print(parts(judged, lambda run: run.spec.optimizer))
    if not chosen.fit:
        console.print(parts(judged, lambda run: run.spec.task))


if __name__ == "__main__":
    main()
