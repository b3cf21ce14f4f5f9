"""A function's code in a form that says what it does, and what it refers to."""

from __future__ import annotations

import builtins
import dis
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from surefoot._identity._packages import package_of

_FLAGS = 0x4 | 0x8 | 0x20 | 0x80 | 0x200
"""The flags of a code that count: variable arguments, generators and coroutines."""
_HAS_DOCSTRING = 0x4000000

ABSENT = "<absent>"
"""Stands for a name that has no value."""


class Dynamic(NamedTuple):
    """Stands for what only a run can tell, such as ``globals()`` or ``os.environ``."""

    name: str


_DYNAMIC = [
    builtins.globals, builtins.eval, builtins.exec, builtins.__import__, importlib.import_module, os.environ, os.getenv,
    sys.argv, sys.modules,
]  # fmt: skip


def parts(code: CodeType) -> tuple[Any, ...]:
    """What a code does, without names of locals, lines and docstrings; names of arguments count, as in calls."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    arguments += bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
    has_docstring = bool(code.co_flags & _HAS_DOCSTRING) if sys.version_info >= (3, 13) else True
    is_function = bool(code.co_flags & 0x2) and not code.co_name.startswith("<")
    constants = code.co_consts
    if has_docstring and is_function and constants and isinstance(constants[0], str):
        constants = (None, *constants[1:])
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS
    names = code.co_names, code.co_varnames[:arguments]
    return code.co_code, code.co_exceptiontable, constants, counts, names


def references(function: FunctionType) -> dict[str, Any]:
    """The globals that a function names, and what it takes out of modules or imports, in the order of the code."""
    values: dict[str, Any] = {}
    for code in _nested(function.__code__):
        for name, value in _named(code, function.__globals__):
            values.setdefault(name, value)
    return values


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _named(code: CodeType, scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG")]
    for place, step in enumerate(steps):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            name = step.argval
            if name in scope or hasattr(builtins, name):
                yield _followed(name, scope[name] if name in scope else getattr(builtins, name), steps, place)
            elif step.opname == "LOAD_GLOBAL":
                yield name, ABSENT
        elif step.opname == "IMPORT_NAME":
            yield from _imported(step.argval, steps[place - 2].argval, steps[place - 1].argval, scope)


def _followed(name: str, value: Any, steps: list[dis.Instruction], place: int) -> tuple[str, Any]:
    """The name and the value that code takes out of a module, as in ``helpers.scale``, instead of the module."""
    while isinstance(value, ModuleType) and place + 1 < len(steps):
        place += 1
        if steps[place].opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        name, foreign = f"{name}.{steps[place].argval}", package_of(value.__name__) is not None
        value = _attribute(value, steps[place].argval)
        plain = isinstance(value, ModuleType | int | float | complex | str | tuple | list | dict | set)
        if foreign and not plain and not callable(value) and not _is_dynamic(value):
            value = name  # as torch.backends or sys.stderr: an object that the package holds
    return name, Dynamic(name) if _is_dynamic(value) else value


def _is_dynamic(value: Any) -> bool:
    is_operator = type(value).__name__ in ("OpOverloadPacket", "OpOverload")  # torch.ops.aten.relu
    return (is_operator and not str(value).startswith(("aten.", "prims."))) or any(value is one for one in _DYNAMIC)


def _imported(name: str, level: Any, attributes: Any, scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names and values that an import inside of a function brings; its first call would import them anyway."""
    try:
        full = importlib.util.resolve_name("." * int(level or 0) + name, scope.get("__package__") or None)
        module = importlib.import_module(full)
    except Exception:  # the function would raise it as well, or never comes here
        yield f"import {name}", ABSENT
        return
    if not attributes or "*" in attributes:
        yield f"import {full}", module
        for end in [place for place, letter in enumerate(full) if letter == "."]:
            yield f"import {full[:end]}", sys.modules[full[:end]]  # code may go on from there: import a.b; a.c
        return
    for attribute in attributes:
        value = _attribute(module, attribute)
        yield f"{full}.{attribute}", Dynamic(f"{full}.{attribute}") if _is_dynamic(value) else value


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except Exception:
        return ABSENT
