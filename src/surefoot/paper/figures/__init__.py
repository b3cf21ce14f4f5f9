"""The paper's figures, and some of our own: a table of what each is made of, and how it is drawn.

A figure is drawn from a labelled data set, made of the results of convex studies, of the recorded numbers of the sweep
on CIFAR-10, or of formulas alone; :func:`save` writes picture and numbers side by side.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import xarray as xr

from surefoot._base.arguments import one_of, unknown
from surefoot._base.files import replacing, write_whole
from surefoot.paper import cifar10 as records
from surefoot.paper import experiments
from surefoot.paper.figures import cifar10, convex, formulas, worst_cases
from surefoot.paper.figures.panels import Recipe, table_of
from surefoot.plots.style import legend_below

FIGURES: dict[str, Recipe] = {**formulas.FIGURES, **convex.FIGURES, **worst_cases.FIGURES, **cifar10.FIGURES}
"""Every figure by its name, in the order in which they are made."""
GROUPS = {"cifar10": tuple(cifar10.FIGURES)}
"""Names that stand for several figures; so do the paper's numbers, ``figure1`` to ``figure12``."""
LAST = 12
"""The paper's last figure."""


def lacking() -> list[str]:
    """Names of the figures that need the extra ``pep``, if it is not installed."""
    installed = all(importlib.util.find_spec(name) for name in ("PEPit", "cvxpy"))
    return [] if installed else list(worst_cases.FIGURES)


def available() -> list[str]:
    """Names of the figures that are made by default: in a minute, offline, with what is installed."""
    return [name for name in FIGURES if name not in lacking()]


def expanded(names: Iterable[str]) -> list[str]:
    """Names of figures, each once; groups and the paper's numbers are replaced by what they stand for.

    >>> expanded(["figure2", "cifar10"])[:3]
    ['power-law', 'pep', 'cifar10-loss-and-bound']
    >>> expanded(["Fig. 7"])
    ['variants']
    """
    chosen: list[str] = []
    for name in names:
        match = re.fullmatch(r"fig(?:ure|\.)?[\s_-]*(\d+)", name.strip().lower())
        found = [ours for ours, recipe in FIGURES.items() if match and recipe.number.split(" ")[0] == match[1]]
        found = found or [*GROUPS.get(name, (name,) if name in FIGURES else ())]
        if not found:
            raise unknown("figure", name, ["figure1", "…", f"figure{LAST}", *FIGURES, *GROUPS])
        chosen += found
    return list(dict.fromkeys(chosen))


def data(name: str, studies: Path | None = None, presets: Sequence[str] = records.TRUSTED) -> xr.Dataset:
    """What a figure shows.

    Args:
        name: The figure.
        studies: A folder where convex studies keep their runs, and where a sweep of yours is looked for before the
            recorded ones.
        presets: Which sizes of the sweep.

    >>> dict(sorted(data("power-law").sizes.items()))
    {'lr': 101, 'nu': 6}
    """
    recipe = FIGURES[one_of("figure", name, FIGURES)]
    if recipe.is_sweep:
        return recipe.data(records.recorded(studies, presets))
    return recipe.data(*(experiments.run(study, studies) for study in recipe.studies))


def save(name: str, shown: xr.Dataset, folder: Path) -> list[Path]:
    """Write a figure as PNG and PDF and its numbers as CSV; each file appears whole or not at all."""
    recipe = FIGURES[one_of("figure", name, FIGURES)]
    figure = recipe.draw(shown)
    if not figure.legends and not any(ax.get_legend() for ax in figure.axes):
        legend_below(figure, figure.axes)
    figure.suptitle(recipe.heading, fontsize=11)
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
    write_whole(table, table_of(shown), "the table")
    return [picture, document, table]
