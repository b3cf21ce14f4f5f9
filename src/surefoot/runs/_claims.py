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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LEASE = 60.0
"""Seconds that a claim holds unless it is renewed."""

_living: set[str] = set()
"""Owners of this process that have not ended."""


@contextmanager
def owner(renew: Callable[[str], None]) -> Iterator[str]:
    """The name of one study or search of one process; while it lasts, another thread has ``renew`` renew its claims."""
    name = json.dumps({"host": _host(), "pid": os.getpid(), "start": _start(os.getpid()), "id": uuid.uuid4().hex})
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(LEASE / 4):
            with suppress(Exception):  # a full disk, say: the sweep itself will tell
                renew(name)

    thread = threading.Thread(target=beat, name="surefoot-claims", daemon=True)
    _living.add(name)
    thread.start()
    try:
        yield name
    finally:
        ended.set()
        thread.join()
        _living.discard(name)


def is_alive(name: str, until: float, now: float) -> bool:
    """Whether a claim holds; one that ends later than any claim can is damaged."""
    if not now < until <= now + 2 * LEASE:
        return False
    try:
        parts = json.loads(name)
        host, pid, start = parts["host"], int(parts["pid"]), parts["start"]
    except (ValueError, KeyError, TypeError):
        return False
    if host != _host():
        return True
    if pid == os.getpid():
        return name in _living
    return exists(pid) and _start(pid) == start


def exists(pid: int) -> bool:
    """Whether this machine has a process with this number; one that nobody has waited for counts."""
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
    """The name of this machine, of its last start, and of the namespace of its process numbers."""
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
