"""How a figure is made: the runs that it needs, the table that is made of them, and how the table is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.paper import experiments
from surefoot.plots.panels import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Recipe:
    """How a figure is made: a row of the table of figures.

    >>> Recipe("8", "Logistic regression", dict, lambda columns: None).heading
    'Figure 8: logistic regression'
    """

    number: str
    """The figure's number in the paper; empty for a figure of our own."""
    title: str
    """What the figure shows."""
    data: Callable[..., Columns]
    """Computes the figure's table: columns of equal length by name. It is given the runs that the figure needs: the
    result of a ``study``, or the settings and results of a ``sweep``; nothing if there are neither."""
    draw: Callable[[Columns], Figure]
    """Draws the figure from its table."""
    study: str = ""
    """Name of the convex experiment whose runs the figure shows."""
    sweep: str = ""
    """Name of the sweep on a network whose runs the figure shows; such a figure is made only when asked for by name."""
    is_slow: bool = False
    """Whether the figure takes seconds, and so is begun before the others."""

    @property
    def heading(self) -> str:
        """What stands over the figure: its number in the paper, and what it shows."""
        number = f"Figure {self.number}" if self.number else "Beyond the paper"
        plain = self.title.split()[0][1:].islower()  # no name such as LogNGN
        return f"{number}: {self.title[:1].lower() + self.title[1:] if plain else self.title}"

    def columns(self, folder: Path | None = None) -> Columns:
        """The table of a figure that trains no network; its study keeps its runs in the folder, if one is given."""
        return self.data(experiments.run(self.study, folder)) if self.study else self.data()
