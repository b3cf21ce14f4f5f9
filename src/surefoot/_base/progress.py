"""Progress of any work: a bar on the terminal, or a function of yours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

Tell = bool | Callable[[int, Any], None]
"""True shows a bar, False stays quiet; a function is called with what is done and with the total."""


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
        last = 0

        def report(done: int, total: int | None = total) -> None:
            nonlocal last
            if done != last:
                last = done
                progress(done, total)

        yield report
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


def tell(progress: object, text: str) -> None:
    """Write a line about a study to the log ``surefoot``, and to the terminal if a bar is shown there."""
    logging.getLogger("surefoot").info(text)
    if progress is True:
        from rich.console import Console

        Console(stderr=True, soft_wrap=True, highlight=False).print(text, markup=False)
