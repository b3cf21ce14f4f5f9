"""Watching a script that nobody has changed: every torch optimizer in it is judged while it trains.

``surefoot watch train.py`` is the way in; :func:`prepare` is the same from Python, for a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from surefoot.watch._script import Script
from surefoot.watch._session import HOPELESS, Hopeless, Session, Settings

__all__ = ["HOPELESS", "Hopeless", "Script", "Settings", "prepare"]


def prepare(script: Script, settings: Settings) -> Callable[[], None]:
    """Check everything that can be checked before a script runs; what is returned runs it, in this process.

    What the script prints, returns and raises is its own. Words go to stderr, page and trace to a folder.

    Raises:
        ValueError: There is no such script, it is no Python file, or a setting makes no sense.
        OSError: The folder cannot be had.
    """
    script.check()
    session = Session(script, settings)

    def observe_torch() -> None:
        from surefoot.watch._observer import observe

        observe(session)

    return partial(script.run, observe_torch, session.ended)
