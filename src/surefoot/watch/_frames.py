"""Reading the running frames of a script without changing what its functions see."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

_SNAPSHOTS = sys.version_info < (3, 13)
"""Whether ``f_locals`` of a function is a dictionary that the frame keeps, the same that ``locals()`` returns there."""
_READERS = {"locals", "vars", "eval", "exec", "dir"}


def variables(frame: FrameType) -> Mapping[str, Any]:
    """The local variables of a frame; none where reading them would change what the function itself sees."""
    if not _SNAPSHOTS or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return frame.f_locals
    if not _READERS.isdisjoint(frame.f_code.co_names):
        return {}
    snapshot = frame.f_locals
    copied = dict(snapshot)
    snapshot.clear()  # else the frame would keep what the function deletes, such as a model
    return copied


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers, up to the first line of the script, or of what a process was started for."""
    while frame is not None and frame.f_globals.get("__name__") != "multiprocessing.process":
        yield frame
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return
        frame = frame.f_back


def package(frame: FrameType) -> str:
    """The package whose code runs in a frame."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
