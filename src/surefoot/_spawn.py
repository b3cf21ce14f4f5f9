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
    ``if __name__ == "__main__"``. Ours only need modules of this package, so a plain script may use them too. What is
    sent to such workers must not refer to ``__main__``: see :func:`needs_main`.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def needs_main(*pickled: bytes) -> bool:
    """Whether pickled objects refer to classes or functions of the caller's script.

    >>> import pickle
    >>> needs_main(pickle.dumps([1.0]))
    False
    """
    return any(b"__main__" in data for data in pickled)
