"""Which optimizer works at which learning rate, on three small networks: tables of docs/evidence.md.

    python benchmarks/optimizer_rates.py [--recorded] [--quick]

A network with one hidden layer of 64 on the bundled vowel data, a convolutional network on the 8x8 digits and a
transformer on characters, at a constant rate, without weight decay, on one thread. In the Muons, embeddings, output
layers and vectors have Adam's metric at the same rate; ``ball`` is the ball-constrained form, whose rate is a length.
``C = 2`` gives the optimizer a lower bound that is about right on characters.

Every run is appended to ``optimizer_rates.csv`` with its loss over the training data (on characters over 256 rows)
after the last step, divided by the one before the first; inf if it diverged. What is there is not trained again. An
optimizer *works* at a rate if its mean loss is within 10 % of the way back from its best to the start.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import surefoot.optim as sfo
from surefoot import data, problems

RECORDED = Path(__file__).with_suffix(".csv")
OUTSIDE = ("characters", "positions", "head")
"""Layers that Muon leaves to Adam: embeddings and output."""

Factory = Callable[[nn.Module, float], torch.optim.Optimizer]
Rows = np.ndarray[Any, Any]
Runs = dict[tuple[str, str, float, int], float]
"""Relative final losses by task, optimizer, rate and seed."""


class Network(NamedTuple):
    """What is trained: the loss of some rows, and how many rows there are."""

    model: nn.Module
    loss: Callable[[Rows], torch.Tensor]
    n_rows: int


class Task(NamedTuple):
    """How a network is trained, and the optimizers and rates of its tables."""

    make: Callable[[], Network]
    batch_size: int
    steps: int
    evaluated: int
    seeds: int
    tables: tuple[tuple[list[str], list[float]], ...]


def vowel() -> Network:
    dataset = data.load("vowel")
    inputs, labels = torch.tensor(dataset.X, dtype=torch.float32), torch.tensor(dataset.y, dtype=torch.int64)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 11))
    return Network(model, lambda rows: nn.functional.cross_entropy(model(inputs[rows]), labels[rows]), len(labels))


def named(name: str, **options: Any) -> Network:
    problem = problems.create(name, **options)
    assert isinstance(problem, problems.NetworkProblem)
    model = problem.model()
    return Network(model, lambda rows: problem.batch_loss(model, rows), problem.n_rows)


def layers(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups: the hidden layers, and those that Muon leaves to Adam."""
    inside = [p for name, p in model.named_parameters() if name.split(".")[0] not in OUTSIDE]
    outside = [p for name, p in model.named_parameters() if name.split(".")[0] in OUTSIDE]
    return [{"params": inside}, {"params": outside, "spectral": False}]


def plain(kind: Any, **options: Any) -> Factory:
    return lambda model, lr: kind(model.parameters(), lr=lr, **options)


def ball(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return sfo.SPSMuon(layers(model), lr, geometry=sfo.SpectralBall())


OPTIMIZERS: dict[str, Factory] = {
    "torch SGD": plain(torch.optim.SGD),
    "torch SGD, momentum 0.9": plain(torch.optim.SGD, momentum=0.9, dampening=0.9),
    "torch AdamW": plain(torch.optim.AdamW, weight_decay=0.0),
    "SPS": plain(sfo.SPS),
    "NGN": plain(sfo.NGN),
    "MoMo": plain(sfo.MoMo),
    "NGNMomentum": plain(sfo.NGNMomentum),
    "NGNAdam": plain(sfo.NGNAdam),
    "MoMoAdam": plain(sfo.MoMoAdam),
    "Muon": lambda model, lr: sfo.Muon(layers(model), lr),
    "SPSMuon, ball": ball,
    "SPSMuon": lambda model, lr: sfo.SPSMuon(layers(model), lr),
    "SPSMuon, C = 2": lambda model, lr: sfo.SPSMuon(layers(model), lr, lower_bound=2.0),
}
_EUCLIDEAN = ["torch SGD", "torch SGD, momentum 0.9", "SPS", "NGN", "MoMo", "NGNMomentum"]
_ADAM = ["torch AdamW", "NGNAdam", "MoMoAdam"]
_SPECTRAL = ["torch SGD", "torch AdamW", "NGNAdam", "Muon", "SPSMuon, ball", "SPSMuon"]


def between(low: int, high: int) -> list[float]:
    """Rates that are √10 apart."""
    return [float(f"{10.0 ** (k / 2):.3g}") for k in range(2 * low, 2 * high + 1)]


TASKS = {
    "vowel": Task(vowel, 16, 1000, 528, 2, ((_EUCLIDEAN, between(-2, 2)), (_ADAM, between(-4, 0)))),
    "digits-cnn": Task(lambda: named("digits-cnn"), 32, 150, 1437, 1, ((_SPECTRAL, between(-4, 2)),)),
    "characters": Task(
        lambda: named("characters", context=32, d=32),
        16,
        150,
        256,
        1,
        (([*_SPECTRAL, "SPSMuon, C = 2"], between(-4, 2)),),
    ),
}


def final_loss(task: Task, factory: Factory, lr: float, seed: int, steps: int) -> float:
    """Loss at the end over the loss at the start; inf if the run diverged."""
    model, loss_of, n_rows = task.make()
    rows = np.linspace(0, n_rows - 1, min(task.evaluated, n_rows)).astype(int)

    def evaluate() -> float:
        model.eval()
        with torch.no_grad():
            loss = loss_of(rows).item()
        model.train()
        return loss

    start = evaluate()
    optimizer = factory(model, lr)
    draw = np.random.default_rng(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(draw.integers(n_rows, size=task.batch_size))
        loss.backward()
        optimizer.step()
        if not math.isfinite(loss.item()):
            return math.inf
    end = evaluate()
    return end / start if math.isfinite(end) else math.inf


def recorded() -> Runs:
    if not RECORDED.exists():
        return {}
    with RECORDED.open(newline="") as file:
        rows = csv.DictReader(file)
        return {
            (row["task"], row["optimizer"], float(row["lr"]), int(row["seed"])): float(row["relative_loss"])
            for row in rows
        }


def missing(runs: Runs) -> Iterator[tuple[str, str, float, int]]:
    for name, task in TASKS.items():
        for optimizers, rates in task.tables:
            for optimizer in optimizers:
                for lr in rates:
                    for seed in range(task.seeds):
                        if (name, optimizer, lr, seed) not in runs:
                            yield name, optimizer, lr, seed


def complete(runs: Runs) -> None:
    """Train what is not recorded yet."""
    for key in list(missing(runs)):
        name, optimizer, lr, seed = key
        runs[key] = final_loss(TASKS[name], OPTIMIZERS[optimizer], lr, seed, TASKS[name].steps)
        is_new = not RECORDED.exists()
        with RECORDED.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(("task", "optimizer", "lr", "seed", "relative_loss"))
            writer.writerow((*key, f"{runs[key]:.6g}"))


def cell(value: float) -> str:
    return f"{value:.3f}" if value < 10 else "inf" if math.isinf(value) else f"{value:.0e}"


def show(runs: Runs) -> None:
    for name, task in TASKS.items():
        print(f"\n{name}, {task.steps} steps of {task.batch_size} rows")
        for optimizers, rates in task.tables:
            columns = rates[::2]
            print("\n| optimizer | works | best | " + " | ".join(f"{lr:.3g}" for lr in columns) + " |")
            print("|---" * (len(columns) + 3) + "|")
            for optimizer in optimizers:
                loss_at = {lr: mean([runs[name, optimizer, lr, seed] for seed in range(task.seeds)]) for lr in rates}
                low, best, high = window(list(loss_at.values()))
                cells = " | ".join(cell(loss_at[lr]) for lr in columns)
                print(f"| {optimizer} | {rates[low]:.3g} … {rates[high]:.3g} | {rates[best]:.3g} | {cells} |")


def window(losses: list[float]) -> tuple[int, int, int]:
    """Where the rates begin that work, where the best one is, and where they end."""
    best = losses.index(min(losses))
    limit = losses[best] + 0.1 * (1.0 - losses[best])
    low = high = best
    while low > 0 and losses[low - 1] <= limit:
        low -= 1
    while high < len(losses) - 1 and losses[high + 1] <= limit:
        high += 1
    return low, best, high


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", action="store_true", help="train nothing, print what is recorded")
    parser.add_argument("--quick", action="store_true", help="20 steps of every optimizer at one rate, not recorded")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.quick:
        for name, task in TASKS.items():
            for optimizers, rates in task.tables:
                for optimizer in optimizers:
                    loss = final_loss(task, OPTIMIZERS[optimizer], rates[len(rates) // 2], 0, 20)
                    print(f"{name}, {optimizer}: {cell(loss)}")
        return
    runs = recorded()
    if not arguments.recorded:
        complete(runs)
    if next(missing(runs), None) is None:
        show(runs)
    else:
        print(f"not all runs are in {RECORDED.name}: leave out --recorded to train them")


if __name__ == "__main__":
    main()
