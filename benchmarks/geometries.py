"""Learning-rate windows of SGD, AdamW, Muon and their model-based relatives: the tables of docs/evidence.md.

    python benchmarks/geometries.py [--quick] [--task digits-cnn|characters] [--lower-bound C] [--rates LR ...]

A small convolutional network on the 8x8 digits and a small transformer on characters, both bundled; batches drawn
independently, constant rate, one thread. Embeddings, output layers and everything that is no matrix have Adam's
geometry in the Muons, at the same rate. Every cell is the loss over the evaluated rows after the last step,
divided by that before the first; an optimizer *holds* at a rate if its final loss is within 10 % of the way back from
its best to the start. ``ball`` stands for the ball-constrained form, whose rate is a length.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

import surefoot.optim as sfo
from surefoot import problems

RATES = [10.0 ** (k / 2) for k in range(-8, 5)]
OUTSIDE = ("characters", "positions", "head")
"""Layers that Muon leaves to Adam: embeddings and output."""

Factory = Callable[[torch.nn.Module, float, float], torch.optim.Optimizer]
"""Makes an optimizer from a network, a rate and a lower bound of the loss."""


class Task(NamedTuple):
    """A network to train."""

    options: dict[str, Any]
    batch_size: int
    steps: int
    evaluated: int


TASKS = {
    "digits-cnn": Task({}, 32, 150, 1437),
    "characters": Task({"context": 32, "d": 32}, 16, 150, 256),
}


def layers(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Two groups: the hidden layers, and those that Muon leaves to Adam."""
    named = list(model.named_parameters())
    return [
        {"params": [p for name, p in named if name.split(".")[0] not in OUTSIDE]},
        {"params": [p for name, p in named if name.split(".")[0] in OUTSIDE], "spectral": False},
    ]


def ball() -> sfo.Spectral:
    return sfo.SpectralBall(scale="original", polish=0)


OPTIMIZERS: dict[str, Factory] = {
    "SGD": lambda model, lr, bound: sfo.SGD(model.parameters(), lr),
    "torch AdamW": lambda model, lr, bound: torch.optim.AdamW(model.parameters(), lr, weight_decay=0.0),
    "NGNAdam": lambda model, lr, bound: sfo.NGNAdam(model.parameters(), lr, lower_bound=bound),
    "Muon": lambda model, lr, bound: sfo.Muon(layers(model), lr),
    "SPSMuon, ball": lambda model, lr, bound: sfo.SPSMuon(layers(model), lr, geometry=ball(), lower_bound=bound),
    "SPSMuon": lambda model, lr, bound: sfo.SPSMuon(layers(model), lr, lower_bound=bound),
}


def final_loss(
    problem: problems.NetworkProblem, task: Task, factory: Factory, lr: float, bound: float, steps: int
) -> float:
    """Loss over the evaluated rows at the end, relative to the start; inf if it diverged."""
    model = problem.model()
    rows = np.linspace(0, problem.n_rows - 1, min(task.evaluated, problem.n_rows)).astype(int)

    def evaluate() -> float:
        model.eval()
        with torch.no_grad():
            loss = problem.batch_loss(model, rows).item()
        model.train()
        return loss

    start = evaluate()
    optimizer = factory(model, lr, bound)
    draw = np.random.default_rng(0)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = problem.batch_loss(model, draw.integers(problem.n_rows, size=task.batch_size))
        loss.backward()
        optimizer.step()
        if not math.isfinite(loss.item()):
            return math.inf
    end = evaluate()
    return end / start if math.isfinite(end) else math.inf


def cell(value: float) -> str:
    return f"{value:.3f}" if value < 10 else "inf" if math.isinf(value) else f"{value:.0e}"


def window(losses: list[float]) -> tuple[int, int, int]:
    """Where the rates begin that hold, where the best one is, and where they end."""
    best = losses.index(min(losses))
    limit = losses[best] + 0.1 * (1.0 - losses[best])
    low = high = best
    while low > 0 and losses[low - 1] <= limit:
        low -= 1
    while high < len(losses) - 1 and losses[high + 1] <= limit:
        high += 1
    return low, best, high


def table(name: str, rates: list[float], steps: int, bound: float) -> None:
    task = TASKS[name]
    problem = problems.create(name, **task.options)
    assert isinstance(problem, problems.NetworkProblem)
    began = time.perf_counter()
    print(f"\n**{name}, {steps} steps of {task.batch_size} rows**\n")
    print("| optimizer | holds | best | factor | " + " | ".join(f"{lr:.3g}" for lr in rates) + " |")
    print("|---" * (len(rates) + 4) + "|")
    for optimizer, factory in OPTIMIZERS.items():
        losses = [final_loss(problem, task, factory, lr, bound, steps) for lr in rates]
        low, best, high = window(losses)
        cells = " | ".join(cell(loss) for loss in losses)
        held = f"{rates[low]:.3g} … {rates[high]:.3g} | {rates[best]:.3g} | {rates[high] / rates[low]:.3g}"
        print(f"| {optimizer} | {held} | {cells} |", flush=True)
    print(f"\n({time.perf_counter() - began:.0f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rates, few steps")
    parser.add_argument("--task", choices=TASKS, help="one task only")
    parser.add_argument("--lower-bound", type=float, default=0.0, help="C of the models that know one")
    parser.add_argument("--rates", type=float, nargs="+", help="in place of 1e-4 … 1e2")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rates = sorted(arguments.rates or (RATES[::4] if arguments.quick else RATES))
    for name in [arguments.task] if arguments.task else TASKS:
        table(name, rates, 20 if arguments.quick else TASKS[name].steps, arguments.lower_bound)


if __name__ == "__main__":
    main()
