"""States of runs on disk: NumPy's format, or torch's for states with tensors; neither is ever unpickled.

Every file ends with a seal, a checksum over all before it: a damaged file is an error, never another state. NumPy and
torch read the files as they are; what comes after their own content does not bother them.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._files import replacing

_SKELETON = "skeleton"
_MARK = b"\nsurefoot-seal "
_SEAL_BYTES = 32


class DamagedFile(ValueError):
    """A file is not what was written."""


def save_state(stem: Path, state: Any) -> Path:
    """Write a state to ``stem`` with a suffix that tells its format; the file is complete or not there."""
    if _has_tensor(state):
        path = stem.with_name(stem.name + ".pt")
        write_tensors(path, state)
        return path
    arrays: dict[str, Any] = {}
    skeleton = json.dumps(_taken_apart(state, arrays))
    path = stem.with_name(stem.name + ".npz")
    arrays[_SKELETON] = np.array(skeleton)
    write_arrays(path, arrays)
    return path


def load_state(path: Path) -> Any:
    """Read what :func:`save_state` has written; :class:`DamagedFile` if it is not what was written."""
    if path.suffix == ".pt":
        return read_tensors(path)
    arrays = read_arrays(path)
    return _put_together(json.loads(str(arrays[_SKELETON])), arrays)


def write_tensors(path: Path, state: Any) -> None:
    """Write a state with tensors in torch's format, in one piece."""
    import torch

    content = io.BytesIO()  # torch's own writer hides why it could not write
    torch.save(state, content)
    _write_sealed(path, content)


def read_tensors(path: Path) -> Any:
    """Read what :func:`write_tensors` has written, to the CPU."""
    import torch

    return torch.load(_read_sealed(path), map_location="cpu", weights_only=True)


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays by name in NumPy's format, in one piece."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    _write_sealed(path, content)


def read_arrays(path: Path) -> dict[str, Any]:
    """Read what :func:`write_arrays` has written."""
    with np.load(_read_sealed(path), allow_pickle=False) as arrays:
        return dict(arrays)


def seal_of(content: bytes | memoryview) -> bytes:
    """A checksum."""
    return hashlib.blake2b(content, digest_size=_SEAL_BYTES // 2).hexdigest().encode()


def _write_sealed(path: Path, content: io.BytesIO) -> None:
    with replacing(path, "a state", sync=False) as file:
        file.write(content.getbuffer())
        file.write(_MARK + seal_of(content.getbuffer()))


def _read_sealed(path: Path) -> io.BytesIO:
    content = path.read_bytes()
    length = len(content) - _SEAL_BYTES - len(_MARK)
    if length < 0 or content[length:] != _MARK + seal_of(memoryview(content)[:length]):
        raise DamagedFile("its checksum is wrong")
    return io.BytesIO(content[:length])


def _has_tensor(state: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(state, dict):
        return any(_has_tensor(value) for value in state.values())
    if isinstance(state, list | tuple):
        return any(_has_tensor(value) for value in state)
    return isinstance(state, torch.Tensor)


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
