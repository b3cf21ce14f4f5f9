"""Which optimizer holds at which learning rate: the table of docs/which-optimizer.md.

    python benchmarks/optimizer_rates.py [--quick]

A network with one hidden layer of 64 on the bundled sets vowel and dna, batches of 16, two data orders, constant rate.
Every cell is the mean loss over the training set after the last step, divided by that before the first; inf if it
diverged. An optimizer *holds* at a rate if its final loss is within 10 % of the way back from its best to the start.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import torch

import surefoot.optim as sfo
from geometries import cell, window
from surefoot import data

RATES = {"Euclidean": [10.0**k for k in (-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2)]}
RATES["Diagonal"] = [10.0**k for k in (-4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0)]

Factory = Callable[[Any, float], torch.optim.Optimizer]
TORCH: dict[str, Factory] = {
    "torch SGD": lambda params, lr: torch.optim.SGD(params, lr),
    "torch SGD, momentum 0.9": lambda params, lr: torch.optim.SGD(params, lr, momentum=0.9, dampening=0.9),
    "torch AdamW": lambda params, lr: torch.optim.AdamW(params, lr, weight_decay=0.0),
}


def final_loss(
    factory: Factory, lr: float, inputs: torch.Tensor, labels: torch.Tensor, steps: int, order: int
) -> float:
    """Loss over the training set at the end, relative to the start."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, int(labels.max()) + 1)
    )
    optimizer = factory(net.parameters(), lr)
    loss_of = torch.nn.functional.cross_entropy
    with torch.no_grad():
        start = loss_of(net(inputs), labels).item()
    generator = torch.Generator().manual_seed(order)
    batches = torch.randperm(len(labels), generator=generator)
    position = 0
    for _ in range(steps):
        if position + 16 > len(labels):
            batches, position = torch.randperm(len(labels), generator=generator), 0
        rows = batches[position : position + 16]
        position += 16
        optimizer.zero_grad()
        loss = loss_of(net(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        end = loss_of(net(inputs), labels).item()
    return end / start if math.isfinite(end) else math.inf


def table(name: str, steps: int, orders: int) -> None:
    dataset = data.load(name)
    inputs, labels = torch.tensor(dataset.X, dtype=torch.float32), torch.tensor(dataset.y, dtype=torch.int64)
    factories: dict[str, Factory] = {**TORCH, **sfo.TABLE}  # type: ignore[dict-item]
    for kind, rates in RATES.items():
        print(f"\n{name}, {steps} steps\n")
        print("| optimizer | holds | best | " + " | ".join(f"{lr:.3g}" for lr in rates) + " |")
        print("|---" * (len(rates) + 3) + "|")
        for optimizer, factory in factories.items():
            if ("Adam" in optimizer) != (kind == "Diagonal") or "Muon" in optimizer:  # those are in geometries.py
                continue
            losses = [
                sum(final_loss(factory, lr, inputs, labels, steps, order) for order in range(orders)) / orders
                for lr in rates
            ]
            low, best, high = window(losses)
            cells = " | ".join(cell(loss) for loss in losses)
            held = f"{rates[low]:.3g} … {rates[high]:.3g} | {rates[best]:.3g}"
            print(f"| {optimizer} | {held} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one data order, few steps")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    for name, steps in (("vowel", 1000), ("dna", 1000)):
        table(name, 50 if quick else steps, 1 if quick else 2)


if __name__ == "__main__":
    main()
