"""Learning-rate search against a grid and Optuna's pruners: regret, cost, and how well confidence is calibrated.

    python benchmarks/search.py [--cases development|unseen|small-batches|FOLDER] [--only NAME] [--recorded]

Every run of every grid was trained once; each search replays from the records, so all of them see the same numbers, and
a cost is a count of steps. Regret: (loss(chosen) − best)/(initial loss − best), where the loss is that over the
training data at the end and the best is the grid's. Cost: steps relative to the full grid; the whole run of the chosen
rate is part of it. Pruners see smoothed losses, means over the last third of the steps.

``development`` and ``unseen`` (default: both) are halves of 80 grids of drawn tasks, which ``_search_tasks.py`` has
recorded in this folder; nothing was changed after a look at the second half. ``small-batches`` are classifications
in batches of one or two, trained within seconds; a folder of ``.npz`` files, one per grid, can be given as well. Of
these, every second grid was used to build the search. What was searched is in ``search.csv``, a row for each search and
grid, and printed from there by ``--recorded``.
"""

from __future__ import annotations

import argparse
import csv
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optuna

from _search_grids import Case, Recorded, drawn, small_batches
from surefoot.search import tune

PARTS = ("development", "unseen")
RECORDED = Path(__file__).with_suffix(".csv")
MUST = (0.80, 0.92, 0.15, 0.20)
"""What is asked of regrets of at most 1 % and 5 %, of the worst, and of the median cost."""

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
    """What a search has chosen in a case: a row of the file."""

    part: str
    half: str
    """``development``, or ``looked at before``: the cases between those that were used to build the search."""
    case: str
    search: str
    regret: float
    cost: float
    confidence: float
    """Ours; NaN for the others."""


def evaluate(part: str, cases: list[Case], names: list[str]) -> list[Score]:
    scores = []
    for number, case in enumerate(cases):
        half = "looked at before" if number % 2 and part not in PARTS else "development"
        for name in names:
            choice, steps = SEARCHES[name](case)
            sure = _SURE[case.name] if name == "surefoot" else math.nan
            scores.append(Score(part, half, case.name, name, case.regret(choice), steps / case.losses.size, sure))
    return scores


def record(scores: list[Score]) -> None:
    """Put the rows of parts in place of those that the file has of them."""
    parts = {score.part for score in scores}
    kept = [score for score in recorded() if score.part not in parts]
    with RECORDED.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(Score._fields)
        for *labels, regret, cost, sure in kept + scores:
            lines.writerow((*labels, f"{regret:.4f}", f"{cost:.4f}", "" if math.isnan(sure) else f"{sure:.4f}"))


def recorded() -> list[Score]:
    if not RECORDED.exists():
        return []
    with RECORDED.open(newline="") as file:
        return [
            Score(*labels, float(regret), float(cost), float(sure or "nan"))
            for *labels, regret, cost, sure in list(csv.reader(file))[1:]
        ]


def show(title: str, scores: list[Score]) -> None:
    """One line per search, then what was asked of ours."""
    print(f"\n{title}\n\n| search | regret ≤ 1 % | ≤ 5 % | worst | median cost |\n|---|---|---|---|---|")
    for name in dict.fromkeys(score.search for score in scores):
        low, middle, worst, cost = summary([score for score in scores if score.search == name])
        print(f"| {name} | {low:.0%} | {middle:.0%} | {worst:.1%} | {cost:.1%} |")
    found = summary([score for score in scores if score.search == "surefoot"])
    is_met = [found[0] >= MUST[0], found[1] >= MUST[1], found[2] <= MUST[2], found[3] <= MUST[3]]
    asked = [f"{limit:.0%}: {'met' if met else 'missed'}" for limit, met in zip(MUST, is_met, strict=True)]
    print(f"\nasked of surefoot, column by column: {', '.join(asked)}")


def summary(scores: list[Score]) -> tuple[float, float, float, float]:
    """How many regrets are at most 1 % and 5 %, the worst, and the median cost."""
    regrets = np.array([score.regret for score in scores])
    cost = float(np.median([score.cost for score in scores]))
    return float(np.mean(regrets <= 0.01)), float(np.mean(regrets <= 0.05)), float(regrets.max()), cost


def show_confidence(scores: list[Score]) -> None:
    """How often an answer of some confidence was within 5 % regret."""
    print("\n| confidence | answers | mean | within 5 % regret | worst |\n|---|---|---|---|---|")
    for label, low, high in (("below 0.5", 0.0, 0.5), ("0.5 to 0.85", 0.5, 0.85), ("0.85 and more", 0.85, 1.01)):
        here = [score for score in scores if low <= score.confidence < high]
        if here:
            mean = np.mean([score.confidence for score in here])
            _, middle, worst, _ = summary(here)
            print(f"| {label} | {len(here)} | {mean:.2f} | {middle:.0%} | {worst:.1%} |")


def cases_of(name: str) -> list[Case]:
    """The cases by the name that the command takes."""
    if name in PARTS:
        return drawn(name)
    if name == "small-batches":
        return small_batches()
    return [Case.of(str(np.load(path)["name"]), np.load(path)) for path in sorted(Path(name).glob("*.npz"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", action="append", help="development, unseen, small-batches, or a folder of grids")
    parser.add_argument("--recorded", action="store_true", help="search nothing, print what is recorded")
    parser.add_argument("--only", default="", help="searches whose name has this in it, and ours; not recorded")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    names = [name for name in SEARCHES if arguments.only in name or name == "surefoot"]
    scores: list[Score] = []
    for name in () if arguments.recorded else arguments.cases or PARTS:
        scores += evaluate(Path(name).name, cases_of(name), names)
    if scores and not arguments.only:
        record(scores)
    scores = scores or recorded()
    for part in dict.fromkeys(score.part for score in scores):
        here = [score for score in scores if score.part == part]
        show(f"{part}: {len({score.case for score in here})} grids", here)
        for half in dict.fromkeys(score.half for score in here):
            some = [score for score in here if score.half == half and score.search == "surefoot"]
            if 0 < len(some) < len({score.case for score in here}):
                show(f"{part}, {half}: {len(some)} grids", some)
        for score in here:
            if score.search == "surefoot" and score.regret > 0.01:
                print(f"{score.case}: regret {score.regret:.1%}, confidence {score.confidence:.2f}")
    print("\nConfidence on all of these but the drawn tasks")
    show_confidence([score for score in scores if score.search == "surefoot" and score.part not in PARTS])


if __name__ == "__main__":
    main()
