"""The wall time of a search in several processes against one, on a network: ``python benchmarks/parallel.py``.

Both sides take turns in one run, every run of either side uses one thread, and the shortest of the repeats counts. The
answers must be equal to the last bit. It takes about two minutes on two free cores. Goal: with two processes at most
0.65 of the time of one.

A run is a chain: its steps come one after the other. Whatever the number of processes, a search takes at least the time
of its longest run; the last column says which share of all steps that is. A search of one method on one data order is
little more than one run, so that a second process gains little; ``SGD+NGN`` is one search of both methods. A process
with torch takes two or three seconds to come up: runs that take no longer than that gain nothing (``--horizon 800``).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn

import surefoot as sf
import surefoot.optim as sfo
from surefoot._base.processes import cores
from surefoot.data import load
from surefoot.search import Found, TorchRun

GOAL = 0.65
"""With two processes."""


def recipe(method: str) -> TorchRun:
    """A convolutional network on the bundled digits."""
    data = load("digits")
    images, labels = torch.tensor(data.X, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(data.y)

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(),
            nn.Conv2d(32, 48, 3, padding=1), nn.GroupNorm(4, 48), nn.ReLU(),
            nn.Flatten(), nn.Linear(48 * 64, 10),
        )  # fmt: skip

    def batches(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        return [(images[rows], labels[rows]) for rows in order.split(64)[:-1]]

    return TorchRun(
        model,
        batches,
        lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        lambda parameters, lr: getattr(sfo, method)(parameters, lr=lr),
    )


def search(processes: int, method: str, horizon: int) -> tuple[float, Found]:
    """Seconds, and the answer; 0 processes stand for the default."""
    begin = time.perf_counter()
    runs = {name: recipe(name) for name in method.split("+")}
    found = sf.tune(runs, np.geomspace(1e-3, 1e2, 11), horizon, processes=processes or None)
    return time.perf_counter() - begin, found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2, help="0 for those that tune takes")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--horizon", type=int, default=2400)
    parser.add_argument("--methods", nargs="+", default=["SGD+NGN"])
    options = parser.parse_args()
    for method in options.methods:
        times: dict[int, list[float]] = {1: [], options.processes: []}
        for _ in range(options.repeats):
            found = {}
            for processes in times:
                seconds, found[processes] = search(processes, method, options.horizon)
                times[processes].append(seconds)
            one, several = found.values()
            assert one.table == several.table
            assert (one.lr, one.loss, one.bound) == (several.lr, several.loss, several.bound)
        alone, together = (min(values) for values in times.values())
        least = one.horizon / one.steps
        print(
            f"{method}: lr {one.lr:.3g} for {one.steps / one.horizon:.2f} runs; one process {alone:.1f} s, "
            f"{options.processes or cores()} processes {together:.1f} s: {together / alone:.2f} of it "
            f"(goal {GOAL}, at least {least:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
