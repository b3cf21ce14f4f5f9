"""Learning-rate search against a grid, Optuna's pruners, halving and the range test: regret and cost.

    python benchmarks/search.py [--cases tasks|small-batches|FOLDER] [--csv FILE] [--cache DIR] [--recorded]
                                [--only NAME]

Every run of every grid is trained once and recorded; then each search replays from the records, so all of them see the
same numbers, and a cost is a count of steps. Normalised regret: (loss(chosen) − best)/(initial loss − best), where the
loss is that over the training data at the end and the best is the grid's. Cost: steps relative to the full grid; the
whole run of the chosen rate is part of it. Pruners see smoothed losses, means over the last third of the steps.

``--cases tasks`` (default) has grids of small networks (``_search_tasks.py``), kept in ``--cache`` and recorded where
they are missing: those that the search was built on, and those that nobody looked at before the final table.
``--cases small-batches`` are classifications in batches of one or two, recorded within seconds; a folder of ``.npz``
files in the same format can be given as well. Of both, every second grid was for development.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch

from _search_grids import RANGE_STEPS, Case, Recorded, small_batches
from surefoot.search import tune

MUST = {"≤ 1 %": 0.80, "≤ 5 %": 0.92, "worst": 0.15, "cost": 0.20}
AIM = {"≤ 1 %": 0.85, "≤ 5 %": 0.94, "worst": 0.12, "cost": 0.14}
PRUNER_SEEDS = 1
"""Orders in which a pruner meets the rates."""
CACHE = Path.home() / ".cache" / "surefoot" / "search-grids"


# ---- the searches: each takes a case and a seed, and returns the chosen place and its steps


_SURE: dict[tuple[str, str], float] = {}
"""Our confidence, by problem and method."""


def ours(case: Case, seed: int, **options: Any) -> tuple[int, int]:
    found = tune(Recorded(case), case.lrs, case.steps, **options)
    if found.confidence is not None:
        _SURE[case.problem, case.method] = found.confidence
    return int(np.argmin(abs(case.lrs - found.lr))), found.steps


def grid(case: Case, seed: int) -> tuple[int, int]:
    """The whole grid, read through its batch losses: what cannot be told from them costs even here."""
    return int(np.argmin(case.losses[:, -max(1, case.steps // 10) :].mean(axis=1))), case.losses.size


def all_to_six(case: Case, seed: int) -> tuple[int, int]:
    """All rates to 6 % of the steps, then the best of them to the end."""
    mark = math.ceil(0.06 * case.steps)
    bad = ~np.isfinite(case.losses[:, :mark])
    taken = int(np.where(bad.any(axis=1), bad.argmax(axis=1) + 1, mark).sum())
    best = int(np.argmin(case.losses[:, mark - max(1, mark // 3) : mark].mean(axis=1)))
    return best, taken + case.steps - mark


def halving(case: Case, seed: int) -> tuple[int, int]:
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


def pruned(case: Case, seed: int, make: Callable[[], optuna.pruners.BasePruner], reports: int) -> tuple[int, int]:
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

    sampler = optuna.samplers.GridSampler({"place": list(range(len(case.lrs)))}, seed=seed)
    # Hyperband takes its brackets from the study's name.
    study = optuna.create_study(study_name=f"{case.problem} {case.method} {seed}", sampler=sampler, pruner=make())
    study.optimize(objective, n_trials=len(case.lrs))
    done = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    best = min(done, key=lambda trial: trial.value, default=None)
    return (best.params["place"] if best else 0), taken


def range_test(case: Case, seed: int) -> tuple[int, int]:
    """Lightning's finder: rates grow over 100 steps, the loss is smoothed (0.98), the steepest descent is chosen.

    It stops where the smoothed loss is four times the best; the cost includes one whole run with the chosen rate.
    """
    assert case.range_test is not None
    rates, losses = case.range_test()
    average, smooth, best = 0.0, [], math.inf
    for step, loss in enumerate(losses, start=1):
        average = 0.98 * average + 0.02 * loss
        value = average / (1 - 0.98**step)
        if not math.isfinite(value) or (step > 1 and value > 4.0 * best):
            break
        best = min(best, value)
        smooth.append(value)
    seen = np.array(smooth[10:-1] if len(smooth) > 13 else smooth)
    begin = 10 if len(smooth) > 13 else 0
    place = begin + (int(np.argmin(np.gradient(seen))) if len(seen) > 1 else 0)
    chosen = int(np.argmin(abs(np.log(case.lrs / rates[place]))))
    return chosen, min(len(smooth) + 1, RANGE_STEPS) + case.steps


SEARCHES: dict[str, tuple[Callable[..., tuple[int, int]], int]] = {
    "surefoot": (ours, 1),
    "Optuna median": (
        lambda c, s: pruned(c, s, lambda: optuna.pruners.MedianPruner(n_startup_trials=3), 27),
        PRUNER_SEEDS,
    ),
    "Optuna halving": (
        lambda c, s: pruned(c, s, lambda: optuna.pruners.SuccessiveHalvingPruner(1, 3), 27),
        PRUNER_SEEDS,
    ),
    "Optuna Hyperband": (lambda c, s: pruned(c, s, lambda: optuna.pruners.HyperbandPruner(1, 27, 3), 27), PRUNER_SEEDS),
    "successive halving": (halving, 1),
    "all to 6 %": (all_to_six, 1),
    "LR range test": (range_test, 1),
    "full grid, batch losses": (grid, 1),
}


@dataclass(frozen=True)
class Score:
    """Means over the seeds of a search."""

    problem: str
    method: str
    regrets: tuple[float, ...]
    costs: tuple[float, ...]


def evaluate(cases: list[Case], names: list[str]) -> dict[str, list[Score]]:
    scores: dict[str, list[Score]] = {name: [] for name in names}
    for case in cases:
        for name in names:
            search, seeds = SEARCHES[name]
            if search is range_test and case.range_test is None:
                continue
            answers = [search(case, seed) for seed in range(seeds)]
            regrets = tuple(case.regret(choice) for choice, _ in answers)
            costs = tuple(steps / case.losses.size for _, steps in answers)
            scores[name].append(Score(case.problem, case.method, regrets, costs))
    return scores


def summary(scores: list[Score]) -> dict[str, float]:
    regrets = np.concatenate([score.regrets for score in scores])
    costs = np.concatenate([score.costs for score in scores])
    return {
        "≤ 1 %": float(np.mean(regrets <= 0.01)),
        "≤ 5 %": float(np.mean(regrets <= 0.05)),
        "worst": float(regrets.max()),
        "cost": float(np.median(costs)),
        "mean cost": float(costs.mean()),
    }


def show(title: str, scores: dict[str, list[Score]]) -> None:
    """One line a search, then what was asked of ours."""
    print(f"\n{title}\n{'search':26}{'regret ≤ 1 %':>13}{'≤ 5 %':>8}{'worst':>9}{'median cost':>13}{'mean':>8}")
    for name, rows in scores.items():
        if not rows:
            continue
        row = summary(rows)
        worst = f"{row['worst']:.1%}" if row["worst"] < 100 else ">10000%"
        print(
            f"{name:26}{row['≤ 1 %']:>13.0%}{row['≤ 5 %']:>8.0%}{worst:>9}{row['cost']:>13.1%}{row['mean cost']:>8.1%}"
        )
    for goal, limits in (("must", MUST), ("aim", AIM)):
        found, parts = summary(scores["surefoot"]), []
        for key, limit in limits.items():
            small = key in ("cost", "worst")
            met = found[key] <= limit if small else found[key] >= limit
            parts.append(f"{key} {found[key]:.1%} ({'≤' if small else '≥'} {limit:.0%}: {'met' if met else 'missed'})")
        print(f"{goal:5} {', '.join(parts)}")


def show_confidence(title: str, scores: list[Score]) -> None:
    """How often an answer of some confidence was within 5 % regret."""
    sure = [_SURE[score.problem, score.method] for score in scores]
    right = [score.regrets[0] <= 0.05 for score in scores]
    print(f"\nconfidence, {title}: {np.mean(sure):.0%} on average, {np.mean(right):.0%} within 5 % regret")
    for low, high in ((0.0, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 0.95), (0.95, 1.01)):
        here = [(value, ok) for value, ok in zip(sure, right, strict=True) if low <= value < high]
        if here:
            mean, share = np.mean(here, axis=0)
            print(f"  {low:.2f} to {min(high, 1):.2f}: {len(here):3} answers, {mean:.0%} sure, {share:.0%} within 5 %")


def show_misses(scores: list[Score]) -> None:
    """Cases in which ours is off by more than 1 %."""
    print("\nCases where our loss search has a regret above 1 %:")
    for score in scores:
        if score.regrets[0] > 0.01:
            print(f"  {score.problem}, {score.method}: regret {score.regrets[0]:.1%}, cost {score.costs[0]:.1%}")


def write(path: Path, title: str, cases: list[Case], scores: list[Score]) -> None:
    """Add one line per case to a CSV file."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        lines = csv.writer(file)
        if is_new:
            lines.writerow(["part", "case", "rates", "steps", "regret", "cost", "confidence"])
        for case, score in zip(cases, scores, strict=True):
            numbers = score.regrets[0], score.costs[0], _SURE[score.problem, score.method]
            lines.writerow([title, case.problem, len(case.lrs), case.steps, *(f"{number:.4f}" for number in numbers)])


def tasks(arguments: argparse.Namespace, names: list[str]) -> None:
    """Grids of small networks: development, unseen, and unseen of kinds that development does not have."""
    from _search_tasks import DEVELOPMENT, LOOKED_AT, NEW_KINDS, UNSEEN, grids

    sets = {"development": DEVELOPMENT, "unseen": UNSEEN}
    for title, recipes in {arguments.part: sets[arguments.part]}.items() if arguments.part else sets.items():
        known = [recipe for recipe in recipes if (arguments.cache / recipe.file).exists() or not arguments.recorded]
        cases = list(grids(known, arguments.cache))
        scores = evaluate(cases, names if title == "unseen" else ["surefoot", "full grid, batch losses"])
        show(f"{title}: {len(cases)} grids", scores)
        if title == "unseen":
            first = [place for place, recipe in enumerate(known) if recipe.name not in LOOKED_AT]
            new = [place for place, case in enumerate(cases) if case.kind in NEW_KINDS]
            parts = {
                "looked at after the last change only": first,
                f"kinds that nothing was built on ({', '.join(NEW_KINDS)})": new,
            }
            for words, places in parts.items():
                apart = {name: [rows[place] for place in places] for name, rows in scores.items()}
                show(f"of these, {words}: {len(places)} grids", apart)
        show_misses(scores["surefoot"])
        show_confidence(title, scores["surefoot"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="tasks", help="tasks, small-batches, or a folder of recorded grids")
    parser.add_argument("--csv", type=Path, help="a file that the regrets, costs and confidences are added to")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where grids of tasks are kept")
    parser.add_argument("--part", choices=("development", "unseen"), help="of the tasks one part only")
    parser.add_argument("--recorded", action="store_true", help="train nothing: only what the cache has")
    parser.add_argument("--only", default="", help="searches whose name has this in it, and ours")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    torch.set_num_threads(1)
    begin = time.perf_counter()
    names = [name for name in SEARCHES if arguments.only in name or name == "surefoot"]
    if arguments.cases == "tasks":
        tasks(arguments, names)
    else:
        files = sorted(Path(arguments.cases).glob("*.npz"))
        cases = small_batches() if arguments.cases == "small-batches" else [Case.read(path) for path in files]
        # Every second one was for development; nothing was changed after a look at the others.
        for title, part in (("development", cases[::2]), ("looked at once", cases[1::2])):
            scores = evaluate(part, names)
            show(f"{title}: {len(part)} grids", scores)
            show_misses(scores["surefoot"])
            show_confidence(title, scores["surefoot"])
            if arguments.csv is not None:
                write(arguments.csv, f"{Path(arguments.cases).name}, {title}", part, scores["surefoot"])
    print(f"\n{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
