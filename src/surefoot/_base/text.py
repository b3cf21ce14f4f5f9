"""Texts and tables for terminals and notebooks; texts of others are shown, not obeyed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: object) -> str:
    r"""A text in which control characters are written out, so that a name cannot move the cursor or change a colour.

    Line breaks and tabs stay. Marks that reverse the direction of writing are written out too, and bytes of a file's
    name that are no UTF-8.

    >>> print(visible("sgd\x1b[31m"))
    sgd\x1b[31m
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A table as text, its head first.

    >>> print(aligned([["method", "lr"], ["sgd", "0.1"]]))
    method  lr
    sgd     0.1
    """
    shown = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in shown)


def html_table(lines: Sequence[Sequence[str]]) -> str:
    """A table for notebooks, its head first; nothing in it can become markup.

    >>> html_table([["a"], ["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    rows = [[escape(cell) for cell in line] for line in lines]
    head = "".join(f"<th>{cell}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
