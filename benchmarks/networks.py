"""Images a second of a study's training loop, against a bare PyTorch loop, in one run.

    python benchmarks/networks.py [--steps 2] [--turns 5] [--batch 128] [--layouts 2] [--compile]

The bare loop is what one writes by hand: ResNet20, the images in memory as float32, ``torch.optim.SGD``, no logging.
The study's loop is ``TorchRun.advance``: it takes the same rows, and keeps loss, ‖g‖², step size, δ and ‖x_t − x_1‖
of every step. All have one thread and take turns of a few steps. Each rate is the best of its turns, in processor time,
so that other work on the machine counts little. Goals: ≥ 0.95 of the bare loop; with channels_last and bfloat16 ≥ 1.5
times the plain float32 loop, which only processors with bfloat16 instructions can reach: elsewhere they are emulated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from surefoot.data import Images, cifar
from surefoot.problems import ImageInputs, NetworkProblem, networks
from surefoot.runs import Settings, factory_of
from surefoot.study import parse_method

GOAL, GOAL_BFLOAT16 = 0.95, 1.5
Advance = Callable[[int], None]
"""Takes some steps."""


def random_images(count: int) -> Images:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return Images("random", pixels, np.arange(count) % 10, cifar.CLASSES, cifar.MEAN, cifar.STD)


def bare(images: Images, batch: int, *, fast: bool = False, compiled: bool = False) -> Advance:
    """A loop without anything: the rows of a step follow each other."""
    torch.manual_seed(0)
    model: torch.nn.Module = networks.ResNet20()
    inputs, targets = ImageInputs(images, augment=False).batch(np.arange(len(images)), seed=None)
    if fast:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    if compiled:
        model = torch.compile(model)  # type: ignore[assignment]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    order = torch.randperm(len(images))
    place = 0

    def advance(steps: int) -> None:
        nonlocal place
        for _ in range(steps):
            rows = order[place : place + batch]
            place = (place + batch) % len(images)
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()

    return advance


def study(
    images: Images, batch: int, method: str, *, augment: bool = False, fast: bool = False, autocast: str | None = None
) -> Advance:
    """The loop of a study; without augmentation its images are floats in memory, too."""
    inputs = ImageInputs(images, augment=augment)
    data = inputs if augment else inputs.batch(np.arange(len(images)), seed=None)
    problem = NetworkProblem(networks.ResNet20, data, channels_last=fast, autocast=autocast)
    problem.__dict__["initial_losses"] = (0.0, None)  # those of a study are computed once for all its runs
    per_epoch = len(images) // batch
    settings = Settings(per_epoch, 100, batch, np.ones(100 * per_epoch), "shuffle", 1)
    return factory_of(problem, parse_method(method), settings)(0.01, 0).advance


def best_rates(sides: dict[str, Advance], steps: int, turns: int, batch: int) -> dict[str, float]:
    """Images a second of each, the best of some turns; the first steps of each are not timed."""
    rates = dict.fromkeys(sides, 0.0)
    for turn in range(turns + 1):
        for name, advance in sides.items():
            begin = time.process_time()
            advance(steps if turn else 1)
            if turn:
                rates[name] = max(rates[name], batch * steps / (time.process_time() - begin))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2, help="in a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--layouts", type=int, default=2, help="turns of one step with other layouts and bfloat16")
    parser.add_argument("--compile", action="store_true", help="bare loops with torch.compile, too: a minute more")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    batch = arguments.batch
    # Enough that no epoch ends while it is timed: full losses are not part of the loop.
    images = random_images(batch * (arguments.steps * arguments.turns + arguments.layouts + 3))

    table = Table("loop", "images/s", "of the bare loop", "goal", "met", title=f"ResNet20, batch {batch}, one thread")
    sides = {
        "bare PyTorch, float32": bare(images, batch),
        "study, sgd": study(images, batch, "sgd"),
        "study, ngn": study(images, batch, "ngn"),
        "study, sgd, flips and crops of bytes": study(images, batch, "sgd", augment=True),
    }
    rates = best_rates(sides, arguments.steps, arguments.turns, batch)
    plain = rates["bare PyTorch, float32"]
    for name, rate in rates.items():
        ratio = rate / plain
        goal = f"≥ {GOAL}" if name.startswith("study") else ""
        table.add_row(name, f"{rate:,.0f}", f"{ratio:.3f}", goal, ("yes" if ratio >= GOAL else "NO") if goal else "")
    if arguments.layouts:
        table.add_section()
        sides = {
            "bare PyTorch, float32": sides["bare PyTorch, float32"],
            "study, sgd, channels_last": study(images, batch, "sgd", fast=True),
            "study, sgd, channels_last, bfloat16": study(images, batch, "sgd", fast=True, autocast="bfloat16"),
        }
        if arguments.compile:
            sides["bare PyTorch, compiled"] = bare(images, batch, compiled=True)
            sides["bare PyTorch, channels_last"] = bare(images, batch, fast=True)
            sides["bare PyTorch, channels_last, compiled"] = bare(images, batch, fast=True, compiled=True)
        rates = best_rates(sides, 1, arguments.layouts, batch)
        plain = rates.pop("bare PyTorch, float32")
        for name, rate in rates.items():
            goal = f"≥ {GOAL_BFLOAT16}" if name.endswith("bfloat16") else ""
            met = ("yes" if rate / plain >= GOAL_BFLOAT16 else "NO") if goal else ""
            table.add_row(name, f"{rate:,.0f}", f"{rate / plain:.3f}", goal, met)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
