"""How often the loops around a step will run, read from their source and from the variables of the running frames.

Variables are read without a trace of having been read, and nothing of the script is executed: names, attributes, items
and whole-number arithmetic are looked up, and lengths are asked of ranges, lists, tensors and data loaders. Where a
loop cannot be read (``while``, a generator) there is no answer.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import math
import operator
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

_SKIPPED = ("torch", "surefoot", "contextlib", "functools", "threading", "runpy", "accelerate.optimizer")
"""Modules between the script and the step whose loops, if any, do not repeat it."""
_THROUGH = {"enumerate", "tqdm", "trange", "track", "iter", "list", "tuple", "reversed", "sorted", "prepare"}
"""Calls that are as long as their first argument."""
_Loop = ast.For | ast.While | ast.AsyncFor
_SIGNS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
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


def caller(frame: FrameType) -> FrameType | None:
    """The first frame outside of torch and surefoot."""
    for outer in outwards(frame):
        if outer.f_globals.get("__name__", "").partition(".")[0] not in ("torch", "surefoot"):
            return outer
    return None


class Loops(NamedTuple):
    """The loops around a step, from the outermost to the innermost."""

    lengths: tuple[int, ...]
    counter: int | None
    """What the innermost loop counts, now; None if it counts nothing."""

    @property
    def total(self) -> int:
        """Rounds of the innermost loop in the whole run."""
        return math.prod(self.lengths)

    def __str__(self) -> str:
        return " × ".join(map(str, self.lengths))


Place = tuple[str, int]
"""A line of a file."""


def places(start: FrameType | None) -> frozenset[Place]:
    """The lines that are being executed, from a frame to the script's first line."""
    return frozenset((frame.f_code.co_filename, frame.f_lineno) for frame in outwards(start) if not _is_skipped(frame))


def around(start: FrameType | None, built: frozenset[Place] = frozenset()) -> Loops | None:
    """The loops that are running from the script's first line to a frame; None if one cannot be read.

    Those that were running when the optimizer was built (at the places ``built``) go on with another one, and do not
    count.
    """
    older = {loop for path, line in built for loop in _enclosing(path, line) or ()}
    lengths: list[int] = []
    counter: int | None = None
    for frame in outwards(start):
        if not _is_skipped(frame):
            loops = _enclosing(frame.f_code.co_filename, frame.f_lineno)
            if loops is None:
                return None
            names = _Names(frame)
            for loop in reversed([loop for loop in loops if loop not in older]):
                if not isinstance(loop, ast.For) or (length := names.length(loop.iter)) is None:
                    return None
                if not lengths:  # the innermost
                    counter = _counter(loop, names)
                lengths.append(length)
    return Loops(tuple(reversed(lengths)), counter) if lengths else None


def _is_skipped(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return any(module == name or module.startswith(f"{name}.") for name in _SKIPPED)


@functools.lru_cache(maxsize=256)
def _enclosing(path: str, line: int) -> list[_Loop] | None:
    """The loops of a function in whose bodies a line of it stands, outermost first; None if there is no source."""
    tree = _parsed(path)
    if tree is None:
        return None
    loops: list[_Loop] = []
    for node in ast.walk(tree):  # from the outside to the inside
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _holds([node], line):
            loops = []
        elif isinstance(node, _Loop) and _holds(node.body, line):
            loops.append(node)
    return loops


def _holds(statements: list[Any], line: int) -> bool:
    return any(statement.lineno <= line <= statement.end_lineno for statement in statements)


@functools.lru_cache(maxsize=32)
def _parsed(path: str) -> ast.Module | None:
    lines = linecache.getlines(path)
    try:
        return ast.parse("".join(lines)) if lines else None
    except SyntaxError:
        return None


def _counter(loop: ast.For, names: _Names) -> int | None:
    """The value of the loop's counter: of ``i`` in ``for i, x in enumerate(…)`` or ``for i in range(…)``."""
    target = loop.target
    if isinstance(target, ast.Tuple):
        if not isinstance(loop.iter, ast.Call) or _called(loop.iter) != "enumerate":
            return None
        target = target.elts[0]
    value = names.value(target)
    return value if isinstance(value, int) else None


def _called(call: ast.Call) -> str:
    """The name of the function or method that is called."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


class _Names:
    """Looks up expressions in a frame."""

    def __init__(self, frame: FrameType) -> None:
        self._scopes = (variables(frame), frame.f_globals)

    def length(self, node: ast.expr) -> int | None:
        """How many rounds a loop over an expression makes."""
        if isinstance(node, ast.List | ast.Tuple):
            return len(node.elts)
        if not isinstance(node, ast.Call):
            return _length(self.value(node))
        name = _called(node)
        if name in ("range", "trange"):
            numbers = [self.value(argument) for argument in node.args]
            whole = 1 <= len(numbers) <= 3 and all(isinstance(number, int) for number in numbers)
            return len(range(*numbers)) if whole and 0 not in numbers[2:] else None
        if name == "zip" and node.args:
            lengths = [self.length(argument) for argument in node.args]
            return None if None in lengths else min(length for length in lengths if length is not None)
        if name == "islice" and len(node.args) == 2:
            limit = self.value(node.args[1])
            return limit if isinstance(limit, int) else None
        if name == "split" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            data, size = self.value(node.func.value), self.value(node.args[0])
            known = isinstance(data, torch.Tensor) and data.ndim and isinstance(size, int) and size > 0
            return -(-len(data) // size) if known else None
        return self.length(node.args[0]) if name in _THROUGH and node.args else None

    def value(self, node: ast.expr) -> Any:
        """The value of an expression; None if it takes more than looking it up."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in self._scopes if node.id in scope), None)
        if isinstance(node, ast.Attribute):
            # What is simply there; properties are code of the script, and stay alone.
            return getattr(self.value(node.value), "__dict__", {}).get(node.attr)
        if isinstance(node, ast.Subscript):
            owner, key = self.value(node.value), self.value(node.slice)
            return owner.get(key) if isinstance(owner, Mapping) and isinstance(key, str | int) else None
        if isinstance(node, ast.Call) and _called(node) in ("len", "int") and len(node.args) == 1:
            value = self.value(node.args[0])
            if _called(node) == "len":
                return _length(value)
            return int(value) if isinstance(value, int | float) and math.isfinite(value) else None
        if isinstance(node, ast.BinOp):
            sign, left, right = _SIGNS.get(type(node.op)), self.value(node.left), self.value(node.right)
            if sign is None or not isinstance(left, int | float) or not isinstance(right, int | float):
                return None
            return sign(left, right) if right or sign in (operator.add, operator.sub, operator.mul) else None
        return None


def _length(value: Any) -> int | None:
    """The length of data; of nothing else, because ``len`` may be code of the script."""
    known = (range, list, tuple, dict, set, str, torch.Tensor, np.ndarray, DataLoader)
    if value.__class__.__module__.startswith("tqdm"):
        return value.total if isinstance(getattr(value, "total", None), int) else None
    if not isinstance(value, known):
        return None
    try:
        return len(value)
    except (TypeError, NotImplementedError):  # a data loader over a stream
        return None
