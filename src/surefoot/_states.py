"""States of runs on disk: NumPy's format, or torch's for states with tensors; neither is ever unpickled."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

_SKELETON = "skeleton"


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
    write_whole(path, lambda file: np.savez(file, **arrays))
    return path


def load_state(path: Path) -> Any:
    """Read what :func:`save_state` has written."""
    if path.suffix == ".pt":
        import torch

        return torch.load(path, weights_only=True)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return _put_together(json.loads(str(arrays[_SKELETON])), arrays)


def write_tensors(path: Path, state: Any) -> None:
    """Write a state with tensors in torch's format, in one piece."""
    import torch

    content = io.BytesIO()  # torch's own writer hides why it could not write
    torch.save(state, content)
    write_whole(path, lambda file: file.write(content.getbuffer()))


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file beside its place and move it there, so that nobody ever sees a part of it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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
