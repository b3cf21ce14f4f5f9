"""What commands print: JSON for machines, tables for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from surefoot._base.text import visible


def print_json(value: Any) -> None:
    """Print a value, with ∞ and NaN as strings, because JSON has neither.

    >>> print_json({"loss": [1.0, float("inf")]})
    {
      "loss": [
        1.0,
        "inf"
      ]
    }
    """
    typer.echo(json.dumps(_without_nonfinite(value), indent=2, ensure_ascii=False, default=str))


def print_table(head: Iterable[str], rows: Iterable[Iterable[str | Text]], title: str | None = None) -> None:
    """Print a table; a name of somebody else's in it is shown, not obeyed."""
    columns = [Column(name, overflow="fold") for name in head]
    table = Table(*columns, title=None if title is None else Text(visible(title)))
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    Console().print(table)


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nonfinite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
