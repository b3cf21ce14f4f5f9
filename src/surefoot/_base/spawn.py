"""Worker processes: how many this machine has room for, and how they leave the caller's script alone."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of these options in malloc.h."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_memory() -> None:
    """Let this process keep what it frees, in large pages; call it before torch has allocated anything.

    A step of training frees its activations and asks for as many again. Where malloc gives them back to the system in
    between (glibc, arrays of megabytes), every page costs a fault: 13,000 in a step of ResNet20, a tenth of its time.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's: large pages, where the kernel leaves that to programs
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            mallopt(option, 1 << 30)


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


def done_in_processes(
    function: Callable[..., Result], calls: Mapping[Key, tuple[Any, ...]], processes: int
) -> Iterator[tuple[Key, Result]]:
    """Call a function of this package several times; every result comes with its key as soon as it is there.

    Args:
        function: Defined at the top of a module.
        calls: The arguments of every call, in the order in which they are begun.
        processes: How many workers; 1 makes all calls here.
    """
    processes = min(processes, len(calls))
    if processes <= 1:
        for key, arguments in calls.items():
            yield key, function(*arguments)
        return
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),  # a fork of a process with threads (BLAS, torch) may hang
        initializer=signal.signal,  # Ctrl-C is for this process alone, which then ends the workers
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        with hidden_main():
            waiting = {pool.submit(function, *arguments): key for key, arguments in calls.items()}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
