"""The files of runs that are not finished: one a run, which whoever comes next goes on from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot._base.files import remove_whole
from surefoot._base.states import load_run, save_run
from surefoot.runs._claims import exists
from surefoot.runs._lane import Told
from surefoot.runs._run import SearchError
from surefoot.runs._types import Key

_ADVICE = "delete it, and its run is computed anew. All other runs are kept"


class CheckpointError(SearchError):
    """The file that a run goes on from is damaged, of another run, or cannot be written."""


@dataclass(frozen=True)
class RunFiles:
    """A folder of runs that wait to be taken up; it can be sent to other processes.

    A file is written whole, and holds what its run has told, and the state that belongs to it: whenever a process is
    killed, one that follows goes on from there.
    """

    folder: str
    context: str = ""
    """Hash of what the runs share; empty for runs that nobody else goes on with."""
    identities: Mapping[str, str] | None = None
    """What the methods are stored under, by name."""

    @property
    def lasts(self) -> bool:
        """Whether the files are those of a store, from which others go on."""
        return bool(self.context)

    def stored(self, key: Key) -> Key:
        """The key that a run is stored under."""
        return key if self.identities is None else Key(self.identities[key.method], key.lr, key.seed)

    def path(self, key: Key) -> Path:
        """The file of a run."""
        return Path(self.folder, hashlib.sha256(json.dumps(self._name(key)).encode()).hexdigest()[:20] + ".run")

    def exists(self, key: Key) -> bool:
        """Whether a run was put aside."""
        return self.path(key).exists()

    def save(self, key: Key, told: Told, state: Any) -> None:
        """Put a run aside; None in place of a state for one that does not go on."""
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # another machine may have no such folder
            save_run(path, {"run": self._name(key), **told._replace(trace=None)._asdict()}, state)
        except FileNotFoundError:
            pass  # another process, which has nothing left to do, has just removed the folder: the next time will do
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise CheckpointError(f"cannot write the checkpoint {path}: {reason}; finished runs are kept") from error

    def told(self, key: Key) -> Told | None:
        """What a run had told when it was put aside; None if it was not."""
        loaded = self.load(key, with_state=False)
        return None if loaded is None else loaded[0]

    def load(self, key: Key, *, with_state: bool = True) -> tuple[Told, Any] | None:
        """What a run had told, and its state if wanted; None if it was not put aside."""
        path = self.path(key)
        try:
            record, state = load_run(path, with_state=with_state)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # torch raises many kinds for a file that is none of its own
            raise CheckpointError(f"{path} is damaged ({error}); {_ADVICE}") from error
        if record.pop("run") != self._name(key):
            raise CheckpointError(f"{path} is of another run; {_ADVICE}")
        return Told(**record), state

    def remove(self, key: Key) -> None:
        """Remove a run's file, and what a killed process was writing of it."""
        remove_whole(self.path(key))

    def sweep(self) -> None:
        """Remove what killed processes were writing.

        A process of another machine, whose number is none here, may lose what it is writing; its next save will do.
        """
        with suppress(FileNotFoundError):  # there is no folder
            for part in Path(self.folder).glob(".*.part"):
                pid = part.name.split(".")[-3]
                if pid.isdecimal() and not exists(int(pid)):
                    part.unlink(missing_ok=True)

    def _name(self, key: Key) -> list[Any]:
        return [self.context, *self.stored(key)]
