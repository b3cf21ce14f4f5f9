"""Runs on disk: one file holds a run's record, which is what it has told so far, and the state that it goes on from.

The state is in NumPy's format, or in torch's where it has tensors; neither is ever unpickled. The record stands behind
it, so that it can be read without the state, which may be large. Both have a seal, a checksum: a damaged file is an
error, never another run.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from surefoot._base.files import replacing

_SKELETON = "skeleton"
_ARRAY = "array of NumPy"
_SEAL_BYTES = 32
_LENGTH_BYTES = 16


class DamagedFile(ValueError):
    """A file is not what was written."""


def save_run(path: Path, record: Any, state: Any) -> None:
    """Write the record of a run, and its state or None; the file is complete, or stays the one before.

    Both are arrays, numbers and strings in dicts, lists and tuples, and a state may have tensors.
    """
    content, packed = _packed(state), _with_arrays(record)
    length = f"{len(packed):0{_LENGTH_BYTES}x}".encode()
    parts = (content, seal_of(content), packed, length, seal_of(packed + length))
    with replacing(path, "a state", sync=False) as file:
        file.writelines(parts)


def load_run(path: Path, *, with_state: bool = True) -> tuple[Any, Any]:
    """The record of a run, and its state if asked for; :class:`DamagedFile` if they are not what was written."""
    with path.open("rb") as file:
        packed, end = _read_record(file)
        if not with_state:
            return _unpacked(packed), None
        file.seek(0)
        content, seal = file.read(end - _SEAL_BYTES), file.read(_SEAL_BYTES)
    if seal != seal_of(content):
        raise DamagedFile("its checksum is wrong")
    return _unpacked(packed), _unpacked(content)


def seal_of(content: bytes) -> bytes:
    """The checksum of some bytes."""
    return hashlib.blake2b(content, digest_size=_SEAL_BYTES // 2).hexdigest().encode()


def _read_record(file: IO[bytes]) -> tuple[bytes, int]:
    """The bytes of the record, which is the last part of a file, and where they begin."""
    size, footer = file.seek(0, os.SEEK_END), _LENGTH_BYTES + _SEAL_BYTES
    try:
        file.seek(size - footer)
        length, seal = file.read(_LENGTH_BYTES), file.read(_SEAL_BYTES)
        begin = size - footer - int(length, 16)
        file.seek(begin)
        packed = file.read(size - footer - begin)
    except (ValueError, OSError) as error:
        raise DamagedFile(f"it was cut, or is not of surefoot ({error})") from error
    if begin < _SEAL_BYTES or seal != seal_of(packed + length):
        raise DamagedFile("its checksum is wrong")
    return packed, begin


def _packed(state: Any) -> bytes:
    """A state as bytes: a zip archive of torch, or one of NumPy."""
    if not _has_tensor(state):
        return _with_arrays(state)
    import torch

    content = io.BytesIO()  # torch's own writer hides why it could not write
    torch.save(_without_numpy(state), content)
    return content.getvalue()


def _with_arrays(state: Any) -> bytes:
    arrays: dict[str, Any] = {}
    arrays[_SKELETON] = np.array(json.dumps(_taken_apart(state, arrays)))
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _unpacked(content: bytes) -> Any:
    """The value that was packed; tensors come to the CPU."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        if _SKELETON in archive:
            arrays = dict(archive)
            return _put_together(json.loads(str(arrays[_SKELETON])), arrays)
    import torch

    return _with_numpy(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))


def _has_tensor(state: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(state, dict):
        return any(_has_tensor(value) for value in state.values())
    if isinstance(state, list | tuple):
        return any(_has_tensor(value) for value in state)
    return isinstance(state, torch.Tensor)


def _without_numpy(state: Any) -> Any:
    """A state that torch reads back: it knows no numbers and arrays of NumPy. Without any, it is the state itself."""
    import torch

    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, np.ndarray):
        if state.dtype.kind not in "biufc":
            raise TypeError(f"state_dict must hold arrays of numbers beside tensors, got one of {state.dtype}")
        return {_ARRAY: torch.from_numpy(np.ascontiguousarray(state))}
    return _each(state, _without_numpy)


def _with_numpy(state: Any) -> Any:
    """Undo :func:`_without_numpy`; NumPy's numbers come back as Python's."""
    if isinstance(state, dict) and list(state) == [_ARRAY]:
        return state[_ARRAY].numpy()
    return _each(state, _with_numpy)


def _each(state: Any, change: Callable[[Any], Any]) -> Any:
    """A state with its parts changed; one that stays as it is comes back itself, with all that it holds beside them."""
    if isinstance(state, dict):
        changed = {key: change(value) for key, value in state.items()}
        return state if all(changed[key] is value for key, value in state.items()) else changed
    if type(state) in (list, tuple):
        items = [change(value) for value in state]
        is_same = all(new is old for new, old in zip(items, state, strict=True))
        return state if is_same else type(state)(items)
    return state


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
