"""Unfinished runs as files: one per run, with the numbers of its steps so far and the state that it goes on from.

A file is an archive of NumPy behind one checksum; nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._base.files import replacing
from surefoot.runs._run import SearchError
from surefoot.runs._types import Key, Record

_ADVICE = "delete it, and its run is computed anew. All other runs are kept"
_SKELETON = "skeleton"
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
        except Exception as error:  # NumPy raises many kinds for what it does not read
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
    """Arrays, tensors, numbers and strings in dicts, lists and tuples as bytes: an archive of NumPy."""
    content = io.BytesIO()
    arrays: dict[str, Any] = {}
    skeleton = json.dumps(_taken_apart(value, arrays))
    arrays[_SKELETON] = np.array(skeleton)
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def unpacked(content: bytes) -> Any:
    """The value that was packed; tensors come to the CPU."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return _put_together(json.loads(str(archive[_SKELETON])), archive)


def _taken_apart(value: Any, arrays: dict[str, Any]) -> Any:
    """A skeleton for JSON; arrays and tensors are put aside under names that it holds."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        # As bytes: NumPy does not know all types of torch.
        flat, name = value.detach().cpu().contiguous().reshape(-1), f"a{len(arrays)}"
        arrays[name] = flat.view(torch.uint8).numpy()
        return {"tensor": [name, str(value.dtype).removeprefix("torch."), list(value.shape)]}
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
    if kind == "tensor":
        import torch

        name, dtype, shape = content
        return torch.from_numpy(arrays[name]).view(getattr(torch, dtype)).reshape(shape)
    if kind == "dict":
        return {_put_together(key, arrays): _put_together(item, arrays) for key, item in content}
    items = [_put_together(item, arrays) for item in content]
    return items if kind == "list" else tuple(items)
