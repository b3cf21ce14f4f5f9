"""Checks of arguments, for all packages: an error names argument, value and what is allowed.

Arguments may be given by name, as in ``sps(lower_bound=-2)`` or ``warmup(steps=50)``.
"""

from __future__ import annotations

import ast
import difflib
import math
import sys
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name(key=value, …)`` into the name and its keyword arguments; values are Python literals.

    The words ``level`` and ``level(…)`` need no quotes: they are handed on as text.

    >>> parse_call("power(p=0.25)")
    ('power', {'p': 0.25})
    """
    name, bracket, rest = text.strip().partition("(")
    name = name.strip()
    if not name or (bracket and not rest.rstrip().endswith(")")):
        raise ValueError(f"{text!r} is not of the form name or name(key=value, ...)")
    if not bracket:
        return name, {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("only one call")
        if call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("only keyword arguments")
        return name, {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise ValueError(f"{text!r} is not of the form name or name(key=value, ...) with plain numbers") from None


def _value(node: ast.expr) -> Any:
    word = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(node) if isinstance(word, ast.Name) and word.id == "level" else ast.literal_eval(node)


def unknown(kind: str, given: object, known: Iterable[str]) -> ValueError:
    """An error for a name that does not exist, with the closest ones that do.

    >>> str(unknown("method", "spz", ["sgd", "sps"]))
    "method must be one of sgd, sps, got 'spz'; did you mean 'sps'?"
    """
    names = list(known)
    if not names:
        return ValueError(f"{kind} must be left out, since there is none to choose, got {given!r}")
    return ValueError(f"{kind} must be one of {', '.join(names)}, got {given!r}{closest(given, names)}")


def closest(given: object, known: Iterable[str]) -> str:
    """The end of an error about a name: those that it may be meant for, in small letters or capitals.

    >>> closest("Cosin", ["cosine", "linear"]), closest("x", ["cosine"])
    ("; did you mean 'cosine'?", '')
    """
    names, word = {name.lower(): name for name in known}, str(given).lower()
    close = [name for name in names if word and name.startswith(word)] or difflib.get_close_matches(word, names, n=2)
    return f"; did you mean {' or '.join(repr(names[name]) for name in close)}?" if close else ""


def one_of(kind: str, given: Any, known: Collection[str]) -> str:
    """A name that exists; the error says which do.

    >>> one_of("method", "sps", ["sgd", "sps"])
    'sps'
    """
    if not isinstance(given, str) or given not in known:
        raise unknown(kind, given, known)
    return given


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least ``least``; the error names the argument.

    >>> whole("steps", 3, least=1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def number(name: str, value: Any, *, positive: bool = False, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number, within limits if there are any; the error names the argument.

    >>> number("noise", 1, least=0)
    1.0
    """
    value = value.item() if isinstance(value, np.generic) else value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:  # so is NaN, and a whole number that no float holds
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    if positive and not value > 0:
        raise ValueError(f"{name} must be above 0, got {value!r}")
    if not least <= value <= most:
        limit = f"at least {least:g}" if value < least else f"at most {most:g}"
        raise ValueError(f"{name} must be {limit}, got {value!r}")
    return float(value)


def share(name: str, value: Any, *, or_zero: bool = False) -> float:
    """A number in (0, 1), or in [0, 1) with ``or_zero``; the error names the argument.

    >>> share("smoothing", 0, or_zero=True)
    0.0
    """
    is_number = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    if not is_number or not (0 < value < 1 or (or_zero and value == 0)):
        raise ValueError(f"{name} must be a number in {'[' if or_zero else '('}0, 1), got {value!r}")
    return float(value)


def numbers(name: str, value: ArrayLike, *, positive: bool = False) -> NDArray[np.float64]:
    """Numbers of at least 0, or above 0, as an array; infinity is one of them.

    >>> numbers("lr", [1, 2], positive=True)
    array([1., 2.])
    """
    try:
        values = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, got {value!r}") from None
    if not (values > 0 if positive else values >= 0).all():
        raise ValueError(f"{name} must be {'positive' if positive else 'at least 0'}, got {value!r}")
    return values
