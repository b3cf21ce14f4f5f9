"""Worker processes that do not run the caller's script again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


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
