"""Progress of a study: a bar on the terminal, or a function of yours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def reporter(progress: bool | Callable[[int, int], None], *, total: int) -> Iterator[Callable[[int], None]]:
    """A function that is told how many runs are done.

    ``True`` shows a bar on standard error with the rate and the time left, a function is called with the runs done and
    the total, ``False`` stays quiet.
    """
    if callable(progress):
        tell = progress
        yield lambda done: tell(done, total)
        return
    if not progress:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn(show_speed=True),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("runs", total=total, rate="")

        def show(done: int) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, completed=done, rate=f"{speed:.0f} runs/s" if speed else "")

        yield show
