"""Progress of any work: a bar on the terminal, or a function of yours."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Tell = bool | Callable[[int], None] | Callable[[int, int], None]
"""True shows a bar, False stays quiet; a function is called with what is done, and with the total if it takes both."""


class Report(Protocol):
    """A function that takes how much is done, and the total if it was not known before."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show how much is done."""


@contextmanager
def reporter(
    progress: Tell | None, *, total: int | None = None, unit: str = "runs", about: str | None = None
) -> Iterator[Report]:
    """A function that reports how much of some work is done.

    Args:
        progress: True for a bar on standard error, with the rate and the time left; or a function, which is called
            whenever more is done.
        total: How much there is to do, if it is known beforehand.
        unit: What is counted.
        about: The text before the bar, by default the unit.
    """
    if callable(progress):
        yield _calling(progress, total)
        return
    if not progress:
        yield lambda done, total=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(about or unit, total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)


def _calling(function: Callable[..., None], total: int | None) -> Report:
    """Call a function with one or two arguments whenever the number has changed."""
    try:
        inspect.signature(function).bind(0, 1)
        takes_total = True
    except TypeError:
        takes_total = False
    except ValueError:  # a builtin without a signature
        takes_total = True
    last = 0

    def report(done: int, total: int | None = total) -> None:
        nonlocal last
        if done != last:
            last = done
            function(done, total) if takes_total else function(done)

    return report


def tell(progress: object, text: str) -> None:
    """Write a line about a study to the log ``surefoot``, and to the terminal if a bar is shown there."""
    logging.getLogger("surefoot").info(text)
    if progress is True:
        from rich.console import Console

        Console(stderr=True, soft_wrap=True, highlight=False).print(text, markup=False)
