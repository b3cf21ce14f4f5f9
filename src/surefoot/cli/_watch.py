"""``surefoot watch``: reads the command line; the script runs when the command's own machinery is out of the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class Handover(BaseException):
    """Leaves the command with work to be done outside of it: exceptions of a script are not those of the command."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work


def watch(
    script: str, arguments: list[str], module: bool, horizon: int | None, stop: bool, out: Path | None, quiet: bool
) -> None:
    """Check what is asked for, and hand over."""
    from surefoot.watch import Script, Settings, prepare

    work = prepare(Script(script, tuple(arguments), module), Settings(horizon, stop, out, quiet))
    raise Handover(work)
