"""Who computes which runs, where several processes share a store.

A process claims runs before it computes them. A claim ends when its run is stored, when its owner lets it go, and when
the owner is dead: at once if it ran on this machine, else when it has not been renewed for :data:`LEASE` seconds.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from surefoot.runs._connection import StoreError, connect
from surefoot.runs._types import Key

if TYPE_CHECKING:
    from surefoot.runs._store import Store

LEASE = 60.0
"""Seconds that a claim holds unless it is renewed."""

_living: set[str] = set()
"""Owners of this process that have not ended."""


class Owner:
    """One sweep of one process; a thread renews its claims as long as it is entered.

    Args:
        renew: Told to renew the claims of this owner, in another thread.
    """

    def __init__(self, renew: Callable[[str], None]) -> None:
        self.name = json.dumps(
            {"host": _host(), "pid": os.getpid(), "start": _start(os.getpid()), "id": uuid.uuid4().hex}
        )
        self._renew = renew
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="surefoot-claims", daemon=True)

    def __enter__(self) -> Self:
        _living.add(self.name)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        _living.discard(self.name)

    def _beat(self) -> None:
        while not self._ended.wait(LEASE / 4):
            with suppress(Exception):  # a full disk, say: the sweep itself will tell
                self._renew(self.name)


class Claims:
    """The claims of this process in a store; they end with this context, however it ends.

    Args:
        store: Where the runs go to, open for writing.
        context: Of the study.
    """

    def __init__(self, store: Store, context: str) -> None:
        self._store, self._context = store, context
        self._owner = Owner(self._renew)

    def __enter__(self) -> Self:
        self._owner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.__exit__(kind, error, trace)
        with suppress(StoreError):  # a full disk: this owner is dead now, which ends its claims as well
            self._store.release(self._owner.name)

    def take(self, keys: Iterable[Key]) -> bool:
        """Claim runs: all of them, or none if somebody else has one of them, or has stored it."""
        return self._store.claim(self._context, keys, self._owner.name)

    def release(self, keys: Iterable[Key]) -> None:
        """Let others have some runs."""
        self._store.unclaim(self._context, keys, self._owner.name)

    def done(self) -> set[Key]:
        """The runs that are stored."""
        return self._store.done(self._context)

    def _renew(self, owner: str) -> None:
        """Called in another thread, which needs a connection of its own."""
        with type(self._store)(self._store.path, connect(self._store.path, "rw")) as opened:
            opened.renew(owner)


def is_alive(owner: str, until: float, now: float) -> bool:
    """Whether a claim holds; one that ends later than any claim can is damaged."""
    if not now < until <= now + 2 * LEASE:
        return False
    try:
        told = json.loads(owner)
        host, pid, start = told["host"], int(told["pid"]), told["start"]
    except (ValueError, KeyError, TypeError):
        return False
    if host != _host():
        return True
    if pid == os.getpid():
        return owner in _living
    return _exists(pid) and _start(pid) == start


def _exists(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 is one that ends processes
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _host() -> str:
    """This machine since it was started, and the room of process numbers in it."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _start(pid: int) -> str:
    """When a process began, as far as the system tells: numbers of processes are used again."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in (b"Z", b"X") else words[19].decode()
