"""The paper's figures, and some of our own, each with ``data()`` and ``draw(columns)``.

``data()`` computes a tidy table (a mapping from column names to arrays of equal length), ``draw`` makes a matplotlib
figure of it, and :func:`save` writes picture and numbers side by side.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surefoot._files import replacing
from surefoot.paper.experiments import EXPERIMENTS
from surefoot.plots.panels import Columns
from surefoot.plots.style import entitled
from surefoot.theory.arguments import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surefoot.paper.figures.convex import SweepFigure
    from surefoot.paper.figures.networks import NetworkFigure

FIGURES = {
    "toy-function": "1",
    "stability-index": "3",
    "power-law": "2 (left)",
    "universal-curves": "",
    "linear-regression": "6",
    "v1": "7 (left)",
    "v2": "7 (middle)",
    "v3": "7 (right)",
    "vowel": "8",
    "dna": "12",
    "interpolation": "",
    "level": "",
    "pep": "2 (right)",
    "pep-bounds": "",
    "cifar10-loss-and-bound": "4",
    "cifar10-delta": "5",
    "cifar10-distances": "9",
    "cifar10-half": "10",
    "cifar10-validation": "11",
    "cifar10-travel": "",
    "cifar10-pool-bias": "",
    "cifar10-log-ngn": "",
    "cifar10-geometries": "",
    "characters": "",
}
"""Name of a figure, and its number in the paper (none: it is our own); in the order in which they are made."""

SWEEPS = tuple(EXPERIMENTS)
"""Figures of convex studies."""

NETWORKS = tuple(name for name in FIGURES if name.startswith(("cifar10", "characters")))
"""Figures of networks, which are made only when they are asked for by name."""

CIFAR10 = NETWORKS[:-2]
"""Figures of one sweep of ResNet20 on CIFAR-10, which is named ``cifar10``."""

GROUPS = {"cifar10": CIFAR10}
"""Names that stand for several figures; so do the paper's numbers, ``figure1`` to ``figure12``."""

LAST = max(int(number.split()[0]) for number in FIGURES.values() if number)
"""The paper's last figure."""


class Plain(NamedTuple):
    """A figure without settings."""

    TITLE: str
    data: Callable[[], Columns]
    draw: Callable[[Columns], Figure]


def available() -> list[str]:
    """Names of the figures that are made by default: in minutes, offline, with what is installed."""
    return [name for name in FIGURES if name not in NETWORKS and name not in lacking()]


def lacking() -> list[str]:
    """Names of the figures that need the extra ``pep``, if it is not installed."""
    installed = all(importlib.util.find_spec(name) for name in ("PEPit", "cvxpy"))
    return [] if installed else ["pep", "pep-bounds"]


def expanded(names: Iterable[str]) -> list[str]:
    """Names of figures, each once; groups and the paper's numbers are replaced by what they stand for.

    >>> expanded(["figure2", "cifar10"])[:3]
    ['power-law', 'pep', 'cifar10-loss-and-bound']
    """
    found: list[str] = []
    for name in names:
        ours = of_number(name) or GROUPS.get(name, (name,) if name in FIGURES else ())
        if not ours:
            raise unknown("figure", name, ["figure1", "…", f"figure{LAST}", *FIGURES, *GROUPS])
        found += ours
    return list(dict.fromkeys(found))


def of_number(name: str) -> list[str]:
    """Our names of a figure of the paper, ``figure7`` or ``fig. 7``; none if it is no such name.

    >>> of_number("Figure 7"), of_number("fig1"), of_number("vowel")
    (['v1', 'v2', 'v3'], ['toy-function'], [])
    """
    found = re.fullmatch(r"fig(?:ure|\.)?[\s_-]*(\d+)", name.strip().lower())
    return [ours for ours, number in FIGURES.items() if found and number.split(" ")[0] == found[1]]


def title_of(name: str, words: str) -> str:
    """What stands over a figure: its number in the paper, and what it shows.

    >>> title_of("vowel", "Logistic regression"), title_of("cifar10-log-ngn", "LogNGN")
    ('Figure 8: logistic regression', 'Beyond the paper: LogNGN')
    """
    number = f"Figure {FIGURES[name]}" if FIGURES[name] else "Beyond the paper"
    plain = words.split()[0][1:].islower()  # no name such as LogNGN
    return f"{number}: {words[:1].lower() + words[1:] if plain else words}"


def load(name: str, folder: Path | None = None, **network: Any) -> Plain | SweepFigure | NetworkFigure:
    """What makes a figure, by its name. Studies keep their runs in the folder, if one is given.

    Args:
        name: The figure.
        folder: For runs.
        **network: ``preset``, ``device`` and ``data_path`` of figures of networks; see
            :class:`~surefoot.paper.figures.networks.NetworkFigure`.

    >>> load("power-law").TITLE
    'the bound Ω if δ grows like a power of the rate'
    """
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    from surefoot.paper.figures import convex, networks, theory, worst_cases

    if name in NETWORKS:
        return networks.NetworkFigure(name, folder, **network)
    if name in SWEEPS:
        return convex.SweepFigure(name, folder)
    return {**theory.FIGURES, **convex.FIGURES, **worst_cases.FIGURES}[name]


def save(name: str, columns: Columns, folder: Path) -> list[Path]:
    """Write a figure as PNG and PDF and its table as CSV; each file appears whole or not at all."""
    maker = load(name)
    figure = maker.draw(columns)
    if name not in NETWORKS:  # these have a title with the settings of their runs
        entitled(figure, title_of(name, maker.TITLE), figure.axes)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in ("png", "pdf", "csv"):
        path = folder / f"{name}.{kind}"
        with replacing(path, "the figure") as file:
            if kind == "csv":
                file.write(_csv(columns).encode())
            else:
                # A fixed date keeps the PDF's bytes the same from run to run.
                dated: dict[str, Any] = {"metadata": {"CreationDate": None}} if kind == "pdf" else {}
                figure.savefig(file, format=kind, dpi=160, **dated)
                figure.set_layout_engine("none")  # what was laid out once stays so
        written.append(path)
    return written


def _csv(columns: Columns) -> str:
    """The table as text; every digit of a float is kept, as csv writes their repr."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True))
    return text.getvalue()
