"""Progress of any work: a bar on the terminal, or a function of yours."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Tell = bool | Callable[[int], None] | Callable[[int, int], None]
"""True shows a bar, False stays quiet, a function is told how much is done, and of how much if it takes both."""


class Report(Protocol):
    """A function that is told how much is done, how much more is under way, and, if nobody has said it, of how much."""

    def __call__(self, done: int, underway: float = 0.0, total: int | None = None) -> None:
        """Take notice of how much is done."""


@contextmanager
def reporter(
    progress: Tell | None, *, total: int | None = None, unit: str = "runs", about: str | None = None
) -> Iterator[Report]:
    """A function that is told how much of some work is done.

    The bar is on standard error, with the rate and the time left; a function is called whenever one more is finished.

    Args:
        progress: Who wants to know.
        total: How much there is to do, if it is known beforehand.
        unit: What is counted.
        about: What stands before the bar, by default the unit.
    """
    if callable(progress):
        yield _passing_on(progress, total)
        return
    if not progress:
        yield lambda done, underway=0.0, total=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
        TaskProgressColumn(show_speed=True), TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(about or unit, total=total, count="", rate="")

        def show(done: int, underway: float = 0.0, total: int | None = total) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            count = str(done) if total is None else f"{done}/{total}"
            rate = _rate(speed, unit) if speed else ""
            bar.update(task, completed=done + underway, total=total, count=count, rate=rate)

        yield show


def _passing_on(function: Callable[..., None], total: int | None) -> Report:
    """Tell a function whenever the number has changed."""
    try:
        inspect.signature(function).bind(0, 1)
        takes_total = True
    except TypeError:
        takes_total = False
    except ValueError:  # a builtin without a signature
        takes_total = True
    last = 0

    def pass_on(done: int, underway: float = 0.0, total: int | None = total) -> None:
        nonlocal last
        if done != last:
            last = done
            function(done, total) if takes_total else function(done)

    return pass_on


def tell(progress: object, text: str) -> None:
    """Write a line about a study to the log ``surefoot``, and to the terminal if a bar is shown there."""
    logging.getLogger("surefoot").info(text)
    if progress is True:
        from rich.console import Console

        Console(stderr=True, soft_wrap=True, highlight=False).print(text, markup=False)


def _rate(speed: float, unit: str) -> str:
    return f"{speed:.0f} {unit}/s" if speed >= 1 else f"{60 * speed:.1f} {unit}/min"
