"""What it costs to choose no learning rate: the tables of docs/which-optimizer.md.

    python benchmarks/no_rate.py [--quick] [--tasks development|held-out|explored|drawn-before|drawn|all]
        [--steps 200] [--seeds 1]
    python benchmarks/no_rate.py --tune

Every task of ``_tasks.py`` or ``_drawn_tasks.py`` × Surefoot as it comes, at 0.1 and at 10 times its cap; AdamW, SGD
with momentum and Muon tuned a task at a time, and at the one constant rate that is best in hindsight for all tasks
together; AdamW, schedule-free AdamW, Prodigy, D-Adaptation and MoMo-Adam at their defaults. Schedules: constant, and a
warmup of a tenth of the steps with a cosine after it.

*Regret* is (held-out loss − tuned AdamW's)/(initial loss − tuned AdamW's), in percent, the mean over the seeds. It is
cut at 999; a run that is lost has 999. AdamW is tuned on twelve rates that are √10 apart
(``--rates 7``: seven, and more while the best one is at an end). *Decades* is how far apart,
on average, the rates are between which a method loses at most a tenth of its own best gain. Runs are kept in a file
(``--cache``; for drawn tasks ``no_rate_drawn.csv`` beside this one), and what is there is not trained again. Tuned
rates are stored beside this file, and ``--tune`` finds them again.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import Progress
from torch import nn

import surefoot.optim as sfo
from _drawn_tasks import DRAWN, EXPLORED
from _tasks import HELD_OUT, TASKS
from _training import Factory, halves, train

STORED = Path(__file__).with_name("no_rate_tuned.csv")
RECORDED = Path(__file__).with_name("no_rate_drawn.csv")
"""Runs of the drawn tasks."""
CUT = 9.99
ALL_TASKS = TASKS | EXPLORED | DRAWN
GROUPS = {
    "development": [name for name in TASKS if name not in HELD_OUT],
    "held-out": [name for name in TASKS if name in HELD_OUT],
    "explored": list(EXPLORED),
    "drawn-before": [name for name in EXPLORED if name.endswith(("-6000", "-7000"))],
    "drawn": list(DRAWN),
}
"""Tasks that were looked at while Surefoot was built, the others of the same kinds, and random draws: one that was
looked at, one that judged an earlier rule, and one for a single final table."""
HALF_DECADES = [10 ** (k / 2) for k in range(-10, 2)]


class Method(NamedTuple):
    """A way to train; more than one rate means that it is tuned."""

    factory: Factory
    rates: tuple[float, ...]
    clip: float | None = None


def muon(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Our Muon: matrices along their orthogonal factor, the rest in Adam's metric."""
    return sfo.Muon(model.parameters(), lr)


def surefoot(model: nn.Module, cap: float) -> torch.optim.Optimizer:
    """Surefoot, which has a cap in the place of a rate."""
    return sfo.Surefoot(model.parameters(), cap=cap)


def torch_muon(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """torch's Muon for the matrices inside the network, AdamW at the same rate for everything else."""
    matrices, rest = halves(model.named_parameters())
    return Both(
        torch.optim.Muon(matrices, lr, adjust_lr_fn="match_rms_adamw", weight_decay=0.0) if matrices else None,
        torch.optim.AdamW(rest, lr) if rest else None,
    )


class Both(torch.optim.Optimizer):
    """Two optimizers that step together."""

    def __init__(self, *parts: torch.optim.Optimizer | None) -> None:
        self.parts = [part for part in parts if part is not None]
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Of both."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:
        """One after the other."""
        for part in self.parts:
            part.step(closure)


def peer(module: str, name: str, **options: Any) -> Factory:
    def factory(model: nn.Module, lr: float) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = getattr(importlib.import_module(module), name)(
            model.parameters(), lr=lr, **options
        )
        return made

    return factory


def plain(name: str, **options: Any) -> Factory:
    return peer("torch.optim", name, **options)


TUNED = {
    "AdamW": Method(plain("AdamW"), tuple(HALF_DECADES)),
    "AdamW, clipped": Method(plain("AdamW"), tuple(HALF_DECADES), clip=1.0),
    "SGD, momentum": Method(plain("SGD", momentum=0.9), tuple(10 * lr for lr in HALF_DECADES)),
    "Muon, ours": Method(muon, tuple(HALF_DECADES[2:])),
    "Muon, torch's": Method(torch_muon, tuple(HALF_DECADES[2:])),
}
DEFAULTS = {
    "Surefoot": Method(surefoot, (10.0,)),
    "Surefoot, cap × 0.1": Method(surefoot, (1.0,)),
    "Surefoot, cap × 10": Method(surefoot, (100.0,)),
    "Surefoot, clipped by hand": Method(surefoot, (10.0,), clip=1.0),
    "AdamW, default": Method(plain("AdamW"), (1e-3,)),
    "schedule-free AdamW": Method(peer("schedulefree", "AdamWScheduleFree"), (0.0025,)),
    "Prodigy": Method(peer("prodigyopt", "Prodigy"), (1.0,)),
    "D-Adaptation": Method(peer("dadaptation", "DAdaptAdam"), (1.0,)),
    "MoMo-Adam": Method(peer("momo", "MomoAdam"), (0.01,)),
}
TOO_SLOW = {("Muon, torch's", "width-512")}
"""Left out of the method's row: torch's Muon multiplies in bfloat16, which takes minutes a run where the processor
has no instructions for it."""
CONSTANTS = {"AdamW, clipped": tuple(HALF_DECADES[3:9]), "Muon, ours": tuple(HALF_DECADES[3:9])}
"""Methods that are judged at the one rate that is best for all tasks together, and the rates to choose from."""


class Key(NamedTuple):
    """A run."""

    method: str
    task: str
    lr: float
    seed: int
    steps: int
    schedule: str


class Runs:
    """Runs by their key, in a file with a row for each; what is there is not trained again."""

    def __init__(self, path: Path, methods: Mapping[str, Method]) -> None:
        self.path, self.methods = path, methods
        self.known: dict[Key, tuple[float, float]] = {}
        if not path.exists():
            with path.open("w") as file:
                file.write(",".join((*Key._fields, "initial", "final")) + "\n")
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                lr, seed, steps = float(row["lr"]), int(row["seed"]), int(row["steps"])
                key = Key(row["method"], row["task"], lr, seed, steps, row["schedule"])
                self.known[key] = float(row["initial"]), float(row["final"])

    def get(self, key: Key) -> tuple[float, float]:
        """Held-out loss before and after."""
        if key not in self.known:
            method = self.methods[key.method]
            outcome = train(
                ALL_TASKS[key.task],
                method.factory,
                key.lr,
                seed=key.seed,
                steps=key.steps,
                schedule=key.schedule,
                clip=method.clip,
            )
            self.known[key] = (outcome.initial, outcome.final)
            with self.path.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow((*key, outcome.initial, outcome.final))
        return self.known[key]


def installed(method: Method) -> bool:
    """Whether the package of a peer is there."""
    try:
        method.factory(nn.Linear(2, 2), method.rates[0])
    except ModuleNotFoundError:
        return False
    return True


def best_rate(runs: Runs, method: str, task: str, seeds: range, steps: int, schedule: str, count: int) -> float:
    """The rate whose mean held-out loss over the seeds is smallest.

    The first ``count`` rates are those in the middle; more are tried as long as the best one is the first or the last.
    """

    def loss(lr: float) -> float:
        return statistics.fmean(runs.get(Key(method, task, lr, seed, steps, schedule))[1] for seed in seeds)

    rates = TUNED[method].rates
    low = max(0, (len(rates) - count + 1) // 2)
    high = min(len(rates), low + count)
    while True:
        best = min(rates[low:high], key=loss)
        if best == rates[low] and low > 0:
            low -= 1
        elif best == rates[high - 1] and high < len(rates):
            high += 1
        else:
            return best


def stored() -> dict[tuple[str, str, int, str], float]:
    """Tuned rates by method, task, steps and schedule."""
    if not STORED.exists():
        return {}
    with STORED.open(newline="") as file:
        return {
            (row["method"], row["task"], int(row["steps"]), row["schedule"]): float(row["lr"])
            for row in csv.DictReader(file)
        }


def tune(
    runs: Runs,
    methods: list[str],
    tasks: list[str],
    seeds: range,
    steps: int,
    count: int,
    track: Callable[[Iterable[Any]], Iterable[Any]],
) -> None:
    """Find the rates and store them."""
    rates = stored()
    jobs = [(t, m, s) for s in SCHEDULES for m in methods for t in tasks if (m, t) not in TOO_SLOW]
    for task, method, schedule in track(jobs):
        rates[method, task, steps, schedule] = best_rate(runs, method, task, seeds, steps, schedule, count)
        with STORED.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("method", "task", "steps", "schedule", "lr"))
            writer.writerows((*key, f"{lr:.6g}") for key, lr in sorted(rates.items()))


SCHEDULES = ("constant", "cosine")


def regrets(
    runs: Runs,
    methods: Iterable[str],
    tasks: list[str],
    seeds: range,
    steps: int,
    schedule: str,
    rates: dict[tuple[str, str, int, str], float],
) -> dict[str, list[float]]:
    """The regret of the mean losses over the seeds, for every method and task; NaN for what is left out.

    Of means, because a single run of AdamW may end where it began: a ratio to what it has gained says nothing then.
    """

    def losses(method: str, task: str, lr: float) -> tuple[float, float]:
        each = [runs.get(Key(method, task, lr, seed, steps, schedule)) for seed in seeds]
        return statistics.fmean(initial for initial, _ in each), statistics.fmean(final for _, final in each)

    table: dict[str, list[float]] = {}
    for method in methods:
        table[method] = []
        for task in tasks:
            if (method, task) in TOO_SLOW:
                table[method].append(math.nan)
                continue
            _, base = losses("AdamW", task, rates["AdamW", task, steps, schedule])
            lr = DEFAULTS[method].rates[0] if method in DEFAULTS else rates[method, task, steps, schedule]
            initial, final = losses(method, task, lr)
            regret = (final - base) / (initial - base)
            table[method].append(min(regret, CUT) if math.isfinite(regret) else CUT)
    return table


def constant_rate(
    runs: Runs, method: str, tasks: list[str], seeds: range, steps: int, schedule: str, rates: dict[Any, float]
) -> tuple[float, list[float]]:
    """The one rate with the smallest mean regret over all tasks, and its regrets."""
    found = []
    for lr in CONSTANTS[method]:
        everywhere = {(method, task, steps, schedule): lr for task in tasks}
        found.append((lr, regrets(runs, [method], tasks, seeds, steps, schedule, {**rates, **everywhere})[method]))
    return min(found, key=lambda pair: statistics.fmean(pair[1]))


def decades(runs: Runs, method: str, tasks: list[str], steps: int, schedule: str) -> str:
    """The mean width of the window of good rates, of the first seed; nothing where not all rates have been run."""
    caps = {name: each.rates for name, each in DEFAULTS.items() if name.startswith("Surefoot") and each.clip is None}
    rows = caps if method == "Surefoot" else {method: (TUNED | DEFAULTS)[method].rates}
    pairs = sorted(((name, rate) for name, rates in rows.items() for rate in rates), key=lambda pair: pair[1])
    widths = []
    for task in tasks:
        keys = [Key(name, task, rate, 0, steps, schedule) for name, rate in pairs]
        if (method, task) in TOO_SLOW:
            continue
        if len(keys) < 2 or any(key not in runs.known for key in keys):
            return ""
        initial, finals = runs.known[keys[0]][0], [runs.known[key][1] for key in keys]
        best = low = high = finals.index(min(finals))
        limit = finals[best] + 0.1 * (initial - finals[best])
        while low > 0 and finals[low - 1] <= limit:
            low -= 1
        while high + 1 < len(finals) and finals[high + 1] <= limit:
            high += 1
        widths.append(math.log10(keys[high].lr / keys[low].lr))
    return f"{statistics.fmean(widths):.1f}"


def show(title: str, tasks: list[str], table: dict[str, list[float]], widths: dict[str, str]) -> None:
    """One column per method: worst, mean and median, the same over ordinary tasks, decades, and every task."""
    ordinary = [i for i, task in enumerate(tasks) if ALL_TASKS[task].ordinary]
    print(f"\n| {' | '.join([title, *table])} |\n|---{'|---' * len(table)}|")
    for name, places in (("", range(len(tasks))), ("ordinary ", ordinary)):
        known = [[100 * row[i] for i in places if not math.isnan(row[i])] for row in table.values()]
        for what, summary in (("worst", max), ("mean", statistics.fmean), ("median", statistics.median)):
            print(f"| {name}{what} | {' | '.join(f'{summary(row):.1f}' for row in known)} |")
    if any(widths.values()):
        print(f"| decades | {' | '.join(widths.get(method, '') for method in table)} |")
    for i, task in enumerate(tasks):
        cells = ["–" if math.isnan(row[i]) else f"{100 * row[i]:.1f}" for row in table.values()]
        print(f"| {task} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="Surefoot and AdamW alone, constant rate, one seed")
    parser.add_argument("--tune", action="store_true", help="find the tuned rates again; hours, and resumes")
    parser.add_argument("--methods", nargs="+", choices=TUNED | DEFAULTS, metavar="NAME", help="some methods only")
    parser.add_argument("--tasks", choices=(*GROUPS, "all"), default="all", help="all: development and held-out")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rates", type=int, default=12, help="with --tune: rates to begin with, more at the ends")
    parser.add_argument("--cache", type=Path, help="default: out/no_rate.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cache = options.cache or (RECORDED if options.tasks.startswith("drawn") else Path("out/no_rate.csv"))
    cache.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=160 if not Console().is_terminal else None)
    groups = ("development", "held-out") if options.tasks == "all" else (options.tasks,)
    runs, seeds = Runs(cache, TUNED | DEFAULTS), range(options.seeds)
    chosen = ["Surefoot", "AdamW"] if options.quick else options.methods or [*DEFAULTS, *TUNED]
    missing = [name for name in chosen if not installed((DEFAULTS | TUNED)[name])]
    for name in missing:
        console.print(f"{name} is left out: its package is not installed")
    with Progress(console=Console(stderr=True)) as progress:
        if options.tune:
            wanted_rates = [name for name in chosen if name in TUNED]
            for group in groups:
                track = lambda items: progress.track(list(items), description="tuning")  # noqa: E731
                tune(runs, wanted_rates, GROUPS[group], seeds, options.steps, options.rates, track)
        rates = stored()
        for schedule in SCHEDULES[:1] if options.quick else SCHEDULES:
            for group in groups:
                tasks = [task for task in GROUPS[group] if ("AdamW", task, options.steps, schedule) in rates]
                if not tasks:
                    console.print(
                        f"no tuned rates for {group} tasks, {options.steps} steps, {schedule}: --tune finds them"
                    )
                    continue
                known = [
                    method
                    for method in TUNED
                    if all((method, t, options.steps, schedule) in rates or (method, t) in TOO_SLOW for t in tasks)
                ]
                rows = [name for name in chosen if name not in missing and (name in DEFAULTS or name in known)]
                table: dict[str, list[float]] = {}
                for method in progress.track(rows, description=f"{schedule}, {len(tasks)} tasks"):
                    table |= regrets(runs, [method], tasks, seeds, options.steps, schedule, rates)
                for method in [name for name in CONSTANTS if name in chosen]:
                    lr, row = constant_rate(runs, method, tasks, seeds, options.steps, schedule, rates)
                    table[f"{method}, {lr:.2g} everywhere"] = row
                title = f"regret in %, {options.steps} steps, {schedule}, {len(seeds)} seeds"
                widths = {method: decades(runs, method, tasks, options.steps, schedule) for method in rows}
                show(title, tasks, table, widths)


if __name__ == "__main__":
    main()
