"""A function's code in a form that says what it does, and what it refers to."""

from __future__ import annotations

import builtins
import dis
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from surefoot._identity._packages import package_of

_FLAGS = 0x4 | 0x8 | 0x20 | 0x80 | 0x200
"""Of a code's flags: variable arguments, generators and coroutines."""
_HAS_DOCSTRING = 0x4000000

ABSENT = "<absent>"
"""Stands for a name that has no value."""


def parts(code: CodeType) -> tuple[Any, ...]:
    """What a code does, without names of locals, lines and docstrings; names of arguments count, as in calls."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    arguments += bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
    return (
        code.co_code,
        code.co_exceptiontable,
        code.co_names,
        _constants(code),
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS),
        code.co_varnames[:arguments],
    )


def _constants(code: CodeType) -> tuple[Any, ...]:
    """The constants; a docstring is one of a function's, and the first, before Python 3.13 always."""
    known = code.co_consts
    has_docstring = bool(code.co_flags & _HAS_DOCSTRING) if sys.version_info >= (3, 13) else True
    is_function = bool(code.co_flags & 0x2) and not code.co_name.startswith("<")
    if has_docstring and is_function and known and isinstance(known[0], str):
        return (None, *known[1:])
    return known


def references(function: FunctionType) -> dict[str, Any]:
    """The globals that a function names, and what it takes out of modules or imports, in the order of the code."""
    found: dict[str, Any] = {}
    for code in _nested(function.__code__):
        found |= {name: value for name, value in _named(code, function.__globals__) if name not in found}
    return found


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _named(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG")]
    known = vars(builtins)
    for place, step in enumerate(steps):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            name = step.argval
            if name in names:
                yield _followed(name, names[name], steps, place)
            elif name not in known and step.opname == "LOAD_GLOBAL":
                yield name, ABSENT
        elif step.opname == "IMPORT_NAME":
            yield from _imported(step.argval, steps[place - 2].argval, steps[place - 1].argval, names)


def _followed(name: str, value: Any, steps: list[dis.Instruction], place: int) -> tuple[str, Any]:
    """What is taken out of a module, as in ``helpers.scale``, instead of the module."""
    while isinstance(value, ModuleType) and place + 1 < len(steps):
        place += 1
        if steps[place].opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        name, foreign = f"{name}.{steps[place].argval}", package_of(value.__name__) is not None
        value = _attribute(value, steps[place].argval)
        if foreign and not (callable(value) or isinstance(value, ModuleType | int | float | complex | str)):
            value = name  # as os.environ or sys.argv: what a package holds is not followed
    return name, value


def _imported(name: str, level: Any, wanted: Any, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What an import inside of a function brings; it would be imported by the first call anyway."""
    try:
        full = importlib.util.resolve_name("." * int(level or 0) + name, names.get("__package__") or None)
        module = importlib.import_module(full)
    except Exception:  # the function would raise it as well, or never comes here
        yield f"import {name}", ABSENT
        return
    if not wanted or "*" in wanted:
        yield f"import {full}", module
        return
    for attribute in wanted:
        yield f"{full}.{attribute}", _attribute(module, attribute)


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except Exception:
        return ABSENT
