"""A watched run: what is printed and written about it, while it goes on and when it is over. Needs no torch."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot._base.text import visible
from surefoot.watch._files import Folder
from surefoot.watch._script import Script

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from surefoot.monitor import Verdict
    from surefoot.watch._watched import Watched

LONGEST = 10**7
"""The longest run that is judged as one of a known length, in steps: a verdict goes through the rates of them all."""
HOPELESS = 86
"""Exit code of a run that ``--stop`` has ended."""
PAUSES = 2.0, 60.0
"""Seconds between two pages, at least and at most."""
SHARE = 0.005
"""The share of the processor time that pages and verdicts may take."""
_MENTIONED = 8
"""Optimizers that are mentioned on stderr; a script that builds hundreds has a page."""


class Hopeless(SystemExit):
    """Ends the script: its ``finally`` blocks and exit handlers run, and ``except Exception`` does not catch it."""


@dataclass(frozen=True)
class Settings:
    """What the user has asked for."""

    horizon: int | None = None
    stop: bool = False
    out: Path | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.horizon is not None and not 1 <= self.horizon <= LONGEST:
            raise ValueError(f"--horizon must be a whole number from 1 to {LONGEST}, got {self.horizon}")


class Session:
    """All that is known of a watched run; one per process."""

    def __init__(self, script: Script, settings: Settings) -> None:
        self.script, self.settings = script, settings
        self.folder = Folder(script.stem, settings.out)
        self.watched: list[Watched] = []
        """The optimizers that have made a step, in the order of their first."""
        self.built: list[str] = []
        """The classes of all optimizers that were built."""
        self.has_torch = False
        self.muted = _is_other_rank()
        """Whether this process is not the one that reports."""
        self.begun = time.time()
        self.status = "running"
        """How it stands, for the page."""
        self._lock = threading.RLock()
        self._names: dict[str, int] = {}
        self._home = Path.cwd()
        self._stderr = sys.stderr  # the script may put another one in its place; None if it is closed
        self._next_page = 0.0
        self._is_over = self._length_was_asked_for = False
        os.register_at_fork(after_in_child=functools.partial(setattr, self, "muted", True))
        # The first to be registered is the last to be called: the script's own exit handlers, and threads of its that
        # go on when its last line is done, come before.
        atexit.register(self.finish)

    def say(self, text: str, *, always: bool = False) -> None:
        """Write a line to stderr, beside progress bars and not into them; it never fails."""
        if self.muted or (self.settings.quiet and not always):
            return
        line = "surefoot: " + visible(text).replace("\n", "\\n") + "\n"
        tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
        with contextlib.suppress(Exception):
            stream: Any = self._stderr
            if type(sys.stderr).__module__ == "rich.file_proxy":  # a live display, which prints above itself
                stream = sys.stderr
            elif stream.isatty():
                line = f"\r\x1b[K{line}"
            with contextlib.nullcontext() if tqdm is None else tqdm.external_write_mode(file=stream):
                stream.write(line)
                stream.flush()

    def announce(self, watched: Watched) -> None:
        """Say that an optimizer is watched."""
        self.watched.append(watched)
        self._names[watched.name] = number = self._names.get(watched.name, 0) + 1
        if number > 1:
            watched.name = f"{watched.name} {number}"
        if len(self.watched) > _MENTIONED:
            return
        if watched.trouble is not None:
            self.say(f"{watched.name} cannot be watched: {watched.trouble}")
            return
        self.say(f"watching {watched.name}, {watched.parameters:,} parameters")
        if len(self.watched) == 1:
            self.draw()
            self.say(f"live page: {self.folder.page.as_uri()}")

    # -- while it goes on ---------------------------------------------------------------------------------------------

    def guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """A function that runs in the process that reports only, one thread at a time.

        An error of ours in it (or a full disk) ends the watching, and never the script.
        """

        @functools.wraps(function)
        def guarded(*args: Any) -> None:
            if self.muted:
                return
            with self._lock:
                try:
                    function(*args)
                except Exception as error:
                    fault = (
                        error if isinstance(error, OSError) else f"a fault of its own, {type(error).__name__}: {error}"
                    )
                    self.say(f"stopped watching: {fault}", always=True)
                    self.muted = True

        return guarded

    def look(self, watched: Watched, frame: FrameType) -> None:
        """Judge after a step, if it is time to."""
        is_time = time.monotonic() >= self._next_page
        if not is_time and watched.steps < watched.next_ask:
            return
        begun = time.thread_time()
        for each in self.watched if is_time else [watched]:
            self.folder.append(each.rows())
            had_trouble = each.trouble is not None
            verdict = each.ask(frame if each is watched else None)
            if each.trouble is not None and not had_trouble:
                self.say(f"gave up on {each.name}: {each.trouble}")
            if verdict is not None and len(self.watched) <= _MENTIONED:
                self._pronounce(each, verdict)
        if is_time:
            self.draw()
            pause = min(max(PAUSES[0], (time.thread_time() - begun) / SHARE), PAUSES[1])
            self._next_page = time.monotonic() + pause
        if watched.hopeless is not None and self.settings.stop:
            self.status = f"stopped at step {watched.steps}: {watched.hopeless}"
            self.say(f"{self._prefix(watched)}{self.status}", always=True)
            raise Hopeless(HOPELESS)

    def draw(self) -> None:
        """Write the page."""
        from surefoot.watch._page import page

        self.folder.replace_page(page(self))

    def keep(self, watched: Watched) -> None:
        """Keep the numbers and the verdict of an optimizer that is gone now."""
        self.folder.append(watched.conclude())

    def _pronounce(self, watched: Watched, verdict: Verdict) -> None:
        known = watched.planned.known
        length = "" if known is None else f" of {known.steps} ({known.source})"
        change = ", the verdict has changed" if len(watched.changes) > 1 else ""
        self.say(f"{self._prefix(watched)}step {watched.steps}{length}{change}. {verdict}")
        if known is None and not self._length_was_asked_for:
            self._length_was_asked_for = True
            self.say(
                "the length of the run is not known: it is taken to be ten times the steps so far, and judged again "
                "at 50, 100, 200, 400, … steps; --horizon STEPS makes the verdict surer"
            )

    def _prefix(self, watched: Watched) -> str:
        """The name of an optimizer in front of a line, if there are several."""
        return f"{watched.name}: " if len(self.watched) > 1 else ""

    # -- when it is over ----------------------------------------------------------------------------------------------

    def ended(self, error: BaseException) -> None:
        """Take note of an exception that the script has let through."""
        if isinstance(error, SystemExit):
            if error.code not in (None, 0) and not isinstance(error, Hopeless):
                self.status = f"ended with exit code {error.code if isinstance(error.code, int) else 1}"
        elif isinstance(error, KeyboardInterrupt):
            self.status = "interrupted"
        else:
            self.status = f"failed with {visible(type(error).__name__)}"

    def finish(self) -> None:
        """Write the last page, and sum up."""
        if not self._is_over:
            self._is_over = True
            self.guarded(self._conclude)()

    def _conclude(self) -> None:
        if self.status == "running":
            self.status = "ended"
        for watched in self.watched:
            self.folder.append(watched.conclude(is_complete=self.status == "ended"))
        for line in self.summary():
            self.say(line)
        if self.watched:
            self.draw()
            page, trace = (
                path.relative_to(self._home) if path.is_relative_to(self._home) else path
                for path in (self.folder.page, self.folder.trace)
            )
            self.say(f"page {page}, trace {trace}")

    def summary(self) -> list[str]:
        """What there is to say at the end, one line per optimizer."""
        name = self.script.name
        if not self.has_torch:
            return [f"{name} has not imported torch: there was nothing to watch"]
        if not self.built:
            return [f"{name} has built no torch optimizer in this process: there was nothing to watch"]
        if not self.watched:
            kinds = ", ".join(dict.fromkeys(self.built))
            return [f"{name} has built {kinds}, and made no step with it: there was nothing to judge"]
        lines = [
            f"{watched.name}: {watched.steps} step{'s' * (watched.steps != 1)}. {watched.summary}"
            for watched in self.watched[:_MENTIONED]
        ]
        if len(self.watched) > _MENTIONED:
            lines.append(f"and {len(self.watched) - _MENTIONED} more optimizers: see the page")
        return lines


def _is_other_rank() -> bool:
    """Whether a launcher has started this process as one of several, and not as the first."""
    for rank, size in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        number, total = os.environ.get(rank, ""), os.environ.get(size, "1")
        if number.isdigit() and total.isdigit() and int(total) > 1:
            return int(number) > 0
    return False
