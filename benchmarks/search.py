"""Learning-rate search against a grid, Optuna's pruners and the range test: regret and cost.

    python benchmarks/search.py [--quick] [--order N]

Every run of every grid is trained once and recorded; then each search replays from the records, so all of them see the
same numbers, and a cost is a count of steps. Normalised regret: (loss(chosen) − best)/(initial loss − best), where the
loss is that over all training data at the end and the best is the grid's. Cost: steps relative to the full grid; the
whole run of the chosen rate is part of it. Pruners see the same smoothed loss as our race, mean batch losses over the
last third of the steps. ``--quick`` leaves out the networks, ``--order`` takes another data order.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import torch

from _search_grids import COUNT, MODELS, RANGE_STEPS, Case, Recorded, all_cases
from surefoot.search import tune
from surefoot.theory import bounds

MUST = {"≤ 1 %": 0.80, "≤ 5 %": 0.95, "cost": 0.20}
AIM = {"≤ 1 %": 0.90, "≤ 5 %": 1.00, "cost": 0.12}
PRUNER_SEEDS = 3


# ---- the searches: each takes a case and a seed, and returns the chosen place and its steps


def ours(case: Case, seed: int, **options: Any) -> tuple[int, int]:
    found = tune(Recorded(case), case.lrs, case.steps, **options)
    return int(np.argmin(abs(case.lrs - found.lr))), found.steps


def grid(case: Case, seed: int) -> tuple[int, int]:
    return int(np.argmin(case.final)), case.losses.size


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
    "surefoot, loss": (ours, 1),
    "surefoot, bound": (lambda case, seed: ours(case, seed, objective="bound"), 1),
    "surefoot, bound ε = 0.1": (lambda case, seed: ours(case, seed, objective="bound", tolerance=0.1), 1),
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
    "LR range test": (range_test, 1),
    "full grid": (grid, 1),
}


@dataclass(frozen=True)
class Score:
    """Means over the seeds of a search."""

    problem: str
    method: str
    regrets: tuple[float, ...]
    costs: tuple[float, ...]


def evaluate(cases: list[Case]) -> dict[str, list[Score]]:
    scores: dict[str, list[Score]] = {name: [] for name in SEARCHES}
    for case in cases:
        for name, (search, seeds) in SEARCHES.items():
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


def show(scores: dict[str, list[Score]]) -> None:
    print(f"\n{'search':26}{'regret ≤ 1 %':>13}{'≤ 5 %':>8}{'worst':>9}{'median cost':>13}{'mean':>8}")
    certified = [s for s in scores["surefoot, bound"] if s.method in MODELS and s.problem not in ("MLP", "CNN")]
    for name, rows in [*scores.items(), ("bound, certified cases", certified)]:
        row = summary(rows)
        worst = f"{row['worst']:.1%}" if row["worst"] < 100 else ">10000%"
        print(
            f"{name:26}{row['≤ 1 %']:>13.0%}{row['≤ 5 %']:>8.0%}{worst:>9}{row['cost']:>13.1%}{row['mean cost']:>8.1%}"
        )
    for goal, limits in (("must", MUST), ("aim", AIM)):
        for name in ("surefoot, loss", "surefoot, bound"):
            found = summary(scores[name])
            parts = []
            for key, limit in limits.items():
                met = found[key] <= limit if key == "cost" else found[key] >= limit
                sign, verdict = "≤" if key == "cost" else "≥", "met" if met else "missed"
                parts.append(f"{key} {found[key]:.1%} ({sign} {limit:.0%}: {verdict})")
            print(f"{goal:5} {name:18} {', '.join(parts)}")


def show_certificates(cases: list[Case]) -> None:
    """Compare the certified answers with the whole grid's bounds."""
    certified = [case for case in cases if case.envelope is not None]
    right = 0
    for case in certified:
        found = tune(Recorded(case), case.lrs, case.steps, objective="bound")
        assert found.certificate is not None
        rates = np.tile(case.lrs[:, None], case.steps)
        totals = bounds.last_iterate(rates, case.deltas, 0.0).noise + case.envelope(rates.sum(axis=1))
        right += found.certificate.holds and found.bound == totals.min() and found.lr == case.lrs[np.argmin(totals)]
    print(f"\ncertificates: {right} of {len(certified)} equal the smallest bound of the whole grid")


def show_problems(scores: dict[str, list[Score]]) -> None:
    """Mean regret / mean cost by problem, and where a pruner is ahead at no larger cost."""
    names = [name for name in SEARCHES if name != "full grid"]
    problems = list(dict.fromkeys(score.problem for score in scores["full grid"]))
    print(
        f"\nmean regret / mean cost\n{'problem':26}" + "".join(f"{name.removeprefix('Optuna '):>25}" for name in names)
    )
    behind = []
    for problem in problems:
        cells = {}
        for name in names:
            rows = [score for score in scores[name] if score.problem == problem]
            cells[name] = (
                float(np.mean(np.concatenate([row.regrets for row in rows]))),
                float(np.mean(np.concatenate([row.costs for row in rows]))),
            )
        shown = (f"{min(regret, 99):.2%} / {cost:.1%}" for regret, cost in cells.values())
        print(f"{problem:26}" + "".join(f"{cell:>25}" for cell in shown))
        regret, cost = cells["surefoot, loss"]
        behind += [
            f"{problem}: {name} has {cells[name][0]:.2%} at {cells[name][1]:.1%}; ours {regret:.2%} at {cost:.1%}"
            for name in names[3:]
            if cells[name][1] <= cost and cells[name][0] < regret
        ]
    print("\nAhead of our loss search on a problem, at no larger cost:")
    print("\n".join(behind) or "nobody")
    print("\nCases where our loss search has a regret above 1 %:")
    for score in scores["surefoot, loss"]:
        if score.regrets[0] > 0.01:
            print(f"{score.problem}, {score.method}: regret {score.regrets[0]:.1%}, cost {score.costs[0]:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="convex problems only")
    parser.add_argument("--order", type=int, default=0, help="data order of all runs")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    torch.set_num_threads(1)
    begin = time.perf_counter()
    cases = list(all_cases(arguments.order, arguments.quick))
    recorded = time.perf_counter()
    scores = evaluate(cases)
    steps = sum(case.losses.size for case in cases)
    print(
        f"{len(cases)} cases, {COUNT} rates each, {steps} recorded steps; "
        f"{recorded - begin:.0f} s to record, {time.perf_counter() - recorded:.0f} s to search"
    )
    show(scores)
    show_certificates(cases)
    show_problems(scores)


if __name__ == "__main__":
    main()
