"""Draw figures again from their tables, without running anything.

    python scripts/redraw.py FOLDER TABLE.csv [TABLE.csv ...]

A table is what ``surefoot reproduce`` writes beside a picture; its name is the figure's. From the summary of a sweep,
such as src/surefoot/paper/recorded/cifar10-small.csv, which has one row a method and rate and no traces, come the
figures of CIFAR-10 that need no more: loss and bound, half the epochs, validation loss, and the bound for several D.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from surefoot.paper import figures, presets, summary
from surefoot.paper.curves import MissingRuns
from surefoot.paper.figures.networks import DISTANCES
from surefoot.plots.panels import Columns, Row, as_columns


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


def of_summary(path: Path) -> dict[str, Columns]:
    """Tables of the figures that numbers of whole runs are enough for; the file is NAME-PRESET.csv."""
    name, _, preset = path.stem.rpartition("-")
    sweep = presets.sweep(name, preset)
    runs = summary.read(path)
    settings = next(iter(sweep.parts.values()))
    assert sweep.reference is not None
    tables: dict[str, list[Row]] = {}
    for figure, loss, bound in (
        ("loss-and-bound", "loss", "bound"),
        ("half", "half_loss", "half_bound"),
        ("validation", "valid_loss", "bound"),
    ):
        rows: list[Row] = [("constant", "epochs", 0.0, -1, settings["epochs"] // 2)]
        try:
            for label, found in runs.items():
                for lr, height, total in zip(found.lrs, found[loss], found[bound], strict=True):
                    rows += [(kind, label, float(lr), -1, height) for kind in ("loss", "loss-low", "loss-high")]
                    rows.append(("bound", label, float(lr), -1, total))
        except MissingRuns as absent:
            print(f"{name}-{figure} is left out: no runs of {absent.args[0]}")
            continue
        tables[figure] = rows
    tables["distances"] = [  # the bias, which is all of the bound but its noise, grows as D²
        (f"bound D={distance:.3g}", label, float(lr), -1, noise + (distance / settings["distance"]) ** 2 * bias)
        for label, found in runs.items()
        for lr, noise, bias in zip(found.lrs, found["noise"], found["bound"] - found["noise"], strict=True)
        for distance in DISTANCES
    ]
    shared: list[Row] = [
        ("problem", presets.described(sweep), 0.0, -1, 0.0),
        ("constant", "reference", 0.0, -1, sweep.reference),
        ("constant", "distance", 0.0, -1, settings["distance"]),
    ]
    return {f"{name}-{figure}": as_columns([*shared, *rows]) for figure, rows in tables.items()}


def main() -> None:
    """Read, draw, say where."""
    folder, *paths = map(Path, sys.argv[1:])
    for path in paths:
        table = read(path)
        found = of_summary(path) if "first_polyak" in table else {path.stem: table}
        for name, columns in found.items():
            figures.save(name, columns, folder)
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
