"""Worker processes: how many this machine has room for, and how they leave the caller's script alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def hidden_main() -> Iterator[None]:
    """Start spawned workers inside this context: they then leave the caller's ``__main__`` alone.

    Python's spawned workers import the script that started them, which runs it once more unless it is guarded by
    ``if __name__ == "__main__"``. Ours only need modules of this package, so a plain script may use them too. What such
    workers need of ``__main__`` is sent to them by value (cloudpickle).
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
