"""What a search leaves on disk so that it can go on where it stopped."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._states import load_state, save_state, write_whole
from surefoot.search._candidate import Candidate, Lane
from surefoot.search._run import Floats, Run, SearchError

_HEADER = "search.json"
_FORMAT = 1


class Journal:
    """A folder with one trace and one state a run.

    A trace names its state, and is replaced in one move after the state was written: whenever the process is killed,
    the folder holds a trace and the state that belongs to it. Nothing here is ever unpickled.

    Args:
        folder: Made if it is not there.
        settings: What the runs' numbers depend on; another search with the same settings may use the folder too.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"store must be a folder, got the file {str(folder)!r}")
        if not folder.parent.is_dir():
            raise FileNotFoundError(f"store {str(folder)!r}: the folder {str(folder.parent)!r} does not exist")
        header = folder / _HEADER
        wanted = {"format": _FORMAT, **settings}
        if header.exists():
            try:
                found = json.loads(header.read_text(encoding="utf-8"))
            except ValueError as error:
                raise SearchError(f"{header} is damaged ({error}); give the search another folder") from error
            for key in sorted(wanted.keys() | found.keys()):
                if found.get(key) != wanted.get(key):
                    raise ValueError(
                        f"store {str(folder)!r} belongs to another search: {key} is {found.get(key)!r} there and "
                        f"{wanted.get(key)!r} here; give this one a folder of its own"
                    )
        elif folder.is_dir() and any(folder.iterdir()):
            raise ValueError(
                f"store {str(folder)!r} is a folder with other things in it; give the search one of its own"
            )
        else:
            folder.mkdir(exist_ok=True)
            write_whole(header, lambda file: file.write(json.dumps(wanted, sort_keys=True).encode()))
        self.folder = folder

    def save(self, candidate: Candidate, lane: Lane, run: Run) -> None:
        """Keep trace and state of a run as they are now."""
        stem = self._stem(candidate, lane)
        state = None
        if lane.ended_at is None:
            state = save_state(stem.with_name(f"{stem.name}-{lane.recorded}"), run.state_dict())
        marks: Floats = np.array(lane.marks, float).reshape(-1, 2)
        trace = {
            "losses": lane.losses[: lane.recorded],
            "deltas": lane.deltas[: lane.recorded],
            "ended_at": np.array(-1 if lane.ended_at is None else lane.ended_at),
            "marks": marks,
            "evaluation": np.array([] if lane.evaluation is None else [lane.evaluation]),
            "certifies": np.array(lane.certifies),
            "state": np.array("" if state is None else state.name),
        }
        write_whole(self._trace(stem), lambda file: np.savez(file, **trace))  # type: ignore[arg-type]
        for old in self.folder.glob(f"{stem.name}-*"):
            if old != state:
                old.unlink()

    def restore(self, candidate: Candidate, lane: Lane) -> None:
        """Fill a lane with what was recorded of it."""
        trace = self._read(candidate, lane)
        if trace is None:
            return
        length = len(trace["losses"])
        lane.losses[:length], lane.deltas[:length], lane.recorded = trace["losses"], trace["deltas"], length
        if int(trace["ended_at"]) >= 0:
            lane.ended_at = int(trace["ended_at"])
            lane.losses[lane.ended_at :] = lane.deltas[lane.ended_at :] = np.inf
        lane.marks = [(int(step), float(distance)) for step, distance in trace["marks"]]
        lane.certifies = bool(trace["certifies"])
        lane.evaluation = float(trace["evaluation"][0]) if len(trace["evaluation"]) else None

    def state(self, candidate: Candidate, lane: Lane) -> Any:
        """The state that a run was left in; ``LookupError`` if it left none."""
        trace = self._read(candidate, lane)
        if trace is None or not str(trace["state"]):
            raise LookupError(f"{candidate.name}, seed {lane.seed}, has no state")
        path = self.folder / str(trace["state"])
        try:
            return load_state(path)
        except Exception as error:  # torch raises many kinds for a file that is none of its own
            beside = self._trace(self._stem(candidate, lane))
            raise SearchError(f"{path} is damaged ({error}); delete {beside}, and its run is computed anew") from error

    def _read(self, candidate: Candidate, lane: Lane) -> dict[str, Any] | None:
        path = self._trace(self._stem(candidate, lane))
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise SearchError(f"{path} is damaged ({error}); delete it, and its run is computed anew") from error

    def _stem(self, candidate: Candidate, lane: Lane) -> Path:
        key = json.dumps([candidate.method, candidate.lr, lane.seed])
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}"

    @staticmethod
    def _trace(stem: Path) -> Path:
        return stem.with_name(stem.name + ".npz")
