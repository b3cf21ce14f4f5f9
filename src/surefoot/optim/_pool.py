"""Threads of our own, for work that lets the others run meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_executor: ThreadPoolExecutor | None = None


def together(work: Callable[[int], None], threads: int) -> None:
    """Call ``work(0)`` … ``work(threads - 1)`` at the same time, the first one here.

    Threads are started when they are first needed, as many as are needed.
    """
    global _executor
    if threads > 1 and _executor is None:
        _executor = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="surefoot-sums")
    others = [_executor.submit(work, i) for i in range(1, threads)] if _executor is not None else []
    work(0)
    for other in others:
        other.result()


def _forget_threads() -> None:
    """A forked process has none of its parent's threads."""
    global _executor
    _executor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
