"""What the numbers of user-written code depend on, as a hash."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import numpy as np

_FOREIGN = ("builtins", "numpy", "surefoot", "torch")
"""Packages whose classes count by their names: their code is not the user's."""


def digest(*values: Any) -> str:
    """A short hash of values: functions and classes count by their code, arrays by their numbers, all else by its text.

    What a function says about itself is left out, and so are addresses in memory, which are others each time.

    >>> digest(lambda x: x + 1) == digest(lambda x: x + 1), digest(lambda x: x + 1) == digest(lambda x: x + 2)
    (True, False)
    """
    result = hashlib.sha256()
    _feed(result, values, ())
    return result.hexdigest()[:16]


def text(value: Any) -> str:
    """What a value says about itself, without addresses in memory."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def is_foreign(cls: type) -> bool:
    """Whether a class is not the user's."""
    return cls.__module__.partition(".")[0] in _FOREIGN


def _feed(result: Any, value: Any, around: tuple[int, ...]) -> None:
    """Feed a value into a hash; ``around`` are those that it is a part of, because code can refer to itself."""
    if id(value) in around:
        result.update(b"itself;")
        return
    parts = _parts(value)
    if parts is not None:
        result.update(f"{len(parts)}(".encode())
        for part in parts:
            _feed(result, part, (*around, id(value)))
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        result.update(f"{value.dtype.str}{value.shape}:".encode() + value.tobytes())
    elif callable(value) and hasattr(value, "__qualname__"):
        result.update(f"{value.__module__}.{value.__qualname__};".encode())
    else:
        result.update(f"{type(value).__name__}:{text(value)};".encode())


def _parts(value: Any) -> tuple[Any, ...] | list[Any] | None:
    """What a value consists of; None if it is to be taken as a whole."""
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, dict):
        return sorted(value.items(), key=lambda item: str(item[0]))
    if isinstance(value, FunctionType):
        code = value.__code__
        consts = code.co_consts[1:] if code.co_consts[:1] == (value.__doc__,) else code.co_consts
        cells = tuple(_content(cell) for cell in value.__closure__ or ())
        return code.co_code, code.co_names, consts, value.__defaults__, value.__kwdefaults__, cells
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, value.co_consts
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, type):
        own = [members(cls) for cls in value.__mro__ if not is_foreign(cls)]
        return (f"{value.__module__}.{value.__qualname__}", own) if own else None
    if hasattr(value, "detach") and hasattr(value, "dtype"):  # a tensor
        return str(value.dtype), value.detach().cpu().double().numpy()
    kind: Any = type(value)
    if kind.__repr__ is object.__repr__:
        return kind, getattr(value, "__dict__", {})
    return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put into it yet
        return None


def members(cls: type) -> dict[str, Any]:
    """The functions of a class, and the plain values that it sets for them."""
    members = {name: getattr(value, "__func__", value) for name, value in vars(cls).items()}
    return {
        name: value
        for name, value in members.items()
        if isinstance(value, FunctionType)
        or (not name.startswith("__") and isinstance(value, bool | int | float | str | tuple))
    }
