"""Progress of a study: a bar on the terminal, or a function of yours."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = bool | Callable[[int], None] | Callable[[int, int], None]
"""True shows a bar, False stays quiet, a function is told how much is done, and of how much if it takes both."""


@contextmanager
def reporter(progress: Tell | None, *, total: int, unit: str = "runs") -> Iterator[Callable[[int, float], None]]:
    """A function that is told how many runs (or steps) are done, and how much of others, in runs.

    The bar is on standard error, with the rate and the time left; a function is called whenever one is finished.
    """
    if callable(progress):
        tell, both, told = progress, _takes_both(progress), 0

        def pass_on(done: int, underway: float) -> None:
            nonlocal told
            if done != told:
                told = done
                tell(done, total) if both else tell(done)  # type: ignore[call-arg]

        yield pass_on
        return
    if not progress:
        yield lambda done, underway: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(unit), BarColumn(), TextColumn("{task.fields[done]}/{task.total:.0f}"),
        TaskProgressColumn(show_speed=True), TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(unit, total=total, done=0, rate="")

        def show(done: int, underway: float) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, completed=done + underway, done=done, rate=_rate(speed, unit) if speed else "")

        yield show


def tell(progress: object, text: str) -> None:
    """A line about a study: to the log ``surefoot``, and where a bar is shown above it."""
    logging.getLogger("surefoot").info(text)
    if progress is True:
        from rich.console import Console

        Console(stderr=True, soft_wrap=True, highlight=False).print(text, markup=False)


def _takes_both(function: Callable[..., None]) -> bool:
    try:
        inspect.signature(function).bind(0, 1)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell
        pass
    return True


def _rate(speed: float, unit: str) -> str:
    return f"{speed:.0f} {unit}/s" if speed >= 1 else f"{60 * speed:.1f} {unit}/min"
