"""Images a second that the input pipeline makes, against those that ResNet20 trains on, in one run.

    python benchmarks/inputs.py [--data PATH] [--batches 50] [--steps 2] [--turns 5]

The pipeline flips, crops and normalises batches of 128 from the 50,000 images of CIFAR-10, or from as many random ones
if CIFAR-10 is not on this machine. ResNet20 does forward and backward passes on a batch in memory with channels_last,
in float32 or with bfloat16 autocast, whichever is faster here: processors without instructions for bfloat16 emulate it,
many times slower. Both take turns, so that other work on the machine slows both down; each rate is the best of its
turns. The goal is 20 times the rate of ResNet20 and, with two threads, 48,000 images a second.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from surefoot.data import Images, cifar, cifar10
from surefoot.problems import ImageInputs, networks

BATCH = 128
GOAL_RATIO, GOAL_RATE = 20, 48_000


def images(path: str | None) -> Images:
    if path or cifar.found():
        return cifar10("train", path)
    pixels = np.random.default_rng(0).integers(0, 256, (50_000, 3, 32, 32), dtype=np.uint8)
    return Images("random", pixels, np.arange(50_000) % 10, cifar.CLASSES, cifar.MEAN, cifar.STD)


def rate(step: Callable[[], Any], steps: int) -> float:
    """Images a second of some batches."""
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    return BATCH * steps / (time.perf_counter() - begin)


def pipeline(data: Images) -> Callable[[], Any]:
    inputs = ImageInputs(data)
    orders = np.random.default_rng(0).permutation(len(data))[: len(data) // BATCH * BATCH].reshape(-1, BATCH)
    batches = enumerate(itertools.cycle(orders))

    def step() -> None:
        seed, rows = next(batches)
        inputs.batch(rows, seed=seed)

    return step


def training(data: Images, bfloat16: bool) -> Callable[[], Any]:
    torch.manual_seed(0)
    model = networks.ResNet20().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pixels, classes = ImageInputs(data).batch(np.arange(BATCH), seed=0)
    pixels = pixels.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            loss = torch.nn.functional.cross_entropy(model(pixels), classes)
        loss.backward()  # type: ignore[no-untyped-call]

    step()  # the first one also chooses and builds kernels
    return step


def fastest_training(data: Images) -> tuple[str, Callable[[], Any]]:
    """The faster way to train, by one step each."""
    ways = {"float32": training(data, bfloat16=False), "bfloat16": training(data, bfloat16=True)}
    best = max(ways, key=lambda way: rate(ways[way], 1))
    return best, ways[best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of CIFAR-10")
    parser.add_argument("--batches", type=int, default=50, help="of the pipeline in a turn")
    parser.add_argument("--steps", type=int, default=2, help="of ResNet20 in a turn")
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    data = images(arguments.data)
    table = Table("threads", "images/s", "ResNet20, images/s", "ratio", "goal met", title=data.name)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        way, train = fastest_training(data)
        make = pipeline(data)
        make()
        turns = [(rate(train, arguments.steps), rate(make, arguments.batches)) for _ in range(arguments.turns)]
        trained, made = np.max(turns, axis=0).tolist()
        goals = [made >= GOAL_RATIO * trained, *([made >= GOAL_RATE] if threads == 2 else [])]
        met = "yes" if all(goals) else "NO"
        table.add_row(str(threads), f"{made:,.0f}", f"{trained:,.0f} ({way})", f"{made / trained:.0f}×", met)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
