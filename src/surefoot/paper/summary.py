"""A sweep on a network in a few numbers a method and rate: claims are judged by them, and they can be shipped."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from surefoot._base.files import write_whole
from surefoot._base.text import csv_text
from surefoot.paper.curves import EARLY, Floats, Found, MissingRuns, curves
from surefoot.study import Result, Sensitivity, measure_windows

COLUMNS = {
    "loss": "the loss at the last iterate",
    "half_loss": "the loss after half the epochs",
    "valid_loss": "the validation loss",
    "bound": "the bound",
    "half_bound": "the bound after half the epochs",
    "noise": "the part of the bound that does not depend on D",
    "travel": "how far they went",
    "early_delta": f"the largest index of the first {EARLY} steps",
    "polyak": f"the median of f/‖g‖² over the first {EARLY} steps",
    "first_polyak": "f/‖g‖² at the first step",
}
"""What is kept of every method and rate, the mean over the data orders."""


@dataclass(frozen=True)
class Summary:
    """One method with one schedule over its learning rates."""

    label: str
    """``sgd``, or ``sgd+warmup`` with a warmup."""
    lrs: Floats
    columns: Mapping[str, Floats]

    def __getitem__(self, name: str) -> Floats:
        """One of :data:`COLUMNS` for every rate.

        Raises:
            MissingRuns: It was not kept.
        """
        values = self.columns[name]
        if np.isnan(values).all():
            raise MissingRuns(f"{self.label} that tell {COLUMNS[name]}")
        return values

    def window(self, loss: Floats, bound: Floats, reference: float, optimal: float) -> Sensitivity:
        """Best rate and window of a loss and a bound: at most a tenth of ``reference − optimal`` above the best."""
        return next(iter(measure_windows([self.label], self.lrs, loss[None], bound[None], reference, optimal)))


def summarise(results: Mapping[str, Result]) -> dict[str, Summary]:
    """The summaries of a sweep by label, from the results of its parts."""
    summaries: Found[Summary] = Found()
    for label, curve in curves(results).items():
        with np.errstate(over="ignore"):
            measured = {name: curve.measure(name) for name in COLUMNS}
            means = {name: values.mean(axis=1) if values.ndim > 1 else values for name, values in measured.items()}
        summaries[label] = Summary(label, curve.lrs, means)
    return summaries


def write(summaries: Mapping[str, Summary], path: Path) -> None:
    """Write a table with one row a method and rate; what was not kept is left empty."""
    rows: list[tuple[object, ...]] = []
    for label, summary in summaries.items():
        for position, lr in enumerate(summary.lrs):
            values = (summary.columns[name][position] for name in COLUMNS)
            rows.append((label, float(lr), *("" if np.isnan(value) else f"{value:.6g}" for value in values)))
    write_whole(path, csv_text(("method", "lr", *COLUMNS), rows), "the summary")


def read(path: Path | Traversable) -> dict[str, Summary]:
    """Read the summaries that :func:`write` wrote."""
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    summaries: Found[Summary] = Found()
    for label in dict.fromkeys(row["method"] for row in rows):
        of_method = [row for row in rows if row["method"] == label]
        numbers = {name: np.array([float(row[name] or "nan") for row in of_method]) for name in ("lr", *COLUMNS)}
        summaries[label] = Summary(label, numbers.pop("lr"), numbers)
    return summaries


def joined(known: Mapping[str, Summary], newer: Mapping[str, Summary]) -> dict[str, Summary]:
    """The rows of two summaries, those of ``newer`` where both have the same method and rate.

    A sweep that takes several days on several machines becomes one record so.
    """
    summaries: Found[Summary] = Found()
    for label in dict.fromkeys([*known, *newer]):
        parts = [part[label] for part in (newer, known) if label in part]
        lrs, places = np.unique(np.concatenate([part.lrs for part in parts]), return_index=True)
        columns = {name: np.concatenate([part.columns[name] for part in parts])[places] for name in COLUMNS}
        summaries[label] = Summary(label, lrs, columns)
    return summaries


def recorded(name: str, preset: str) -> dict[str, Summary] | None:
    """The summaries of a sweep that was run once, which come with the package; None if there are none.

    >>> list(recorded("cifar10", "small"))
    ['sgd', 'sps', 'ngn', 'log-ngn', 'sgd+warmup']
    """
    path = resources.files("surefoot.paper").joinpath("recorded", f"{name}-{preset}.csv")
    return read(path) if path.is_file() else None
