"""Scripts that start their ranks themselves with ``torch.multiprocessing``: the first is watched, where it runs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch.multiprocessing

from surefoot.watch._script import Script
from surefoot.watch._session import Session, Settings


class FirstRank:
    """What a process runs in place of the script's function: the same, watched in the first one."""

    def __init__(self, function: Callable[..., Any], script: Script, settings: Settings) -> None:
        self.function, self.script, self.settings = function, script, settings

    def __call__(self, rank: int, *args: Any) -> Any:
        """Run the function of a rank."""
        if rank != 0:
            return self.function(rank, *args)
        from surefoot.watch._observer import observe

        session = Session(self.script, self.settings)
        observe(session)
        try:
            return self.function(rank, *args)
        except BaseException as error:
            session.ended(error)
            raise
        finally:
            session.finish()  # such a process runs no exit handlers


def follow(session: Session) -> None:
    """Watch the first of the processes that the script starts."""

    def wrapped(start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def started(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if session.muted or isinstance(fn, FirstRank):
                return start(fn, *args, **kwargs)
            session.has_followed = True
            settings = replace(session.settings, out=session.folder.take())
            return start(FirstRank(fn, session.script, settings), *args, **kwargs)

        return started

    module = sys.modules["torch.multiprocessing.spawn"]  # the package has a function of this name
    module.start_processes = wrapped(module.start_processes)  # type: ignore[attr-defined]
    torch.multiprocessing.start_processes = wrapped(torch.multiprocessing.start_processes)  # type: ignore[attr-defined]
