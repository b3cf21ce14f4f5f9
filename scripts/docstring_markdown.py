"""Docstrings as Markdown, for the API reference of the documentation.

The docstrings are written to be read in an editor: with sessions (``>>>``), simple tables (``====``), code blocks and
roles (``:class:`~surefoot.Study```) of reStructuredText. Markdown would make quotes and headings of them. This
extension of griffe, which mkdocs.yml names, turns them into fenced blocks and plain code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|math):`(~?)([^`]+)`")
_CODE = re.compile(r"( *)\.\. code-block:: (\w+)$")
_RULE = re.compile(r" *=+(  =+)+$")


def markdown(text: str) -> str:
    """A docstring with everything that Markdown would misread in fences.

    >>> markdown("Found by :func:`~surefoot.tune`.")
    'Found by `tune`.'
    """
    lines = _ROLE.sub(_code, text).splitlines()
    shown: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        indent = line[: len(line) - len(line.lstrip())]
        if line.lstrip().startswith(">>>"):
            end = next((i for i in range(at, len(lines)) if not lines[i].strip()), len(lines))
            shown += _fenced(indent, "pycon", lines[at:end])
        elif _RULE.match(line):
            end = max(i for i in range(at, len(lines)) if _RULE.match(lines[i])) + 1
            shown += _fenced(indent, "text", lines[at:end])
        elif found := _CODE.match(line):
            end = next((i for i in range(at + 1, len(lines)) if _is_left(lines[i], indent)), len(lines))
            block = [part[4:] if part.startswith(f"{indent}    ") else part for part in lines[at + 1 : end]]
            shown += _fenced(indent, found.group(2), _stripped(block))
        else:
            shown.append(line)
            end = at + 1
        at = end
    return "\n".join(shown)


class Markdown(griffe.Extension):
    """Rewrites the docstring of every object that griffe reads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """One object."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def _code(role: re.Match[str]) -> str:
    short, target = role.groups()
    return f"`{target.rpartition('.')[2] if short else target}`"


def _is_left(line: str, indent: str) -> bool:
    """Whether a line is not part of a block that is indented further."""
    return bool(line.strip()) and not line.startswith(f"{indent} ")


def _stripped(lines: list[str]) -> list[str]:
    """Without empty lines at either end."""
    filled = [i for i, line in enumerate(lines) if line.strip()]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _fenced(indent: str, language: str, lines: list[str]) -> list[str]:
    return [f"{indent}```{language}", *lines, f"{indent}```"]
