"""Is the verdict right? Networks are trained at rates 0.6 decades apart, and judged after 10 %, 30 % and all steps.

The window of a task and optimizer are the rates whose final loss is at most best + 0.1·(first − best), on data that was
not trained on; where no rate lowers the loss by a hundredth there is none, and the runs are left out.

python benchmarks/verdict.py              judge the recorded runs, those of untouched kinds apart
python benchmarks/verdict.py --fit        fit the weights of surefoot/monitor/_judge.py on the other kinds
python benchmarks/verdict.py --record     train all runs again (hours): every group is one file in --runs

The recorded runs are ``benchmarks/verdict.csv`` (fitted kinds, and small drawn tasks) and
``benchmarks/verdict_untouched.csv``. SUREFOOT_DATA is the folder of CIFAR-10, SUREFOOT_TEXT a file of text.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.monitor import Verdict
from surefoot.monitor._judge import EDGE, WEIGHTS, Evidence, Weights, state_of, verdict_of
from surefoot.rules import Floats

HERE = Path(__file__).parent
FITTED, UNTOUCHED = HERE / "verdict.csv", HERE / "verdict_untouched.csv"
NUMBERS = range(4000, 4002)
"""Of the small tasks that are fitted on: one of every kind each."""

SMALL = ("promised", "share", "learned", "away", "uphill", "falls")
LARGE = ("promised", "share", "learned", "away", "falls")
BEST = ("promised", "share", "learned", "away", "left", "falls", "memory")
"""The evidence that the three sums are made of."""
WRONG_SMALL, WRONG_LARGE, AT_EDGE = 0.02, 0.01, 0.16
"""Shares of the rates inside their window that may be called too small, too large, or (with those) at the edge."""

Row = dict[str, Any]


def read(file: Path) -> list[Row]:
    """The recorded rows; ``evidence`` is among them."""
    rows: list[Row] = []
    with file.open(newline="") as lines:
        for line in csv.DictReader(lines):
            row: Row = {name: value if name in _WORDS else float(value) for name, value in line.items()}
            rows.append({**row, "evidence": Evidence(*(row[name] for name in Evidence._fields))})
    return rows


_WORDS = ("task", "optimizer", "schedule", "place")


class Fit:
    """The weights of the three sums, on all kinds of tasks and without each of them."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.evidence = np.array([row["evidence"] for row in rows])
        self.place = np.array([row["place"] for row in rows])
        self.known = np.array([not row["lost"] for row in rows])
        _, task, count = np.unique([row["task"] for row in rows], return_inverse=True, return_counts=True)
        self.weight = np.mean(np.sqrt(count[task])) / np.sqrt(count[task])
        _, self.fold = np.unique([kind(row["task"]) for row in rows], return_inverse=True)

    def weights(self) -> list[tuple[Weights, float]]:
        """Those of all rows first, then those without each kind; the cuts are such that of the rates inside their
        window, judged without their own kind, as many are called wrong as may be."""
        inside = self.known & (self.place == "inside")
        below, above = ((self.place == side).astype(float) for side in ("below", "above"))
        small, sums = self._solved(logistic, SMALL, below, self.known)
        cut = float(np.quantile(sums[inside], 1 - WRONG_SMALL))
        large, sums = self._solved(logistic, LARGE, above, self.known)
        over, edge = (float(x) for x in np.quantile(sums[inside], (1 - WRONG_LARGE, 1 - AT_EDGE)))
        best, _ = self._solved(robust, BEST, np.array([*map(goal, self.rows)]), np.ones(len(self.rows), bool))
        lowered = ([{**total, "constant": total["constant"] - by} for total in sums] for sums, by in
                   ((small, cut), (large, over)))  # fmt: skip
        return [(joined(sums), edge - over) for sums in zip(*lowered, best, strict=True)]

    def _solved(
        self, solve: Callable[..., Floats], names: tuple[str, ...], goal: Floats, use: Any
    ) -> tuple[list[dict[str, float]], Floats]:
        """Sums of all rows and without each fold; the rows' own values, of the sum without their fold."""
        rows = self.evidence[:, [Evidence._fields.index(name) for name in names]]
        sums, values = [], np.zeros(len(rows))
        for fold in (None, *range(self.fold.max() + 1)):
            kept = use & (self.fold != fold) if fold is not None else use
            mean, scale = rows[kept].mean(0), rows[kept].std(0) + 1e-9
            solved = solve(np.c_[(rows[kept] - mean) / scale, np.ones(kept.sum())], goal[kept], self.weight[kept])
            weights = solved[:-1] / scale
            constant = float(solved[-1] - weights @ mean)
            sums.append({"constant": constant, **dict(zip(names, weights.tolist(), strict=True))})
            out = self.fold == fold
            values[out] = rows[out] @ weights + constant
        return sums, values


def kind(task: str) -> str:
    """The kind of a task: a network is one, and drawn tasks have a number."""
    return task.rstrip("-0123456789")


def logistic(rows: Floats, goal: Floats, weight: Floats) -> Floats:
    """Logistic regression by Newton's method; all but the last coefficient are held small."""
    held = np.array([*[2.0] * (rows.shape[1] - 1), 1e-6])
    found = np.zeros(rows.shape[1])
    for _ in range(15):
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


def goal(row: Row) -> float:
    """Decades from a run's rate to the best one, and to the middle of the window, in equal parts."""
    best, low, high = (math.log10(row[name] / row["lr"]) for name in ("best", "low", "high"))
    return min(max(0.5 * best + 0.25 * (low + high), -4.0), 3.5)


def joined(sums: Iterable[dict[str, float]]) -> Weights:
    """Three sums as one table."""
    three = tuple(sums)
    return {name: tuple(total.get(name, 0.0) for total in three) for name in dict.fromkeys(n for t in three for n in t)}


Judged = tuple[Row, Verdict]


def judged(row: Row, weights: Weights = WEIGHTS, edge: float = EDGE) -> Judged:
    """The verdict that the monitor would have made."""
    state = state_of(row["evidence"], bool(row["lost"]), weights, edge)
    return row, verdict_of(state, "", row["evidence"], row["lr"], bool(row["lost"]), weights)


def is_state(*states: str) -> Callable[[Judged], bool]:
    return lambda one: one[1].state in states


def is_near(one: Judged) -> bool:
    """Whether the named best rate is within a factor 3 of the best; of rates that are far off, the nearest one."""
    row, verdict = one
    if verdict.lr_range is None:
        return False
    named = verdict.best_lr or verdict.lr_range[verdict.direction > 0]
    return abs(math.log10(named / row["best"])) <= math.log10(3.0)


def overlaps(one: Judged) -> bool:
    span = one[1].lr_range
    return span is not None and span[0] <= one[0]["high"] * 1.02 and one[0]["low"] <= span[1] * 1.02


def share(chosen: list[Judged], holds: Callable[[Judged], bool]) -> float:
    return float(np.mean([holds(one) for one in chosen])) if chosen else math.nan


QUESTIONS: tuple[tuple[str, Callable[[Row], bool], str, Callable[[Judged], bool], float, bool], ...] = (
    ("below the window", lambda row: row["place"] == "below", "too small", is_state("too small"), 0.8, True),
    ("inside", lambda row: row["place"] == "inside", "holds", is_state("holds"), 0.8, True),
    ("inside", lambda row: row["place"] == "inside", "too small or too large", is_state("too small", "too large"), 0.05,
     False),
    ("above", lambda row: row["place"] == "above", "too large or at the edge", is_state("too large", "at the edge"),
     0.85, True),
    ("blown up", lambda row: row["place"] == "above" and row["blown_up"] > 0, "too large", is_state("too large"), 0.95,
     True),
    ("all", lambda row: True, "named best rate within a factor 3", is_near, 0.7, True),
    ("all", lambda row: True, "range meets the window", overlaps, 0.9, True),
)  # fmt: skip


def table(runs: list[Judged]) -> str:
    """The shares of the runs, against what is wanted of them."""
    after = sorted({row["after"] for row, _ in runs})
    rows = []
    for name, holds, verdict, question, goal, at_least in QUESTIONS:
        parts = [[one for one in runs if one[0]["after"] == part and holds(one[0])] for part in after]
        values = [f"{share(part, question):.0%}" for part in parts]
        rows.append([name, str(len(parts[-1])), verdict, *values, f"{'≥' if at_least else '≤'} {goal:.0%}"])
    return markdown(["runs", "number", "verdict", *(f"after {part:.0%}" for part in after), "wanted"], rows)


def by(name: str, runs: list[Judged], after: float) -> str:
    """The same in short, for parts of the runs."""
    rows, runs = [], [one for one in runs if one[0]["after"] == after]
    for part in sorted({row[name] for row, _ in runs}):
        own = [one for one in runs if one[0][name] == part]
        values = [share([one for one in own if QUESTIONS[k][1](one[0])], QUESTIONS[k][3]) for k in (0, 1, 2, 3, 5)]
        rows.append([part, str(len(own)), *("–" if math.isnan(value) else f"{value:.0%}" for value in values)])
    heads = ("below: too small", "inside: holds", "inside: wrong", "above: too large or at the edge", "best within 3×")
    return markdown([f"{name}, after {after:.0%}", "runs", *heads], rows)


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """A table as it stands in the docs."""
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def code(weights: Weights, edge: float) -> str:
    """The weights as they stand in ``_judge.py``."""
    lines = [f'    "{name}": ({", ".join(f"{number:.2f}" for number in row)}),' for name, row in weights.items()]
    return "\n".join(["WEIGHTS: Weights = {", *lines, "}  # fmt: skip", f"EDGE = {edge:.2f}"])


def behind(runs: list[Judged]) -> str:
    """The median share of the gain that rates below are behind, by the decades that the verdict is from the best."""
    found = []
    for low, high in ((0.2, 0.5), (0.5, 0.81), (0.81, 1.2), (1.2, 1.7), (1.7, 2.5), (2.5, 4.0)):
        shares = [row["behind"] for row, v in runs if v.best_lr and low <= math.log10(v.best_lr / row["lr"]) < high]
        found.append((round((low + high) / 2, 2), len(shares), round(float(np.median(shares or [math.nan])), 2)))
    return f"decades, runs, median share behind: {found}"


def record(folder: Path) -> None:
    """Train what is missing, and write the rows."""
    import torch

    import _verdict_runs as recorder
    from _verdict_networks import NETWORKS
    from _verdict_networks import UNTOUCHED as KINDS

    torch.set_num_threads(1)
    fitted = [*recorder.networks(set(NETWORKS) - set(KINDS)), *recorder.small(recorder.SMALL, NUMBERS)]
    for file, groups in ((FITTED, fitted), (UNTOUCHED, [*recorder.networks(KINDS)])):
        for group in groups:
            recorder.record(group, folder / file.stem)
        write(file, folder / file.stem)


def write(file: Path, folder: Path) -> None:
    """The rows of all groups that are recorded."""
    import _verdict_runs as recorder

    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, recorder.COLUMNS, lineterminator="\n")
        writer.writeheader()
        for group in sorted(folder.glob("*.npz")):
            for row in recorder.rows_of(group):
                writer.writerow({name: f"{x:.4g}" if isinstance(x, float) else x for name, x in row.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="judge the recorded runs (the default)")
    parser.add_argument("--fit", action="store_true", help="fit the weights, and judge every kind without its own")
    parser.add_argument("--record", action="store_true", help="train what --runs lacks, and write the rows")
    parser.add_argument("--runs", type=Path, default=Path("out/verdict"), help="where whole runs are kept")
    chosen = parser.parse_args()
    if chosen.record:
        record(chosen.runs)
    rows = read(FITTED)
    if chosen.fit:
        fit = Fit(rows)
        weights = fit.weights()
        print(code(*weights[0]))
        rows_and_folds = zip(rows, fit.fold, strict=True)
        runs = [judged(row, *weights[1 + fold]) for row, fold in rows_and_folds]
        print(f"\neach kind judged by weights that have not seen it\n\n{table(runs)}\n\n{behind(runs)}")
        return
    untouched = [judged(row) for row in read(UNTOUCHED)]
    print(f"kinds that nothing was fitted on\n\n{table(untouched)}\n\n{by('task', untouched, 0.1)}\n")
    runs = [judged(row) for row in rows]
    print(f"kinds that the weights were fitted on\n\n{table(runs)}\n\n{by('optimizer', runs, 0.1)}")


if __name__ == "__main__":
    main()
