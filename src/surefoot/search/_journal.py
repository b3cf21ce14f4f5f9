"""What a search leaves on disk so that it can go on where it stopped."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from surefoot._identity import Identity
from surefoot._states import DamagedFile, read_arrays, seal_of, write_arrays, write_whole
from surefoot.runs import Advanced, Floats, Lane, RunKey, SearchError, stem_of, tell

_HEADER = "search.json"
_FORMAT = 2
_WAIT_SECONDS = 0.2


class Journal:
    """A folder with one trace and one state a run.

    A trace names its state, and is replaced in one move after the state was written: whenever the process is killed,
    the folder holds a trace and the state that belongs to it. Nothing here is ever unpickled.

    Inside of its context a journal has the folder for itself: a second process waits, and then finds all runs there.
    The lock is the system's, so that it ends with its process.

    Args:
        folder: Made if it is not there.
        settings: What the runs' numbers depend on; another search with the same settings may use the folder too.
        identities: What the code of each method rests on.
    """

    def __init__(
        self, folder: Path, settings: dict[str, Any], identities: Mapping[str, Identity] | None = None
    ) -> None:
        identities = identities or {}
        self._lock: int | None = None
        self._states: dict[RunKey, str | None] = {}
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"store must be a folder, got the file {str(folder)!r}")
        if not folder.parent.is_dir():
            raise FileNotFoundError(f"store {str(folder)!r}: the folder {str(folder.parent)!r} does not exist")
        header = folder / _HEADER
        wanted = {"format": _FORMAT, **settings}
        if header.exists():
            _compare(folder, wanted, identities)
        elif folder.is_dir() and any(not path.name.startswith(f".{_HEADER}.") for path in folder.iterdir()):
            raise ValueError(
                f"store {str(folder)!r} is a folder with other things in it; give the search one of its own"
            )
        else:
            folder.mkdir(exist_ok=True)
            about = {name: [one.digest, dict(one.parts), dict(one.packages)] for name, one in identities.items()}
            text = json.dumps({**wanted, "identity": about}, sort_keys=True).encode()
            write_whole(header, lambda file: file.write(text + b"\n" + seal_of(text) + b"\n"))
        self.folder = folder

    def __enter__(self) -> Self:
        self._lock = None if sys.platform == "win32" else os.open(self.folder, os.O_RDONLY)
        told = False
        while self._lock is not None and not _locked(self._lock):
            if not told:
                told = True
                tell(None, f"another process searches in {self.folder}; waiting for its runs")
            time.sleep(_WAIT_SECONDS)
        for left in self.folder.glob(".*.part"):  # by a process that was killed while it wrote
            left.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def stem(self, lane: Lane, step: int) -> Path:
        """Where the state of a run after some steps is to be written, without the suffix."""
        return stem_of(self.folder, lane.key, step)

    def save(self, lane: Lane, found: Advanced) -> None:
        """Keep trace and state of a run as they are now."""
        self._write(lane, None if found.state is None else Path(found.state))

    def _write(self, lane: Lane, state: Path | None) -> None:
        self._states[lane.key] = None if state is None else str(state)
        marks: Floats = np.array(lane.marks, float).reshape(-1, 2)
        trace = {
            "losses": lane.losses[: lane.recorded],
            "deltas": lane.deltas[: lane.recorded],
            "ended_at": np.array(-1 if lane.lost_at is None else lane.lost_at),
            "marks": marks,
            "evaluation": np.array([] if lane.evaluation is None else [lane.evaluation]),
            "certifies": np.array(lane.proves),
            "negative_at": np.array(-1 if lane.negative_at is None else lane.negative_at),
            "state": np.array("" if state is None else state.name),
        }
        write_arrays(self._trace(lane), trace)
        for old in self.folder.glob(f"{lane.key.name}-*"):
            if old != state:
                old.unlink()

    def restore(self, lane: Lane) -> None:
        """Fill a lane with what was recorded of it."""
        trace = self._read(lane)
        if trace is None:
            return
        length = len(trace["losses"])
        lane.losses[:length], lane.deltas[:length], lane.recorded = trace["losses"], trace["deltas"], length
        if int(trace["ended_at"]) >= 0:
            lane.lose(int(trace["ended_at"]))
        lane.marks = [(int(step), float(distance)) for step, distance in trace["marks"]]
        lane.proves = bool(trace["certifies"])
        lane.negative_at = int(trace["negative_at"]) if trace.get("negative_at", -1) >= 0 else None
        self._states[lane.key] = str(self.folder / str(trace["state"])) if str(trace["state"]) else None
        lane.evaluation = float(trace["evaluation"][0]) if len(trace["evaluation"]) else None

    def state(self, lane: Lane) -> str | None:
        """The file with the state that a run was left in."""
        return self._states.get(lane.key)

    def advice(self, lane: Lane) -> str:
        """What to do if that file is damaged."""
        return f"delete {self._trace(lane)}, and its run is computed anew. All other runs are kept"

    def _read(self, lane: Lane) -> dict[str, Any] | None:
        path = self._trace(lane)
        try:
            return read_arrays(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise SearchError(
                f"{path} is damaged ({error}); delete it, and its run is computed anew. All other runs are kept"
            ) from error

    def _trace(self, lane: Lane) -> Path:
        return self.folder / f"{lane.key.name}.npz"


def _locked(folder: int) -> bool:
    """Whether the open folder is this process's alone now; also where the file system has no locks."""
    import fcntl

    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _compare(folder: Path, wanted: dict[str, Any], identities: Mapping[str, Identity]) -> None:
    """Refuse a folder of another search, by the name of what differs."""
    header = folder / _HEADER
    text, _, seal = header.read_bytes().partition(b"\n")
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is none of a search")
        if found.get("format") == 1 and not seal:
            raise ValueError(
                f"store {str(folder)!r} is of surefoot 0.1, which did not note what its runs depend on; "
                "give this search a folder of its own"
            )
        if seal.strip() != seal_of(text):
            raise DamagedFile("its checksum is wrong")
    except (DamagedFile, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SearchError(
            f"{header} is damaged ({error}); give the search another folder. The runs beside it are kept"
        ) from error
    about = found.pop("identity")
    for key in sorted(wanted.keys() | found.keys()):
        if found.get(key) != wanted.get(key):
            raise ValueError(
                f"store {str(folder)!r} belongs to another search: {key} is {found.get(key)!r} there and "
                f"{wanted.get(key)!r} here; give this one a folder of its own"
            )
    for name, identity in identities.items():
        digest, parts, packages = about[name]
        if digest != identity.digest:
            changes = identity.changes(parts, packages)
            raise ValueError(
                f"store {str(folder)!r} belongs to another search: methods differ in "
                f"{', '.join(changes[:6]) or 'data, settings or version'}; give this one a folder of its own"
            )
        tell(None, f"{folder} holds runs of this search; the match rests on {identity}")
