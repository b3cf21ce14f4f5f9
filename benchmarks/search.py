"""Learning-rate search against a grid and Optuna's pruners: regret, cost, and how well confidence is calibrated.

    python benchmarks/search.py [--cases development|unseen|small-batches|FOLDER] [--csv FILE] [--only NAME]

Every run of every grid was trained once; each search replays from the records, so all of them see the same numbers, and
a cost is a count of steps. Regret: (loss(chosen) − best)/(initial loss − best), where the loss is that over the
training data at the end and the best is the grid's. Cost: steps relative to the full grid; the whole run of the chosen
rate is part of it. Pruners see smoothed losses, means over the last third of the steps.

``development`` and ``unseen`` (default: both) are halves of 80 grids of drawn tasks, which ``_search_tasks.py`` has
recorded in this folder; nothing was changed after a look at the second half. ``small-batches`` are classifications
in batches of one or two, recorded within seconds; a folder of ``.npz`` files, one per grid, can be given as well.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optuna

from _search_grids import Case, Recorded, drawn, small_batches
from surefoot.search import tune

PARTS = ("development", "unseen")
SMALL = re.compile("batches of [12],")
MUST = {"≤ 1 %": 0.80, "≤ 5 %": 0.92, "worst": 0.15, "cost": 0.20}

# ---- the searches: each takes a case, and returns the chosen place and its steps

_SURE: dict[str, float] = {}
"""Our confidence, by case."""


def ours(case: Case) -> tuple[int, int]:
    found = tune(Recorded(case), case.lrs, case.steps)
    _SURE[case.name] = found.confidence
    return int(np.argmin(abs(case.lrs - found.lr))), found.steps


def grid(case: Case) -> tuple[int, int]:
    """The whole grid, read through its batch losses: what cannot be told from them costs even here."""
    return int(np.argmin(case.losses[:, -max(1, case.steps // 10) :].mean(axis=1))), case.losses.size


def all_to_six(case: Case) -> tuple[int, int]:
    """All rates to 6 % of the steps, then the best of them to the end."""
    mark = math.ceil(0.06 * case.steps)
    bad = ~np.isfinite(case.losses[:, :mark])
    taken = int(np.where(bad.any(axis=1), bad.argmax(axis=1) + 1, mark).sum())
    best = int(np.argmin(case.losses[:, mark - max(1, mark // 3) : mark].mean(axis=1)))
    return best, taken + case.steps - mark


def halving(case: Case) -> tuple[int, int]:
    """Successive halving of all rates at once: at T/27, T/9 and T/3 the better third goes on."""
    left, taken, done = list(range(len(case.lrs))), 0, 0
    for power in (3, 2, 1, 0):
        mark = math.ceil(case.steps / 3**power)
        bad = [~np.isfinite(case.losses[i, done:mark]) for i in left]
        taken += sum(int(one.argmax()) + 1 if one.any() else mark - done for one in bad)
        left = [i for i, one in zip(left, bad, strict=True) if not one.any()]
        if power:
            window = slice(mark - max(1, round(mark / 3)), mark)
            left = sorted(left, key=lambda i: case.losses[i, window].mean())[: math.ceil(len(left) / 3)]
        done = mark
    return min(left, key=lambda i: case.final[i], default=0), taken


def pruned(case: Case, make: Callable[[], optuna.pruners.BasePruner], reports: int) -> tuple[int, int]:
    """A grid with one of Optuna's pruners; ``reports`` are spread evenly over a run."""
    marks = sorted({math.ceil(case.steps * (i + 1) / reports) for i in range(reports)})
    taken = 0

    def objective(trial: optuna.Trial) -> float:
        nonlocal taken
        place = trial.suggest_categorical("place", list(range(len(case.lrs))))
        done = 0
        for report, mark in enumerate(marks, start=1):
            bad = ~np.isfinite(case.losses[place, done:mark])
            if bad.any():
                taken += int(bad.argmax()) + 1
                raise optuna.TrialPruned
            taken += mark - done
            done = mark
            if done == case.steps:
                break
            trial.report(float(case.losses[place, mark - max(1, round(mark / 3)) : mark].mean()), report)
            if trial.should_prune():
                raise optuna.TrialPruned
        return float(case.final[place])

    sampler = optuna.samplers.GridSampler({"place": list(range(len(case.lrs)))}, seed=0)
    # Hyperband takes its brackets from the study's name.
    study = optuna.create_study(study_name=case.name, sampler=sampler, pruner=make())
    study.optimize(objective, n_trials=len(case.lrs))
    done = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    best = min(done, key=lambda trial: trial.value, default=None)
    return (best.params["place"] if best else 0), taken


SEARCHES: dict[str, Callable[[Case], tuple[int, int]]] = {
    "surefoot": ours,
    "Optuna median": lambda c: pruned(c, lambda: optuna.pruners.MedianPruner(n_startup_trials=3), 27),
    "Optuna halving": lambda c: pruned(c, lambda: optuna.pruners.SuccessiveHalvingPruner(1, 3), 27),
    "Optuna Hyperband": lambda c: pruned(c, lambda: optuna.pruners.HyperbandPruner(1, 27, 3), 27),
    "successive halving": halving,
    "all to 6 %": all_to_six,
    "full grid, batch losses": grid,
}


class Score(NamedTuple):
    """What a search has chosen in a case."""

    case: Case
    regret: float
    cost: float


def evaluate(cases: list[Case], names: list[str]) -> dict[str, list[Score]]:
    scores: dict[str, list[Score]] = {name: [] for name in names}
    for case in cases:
        for name in names:
            choice, steps = SEARCHES[name](case)
            scores[name].append(Score(case, case.regret(choice), steps / case.losses.size))
    return scores


def summary(scores: list[Score]) -> dict[str, float]:
    regrets, costs = (np.array(column) for column in list(zip(*scores, strict=True))[1:])
    return {
        "≤ 1 %": float(np.mean(regrets <= 0.01)),
        "≤ 5 %": float(np.mean(regrets <= 0.05)),
        "worst": float(regrets.max()),
        "cost": float(np.median(costs)),
        "mean cost": float(costs.mean()),
    }


def show(title: str, scores: dict[str, list[Score]]) -> None:
    """One line per search, then what was asked of ours."""
    print(f"\n{title}\n{'search':26}{'regret ≤ 1 %':>13}{'≤ 5 %':>8}{'worst':>9}{'median cost':>13}{'mean':>8}")
    for name, rows in scores.items():
        if not rows:
            continue
        row = summary(rows)
        worst = f"{row['worst']:.1%}" if row["worst"] < 100 else ">10000%"
        print(
            f"{name:26}{row['≤ 1 %']:>13.0%}{row['≤ 5 %']:>8.0%}{worst:>9}{row['cost']:>13.1%}{row['mean cost']:>8.1%}"
        )
    found, parts = summary(scores["surefoot"]), []
    for key, limit in MUST.items():
        is_met = found[key] <= limit if key in ("cost", "worst") else found[key] >= limit
        parts.append(f"{key} {found[key]:.1%} ({limit:.0%}: {'met' if is_met else 'missed'})")
    print(f"asked of surefoot: {', '.join(parts)}")
    sure = [score.regret for score in scores["surefoot"] if _SURE[score.case.name] >= 0.5]
    print(f"largest regret of the {len(sure)} answers with a confidence of 0.5 or more: {max(sure, default=0):.1%}")


def show_confidence(title: str, scores: list[Score]) -> None:
    """How often an answer of some confidence was within 5 % regret."""
    pairs = np.array([(_SURE[score.case.name], score.regret <= 0.05) for score in scores])
    print(f"\nconfidence, {title}: {pairs[:, 0].mean():.0%} on average, {pairs[:, 1].mean():.0%} within 5 % regret")
    for low, high in itertools.pairwise((0.0, 0.5, 0.85, 0.95, 1.01)):
        here = pairs[(pairs[:, 0] >= low) & (pairs[:, 0] < high)]
        if len(here):
            mean, share = here.mean(axis=0)
            print(f"  {low:.2f} to {min(high, 1):.2f}: {len(here):3} answers, {mean:.0%} sure, {share:.0%} within 5 %")


def show_misses(scores: list[Score]) -> None:
    """Cases in which ours is off by more than 1 %."""
    print("\nCases with a regret above 1 %:")
    for case, regret, cost in scores:
        if regret > 0.01:
            print(f"  {case.name}: regret {regret:.1%}, cost {cost:.1%}, confidence {_SURE[case.name]:.2f}")


def write(path: Path, title: str, scores: list[Score]) -> None:
    """Add one line per case to a CSV file."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        lines = csv.writer(file)
        if is_new:
            lines.writerow(["part", "case", "rates", "steps", "regret", "cost", "confidence"])
        for case, *numbers in scores:
            numbers = [f"{number:.4f}" for number in (*numbers, _SURE[case.name])]
            lines.writerow([title, case.name, len(case.lrs), case.steps, *numbers])


def cases_of(name: str) -> list[Case]:
    """The cases by the name that the command takes."""
    if name in PARTS:
        return drawn(name)
    if name == "small-batches":
        return small_batches()
    return [Case.of(str(np.load(path)["name"]), np.load(path)) for path in sorted(Path(name).glob("*.npz"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", action="append", help="development, unseen, small-batches, or a folder of grids")
    parser.add_argument("--csv", type=Path, help="a file that the regrets, costs and confidences are added to")
    parser.add_argument("--only", default="", help="searches whose name has this in it, and ours")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    names = [name for name in SEARCHES if arguments.only in name or name == "surefoot"]
    for name in arguments.cases or PARTS:
        cases, title = cases_of(name), Path(name).name
        small = [case for case in cases if name in PARTS and SMALL.search(case.name)]
        scores = evaluate(cases, names)
        show(f"{title}: {len(cases)} grids", scores)
        if small:
            of_small = {key: [score for score in rows if score.case in small] for key, rows in scores.items()}
            show(f"of these, batches of one or two: {len(small)} grids", of_small)
        show_misses(scores["surefoot"])
        show_confidence(title, scores["surefoot"])
        if arguments.csv is not None:
            write(arguments.csv, title, scores["surefoot"])


if __name__ == "__main__":
    main()
