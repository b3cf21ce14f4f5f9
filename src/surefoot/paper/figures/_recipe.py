"""How a figure is made: the runs that it needs, the data set that is made of them, and how that is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


class Recipe(NamedTuple):
    """How a figure is made: an entry of the table of figures.

    >>> Recipe("8", "Logistic regression", dict, lambda data: None).heading
    'Figure 8. Logistic regression'
    """

    number: str
    """The figure's number in the paper; empty for a figure of our own."""
    title: str
    """What the figure shows."""
    data: Callable[..., xr.Dataset]
    """What is shown: of the results of the ``studies``, of the sizes of the sweep on CIFAR-10, or of nothing."""
    draw: Callable[[xr.Dataset], Figure]
    studies: tuple[str, ...] = ()
    """Names of the convex experiments that the figure shows."""
    is_sweep: bool = False
    """Whether the figure shows the sweep on CIFAR-10."""

    @property
    def heading(self) -> str:
        """What stands over the figure: its number in the paper, and what it shows."""
        return f"{f'Figure {self.number}' if self.number else 'Beyond the paper'}. {self.title}"
