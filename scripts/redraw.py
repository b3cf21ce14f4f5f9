"""Draw figures again from their tables, without running anything.

    python scripts/redraw.py FOLDER TABLE.csv [TABLE.csv ...]

A table is what ``surefoot reproduce`` writes beside a picture; its name is the figure's. From
docs/reproduction/cifar10-small.csv, which has one row a run and no traces, come the three figures of CIFAR-10 that need
no more: loss and bound, validation loss, and the bound for several D.
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

import numpy as np

from surefoot.paper import figures, presets
from surefoot.paper.figures.networks import DISTANCES
from surefoot.plots.panels import Columns, Row, as_columns
from surefoot.theory import bounds, schedules

STEPS, WARMUP, GUESS = 390, 100, 20.0
"""Of the small preset: 78 batches in each of 5 epochs."""


def read(path: Path) -> dict[str, np.ndarray]:
    """A table by column."""
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    return {name: numbers(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def numbers(column: tuple[str, ...]) -> np.ndarray:
    """Whole numbers, numbers, or words."""
    for kind in (int, float):
        try:
            return np.array([kind(cell) for cell in column])
        except ValueError:
            pass
    return np.array(column)


def of_runs(runs: dict[str, np.ndarray]) -> dict[str, Columns]:
    """Tables of the figures that final losses and bounds are enough for."""
    names = ("loss-and-bound", "validation", "distances")
    rows: dict[str, list[Row]] = {
        name: [
            ("problem", presets.described(presets.sweep("cifar10", "small")), 0.0, -1, 0.0),
            ("constant", "reference", 0.0, -1, math.log(10)),
            ("constant", "distance", 0.0, -1, GUESS),
        ]
        for name in names
    }
    for method, lr, last, valid, bound in zip(
        *(runs[name] for name in ("method", "lr", "last_loss", "valid_loss", f"bound_D{GUESS:.0f}")), strict=True
    ):
        warm = method.endswith("+warmup")
        rates = lr * (schedules.warmup(STEPS, steps=WARMUP) if warm else schedules.constant(STEPS))
        noise = bound - float(bounds.distance_bias(rates, GUESS))
        for name, loss in (("loss-and-bound", last), ("validation", valid)):
            rows[name] += [(kind, method, lr, -1, loss) for kind in ("loss", "loss-low", "loss-high")]
            rows[name].append(("bound", method, lr, -1, bound))
        for distance in DISTANCES:
            total = noise + float(bounds.distance_bias(rates, distance))
            rows["distances"].append((f"bound D={distance:.3g}", method, lr, -1, total))
    return {f"cifar10-{name}": as_columns(found) for name, found in rows.items()}


def main() -> None:
    """Read, draw, say where."""
    folder, *paths = map(Path, sys.argv[1:])
    for path in paths:
        table = read(path)
        found = of_runs(table) if "last_loss" in table else {path.stem: table}
        for name, columns in found.items():
            figures.save(name, columns, folder)
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
