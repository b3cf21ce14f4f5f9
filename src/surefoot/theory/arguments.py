"""Arguments given by name, ``sps(lower_bound=-2)`` or ``warmup(steps=50)``, and errors that say what is allowed."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np


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
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
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
