"""The paper's figures, and some of our own, each with ``data()`` and ``draw(columns)``.

``data()`` computes a tidy table (a mapping from column names to arrays of equal length), ``draw`` makes a matplotlib
figure of it, and :func:`save` writes picture and numbers side by side.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from surefoot._files import replacing
from surefoot.paper.experiments import EXPERIMENTS
from surefoot.plots.panels import Columns
from surefoot.plots.style import entitled
from surefoot.theory.arguments import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, tuple[str, str]] = {
    "toy-function": ("theory", "1"),
    "stability-index": ("theory", "3"),
    "power-law": ("theory", "2 (left)"),
    "universal-curves": ("theory", ""),
    "linear-regression": ("convex", "6"),
    "v1": ("convex", "7 (left)"),
    "v2": ("convex", "7 (middle)"),
    "v3": ("convex", "7 (right)"),
    "vowel": ("convex", "8"),
    "dna": ("convex", "12"),
    "interpolation": ("convex", ""),
    "level": ("convex", ""),
    "pep": ("worst_cases", "2 (right)"),
    "pep-bounds": ("worst_cases", ""),
    "cifar10-loss-and-bound": ("networks", "4"),
    "cifar10-delta": ("networks", "5"),
    "cifar10-distances": ("networks", "9"),
    "cifar10-half": ("networks", "10"),
    "cifar10-validation": ("networks", "11"),
    "cifar10-travel": ("networks", ""),
    "cifar10-pool-bias": ("networks", ""),
    "cifar10-log-ngn": ("networks", ""),
    "cifar10-geometries": ("networks", ""),
    "characters": ("networks", ""),
}
"""Name of a figure, the module of this package that makes it, and its number in the paper (none: it is our own); in the
order in which they are made."""

SWEEPS = tuple(EXPERIMENTS)
"""Figures of convex studies."""

NETWORKS = tuple(name for name, (module, _) in FIGURES.items() if module == "networks")
"""Figures of networks, which are made only when they are asked for by name."""

CIFAR10 = NETWORKS[:-2]
"""Figures of one sweep of ResNet20 on CIFAR-10, which is named ``cifar10``."""

GROUPS = {"cifar10": CIFAR10}
"""Names that stand for several figures; so do the paper's numbers, ``figure1`` to ``figure12``."""

LAST = max(int(number.split()[0]) for _, number in FIGURES.values() if number)
"""The paper's last figure."""


class Maker(Protocol):
    """What makes a figure."""

    @property
    def TITLE(self) -> str:
        """What the figure shows."""

    def data(self) -> Columns:
        """Compute the figure's table."""

    def draw(self, columns: Columns) -> Figure:
        """Draw the table."""


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


def numbered(name: str) -> str:
    """What a figure is called in a heading.

    >>> numbered("v2"), numbered("level")
    ('Figure 7 (middle)', 'Beyond the paper')
    """
    number = FIGURES[name][1]
    return f"Figure {number}" if number else "Beyond the paper"


def of_number(name: str) -> list[str]:
    """Our names of a figure of the paper, ``figure7`` or ``fig. 7``; none if it is no such name.

    >>> of_number("Figure 7"), of_number("fig1"), of_number("vowel")
    (['v1', 'v2', 'v3'], ['toy-function'], [])
    """
    found = re.fullmatch(r"fig(?:ure|\.)?[\s_-]*(\d+)", name.strip().lower())
    return [ours for ours, (_, number) in FIGURES.items() if found and number.split(" ")[0] == found[1]]


def title_of(name: str, words: str) -> str:
    """What stands over a figure: its number in the paper, and what it shows.

    >>> title_of("vowel", "Logistic regression"), title_of("cifar10-log-ngn", "LogNGN")
    ('Figure 8: logistic regression', 'Beyond the paper: LogNGN')
    """
    plain = words.split()[0][1:].islower()  # no name such as LogNGN
    return f"{numbered(name)}: {words[:1].lower() + words[1:] if plain else words}"


def load(name: str, folder: Path | None = None, **network: Any) -> Maker:
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
    module = importlib.import_module(f"surefoot.paper.figures.{FIGURES[name][0]}")
    if name in NETWORKS:
        return cast(Maker, module.NetworkFigure(name, folder, **network))
    return cast(Maker, module.SweepFigure(name, folder) if name in SWEEPS else module.FIGURES[name])


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
