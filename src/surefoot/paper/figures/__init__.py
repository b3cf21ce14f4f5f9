"""The paper's figures, and some of our own: one table, a row a figure.

A row says which runs the figure needs, what table (a mapping from column names to arrays of equal length) is made of
them, and how that is drawn; :func:`save` writes picture and numbers side by side.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from surefoot._base.arguments import one_of, unknown
from surefoot._base.files import replacing, write_whole
from surefoot._base.text import csv_text
from surefoot.paper.figures import convex, networks, theory, worst_cases
from surefoot.paper.figures._recipe import Recipe
from surefoot.plots.panels import Columns
from surefoot.plots.style import legend_below

FIGURES: dict[str, Recipe] = {**theory.FIGURES, **convex.FIGURES, **worst_cases.FIGURES, **networks.FIGURES}
"""Every figure by its name, in the order in which they are made."""

NETWORKS = tuple(name for name, recipe in FIGURES.items() if recipe.sweep)
"""Figures of networks, which are made only when they are asked for by name."""

CIFAR10 = tuple(name for name in NETWORKS if FIGURES[name].sweep == "cifar10")
"""Figures of one sweep of ResNet20 on CIFAR-10, which is named ``cifar10``."""

GROUPS = {"cifar10": CIFAR10}
"""Names that stand for several figures; so do the paper's numbers, ``figure1`` to ``figure12``."""

LAST = max(int(recipe.number.split()[0]) for recipe in FIGURES.values() if recipe.number)
"""The paper's last figure."""


def available() -> list[str]:
    """Names of the figures that are made by default: in minutes, offline, with what is installed."""
    return [name for name in FIGURES if name not in NETWORKS and name not in lacking()]


def lacking() -> list[str]:
    """Names of the figures that need the extra ``pep``, if it is not installed."""
    installed = all(importlib.util.find_spec(name) for name in ("PEPit", "cvxpy"))
    return [] if installed else list(worst_cases.FIGURES)


def expanded(names: Iterable[str]) -> list[str]:
    """Names of figures, each once; groups and the paper's numbers are replaced by what they stand for.

    >>> expanded(["figure2", "cifar10"])[:3]
    ['power-law', 'pep', 'cifar10-loss-and-bound']
    """
    chosen: list[str] = []
    for name in names:
        ours = of_number(name) or GROUPS.get(name, (name,) if name in FIGURES else ())
        if not ours:
            raise unknown("figure", name, ["figure1", "…", f"figure{LAST}", *FIGURES, *GROUPS])
        chosen += ours
    return list(dict.fromkeys(chosen))


def of_number(name: str) -> list[str]:
    """Our names of a figure of the paper, ``figure7`` or ``fig. 7``; none if it is no such name.

    >>> of_number("Figure 7"), of_number("fig1"), of_number("vowel")
    (['v1', 'v2', 'v3'], ['toy-function'], [])
    """
    match = re.fullmatch(r"fig(?:ure|\.)?[\s_-]*(\d+)", name.strip().lower())
    return [ours for ours, recipe in FIGURES.items() if match and recipe.number.split(" ")[0] == match[1]]


def load(name: str) -> Recipe:
    """How a figure is made, by its name.

    >>> load("power-law").title
    'the bound Ω if δ grows like a power of the rate'
    """
    return FIGURES[one_of("figure", name, FIGURES)]


def save(name: str, columns: Columns, folder: Path) -> list[Path]:
    """Write a figure as PNG and PDF and its table as CSV; each file appears whole or not at all."""
    recipe = load(name)
    figure = recipe.draw(columns)
    settings = columns["method"][columns["kind"] == "problem"].tolist() if recipe.sweep else []
    if not figure.legends and not any(ax.get_legend() for ax in figure.axes):
        legend_below(figure, figure.axes)
    figure.suptitle("\n".join([recipe.heading, *settings]), fontsize=11)
    for ax in figure.axes:
        ax.title.set_fontsize(9.5)
    folder.mkdir(parents=True, exist_ok=True)
    picture, document, table = (folder / f"{name}.{kind}" for kind in ("png", "pdf", "csv"))
    with replacing(picture, "the figure") as file:
        figure.savefig(file, format="png", dpi=160)
    figure.set_layout_engine("none")  # what was laid out once stays so
    with replacing(document, "the figure") as file:
        # A fixed date keeps the PDF's bytes the same from run to run.
        figure.savefig(file, format="pdf", dpi=160, metadata={"CreationDate": None})
    cells = (np.asarray(values).tolist() for values in columns.values())
    write_whole(table, csv_text(columns, zip(*cells, strict=True)), "the table")
    return [picture, document, table]
