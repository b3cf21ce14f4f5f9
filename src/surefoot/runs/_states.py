"""Unfinished runs as files: one per run, with the numbers of its steps so far and the state that it goes on from.

A file is an archive of NumPy, or of torch where the state has tensors, behind one checksum. Neither is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._base.files import replacing
from surefoot.runs._run import SearchError
from surefoot.runs._types import Key, Record

_ADVICE = "delete it, and its run is computed anew. All other runs are kept"
_SKELETON = "skeleton"
_ARRAY = "array of NumPy"
_CHECKSUM_BYTES = 32
_KEPT = ("losses", "lost_at", "evaluation")
"""What a file has of a record."""


class CheckpointError(SearchError):
    """The file that a run goes on from is damaged, of another run, or cannot be written."""


@dataclass(frozen=True)
class States:
    """A folder of unfinished runs; it can be sent to other processes, and may be on a shared file system.

    A file is written whole, so a process that is killed leaves the one before.

    Args:
        folder: The folder; it is made when the first file is written.
        context: Hash of what the runs share; empty for runs that nobody else goes on with.
        identities: What the methods are stored under, by name; their names by default.
    """

    folder: str
    context: str = ""
    identities: Mapping[str, str] | None = None

    @property
    def lasts(self) -> bool:
        """Whether the files belong to a store, from which others go on."""
        return bool(self.context)

    def stored(self, key: Key) -> Key:
        """The key that a run is stored under."""
        return key if self.identities is None else Key(self.identities[key.method], key.lr, key.seed)

    def path(self, key: Key) -> Path:
        """The file of a run."""
        name = hashlib.sha256(json.dumps(self._name(key)).encode()).hexdigest()[:20]
        return Path(self.folder, f"{self.context[:12] or 'run'}-{name}.state")

    def exists(self, key: Key) -> bool:
        """Whether there is a file of a run."""
        return self.path(key).exists()

    def save(self, record: Record, state: Any) -> None:
        """Write the file of a run; None in place of a state for one that has ended."""
        path, numbers = self.path(record.key), {name: getattr(record, name) for name in _KEPT}
        content = packed({"run": self._name(record.key), "record": numbers, "state": state})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # another machine may have no such folder
            with replacing(path, "a state", sync=False) as file:
                file.write(_checksum(content) + content)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise CheckpointError(f"cannot write the checkpoint {path}: {reason}; finished runs are kept") from error

    def load(self, record: Record) -> Any:
        """Fill the record of a run with what its file has; the state to go on from, None without."""
        path = self.path(record.key)
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CheckpointError(f"cannot read the checkpoint {path}: {error.strerror or error}") from error
        checksum, content = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
        if checksum != _checksum(content):
            raise CheckpointError(f"{path} is damaged: its checksum is wrong; {_ADVICE}")
        try:
            values = unpacked(content)
        except Exception as error:  # torch raises many kinds for what it does not read
            raise CheckpointError(f"{path} cannot be read ({error}); {_ADVICE}") from error
        if values["run"] != self._name(record.key):
            raise CheckpointError(f"{path} is of another run; {_ADVICE}")
        for name in _KEPT:
            setattr(record, name, values["record"][name])
        record.saved = record.taken
        return values["state"]

    def remove(self, key: Key) -> None:
        """Remove a run's file."""
        self.path(key).unlink(missing_ok=True)

    def _name(self, key: Key) -> list[Any]:
        return [self.context, *self.stored(key)]


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECKSUM_BYTES // 2).hexdigest().encode()


def packed(value: Any) -> bytes:
    """Arrays, tensors, numbers and strings in dicts, lists and tuples as bytes: an archive of torch or of NumPy."""
    content = io.BytesIO()
    if _has_tensor(value):
        import torch

        torch.save(_without_numpy(value), content)
    else:
        arrays: dict[str, Any] = {}
        arrays[_SKELETON] = np.array(json.dumps(_taken_apart(value, arrays)))
        np.savez(content, **arrays)
    return content.getvalue()


def unpacked(content: bytes) -> Any:
    """The value that was packed; tensors come to the CPU."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        if _SKELETON in archive:
            arrays = dict(archive)
            return _put_together(json.loads(str(arrays[_SKELETON])), arrays)
    import torch

    return _with_numpy(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))


def _has_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(value, dict):
        return any(_has_tensor(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, torch.Tensor)


def _without_numpy(value: Any) -> Any:
    """A value that ``torch.load(weights_only=True)`` reads back: it knows no numbers and arrays of NumPy."""
    import torch

    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise TypeError(f"state_dict must hold arrays of numbers beside tensors, got one of {value.dtype}")
        return {_ARRAY: torch.from_numpy(np.ascontiguousarray(value))}
    return _each(value, _without_numpy)


def _with_numpy(value: Any) -> Any:
    """Undo :func:`_without_numpy`; NumPy's numbers come back as Python's."""
    if isinstance(value, dict) and list(value) == [_ARRAY]:
        return value[_ARRAY].numpy()
    return _each(value, _with_numpy)


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with its parts changed; one that stays as it is comes back itself, with what its class holds beside."""
    if isinstance(value, dict):
        changed = {key: change(item) for key, item in value.items()}
        return value if all(changed[key] is item for key, item in value.items()) else changed
    if type(value) in (list, tuple):
        items = [change(item) for item in value]
        is_same = all(new is old for new, old in zip(items, value, strict=True))
        return value if is_same else type(value)(items)
    return value


def _taken_apart(value: Any, arrays: dict[str, Any]) -> Any:
    """A JSON-able skeleton; arrays are put aside under names that it holds."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcUS":
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {"dict": [[_taken_apart(key, arrays), _taken_apart(item, arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_taken_apart(item, arrays) for item in value]}
    raise TypeError(
        f"state_dict must hold arrays, tensors, numbers and strings in dicts and lists, got {type(value).__name__}"
    )


def _put_together(skeleton: Any, arrays: Any) -> Any:
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, content),) = skeleton.items()
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {_put_together(key, arrays): _put_together(item, arrays) for key, item in content}
    items = [_put_together(item, arrays) for item in content]
    return items if kind == "list" else tuple(items)
