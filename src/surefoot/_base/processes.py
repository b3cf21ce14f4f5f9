"""Processes: how many cores this one may use, and how it keeps its memory."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of these options in malloc.h."""


def cores() -> int:
    """The cores that this process may use, as joblib counts them: affinity and the limits of containers count."""
    from joblib import cpu_count

    return int(cpu_count())


def keep_memory() -> None:
    """Let this process keep what it frees, in large pages; call it before torch has allocated anything.

    A step of training frees its activations and asks for as many again. Where malloc gives them back to the system in
    between (glibc, arrays of megabytes), every page costs a fault: 13,000 in a step of ResNet20, a tenth of its time.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's: large pages, where the kernel leaves that to programs
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            mallopt(option, 1 << 30)
