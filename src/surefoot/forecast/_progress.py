"""A bar that appears when a fit takes more than two seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0


@contextmanager
def reporter(progress: bool | Callable[[int, int], None] | None, *, total: int) -> Iterator[Callable[[int], None]]:
    """A function that is told how many fits are done."""
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    if progress is False:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("fits"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("fits", total=total)
    began, shown = time.monotonic(), False

    def tell(done: int) -> None:
        nonlocal shown
        if not shown and done < total and (progress or time.monotonic() - began > PATIENCE):
            bar.start()
            shown = True
        bar.update(task, completed=done)

    try:
        yield tell
    finally:
        if shown:
            bar.stop()
