"""What commands print: JSON for machines, tables and sentences for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from surefoot._base.text import visible


def say(text: object) -> None:
    """Print a line; names, paths and titles of somebody else in it are shown, not obeyed."""
    typer.echo(visible(text))


def print_json(value: Any) -> None:
    """Print a value as strict JSON, which has neither ∞ nor NaN: they become the strings "inf", "-inf" and "nan".

    >>> print_json({"loss": (1.0, float("inf"))})
    {
      "loss": [
        1.0,
        "inf"
      ]
    }
    """
    typer.echo(json.dumps(_strict(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_table(head: Iterable[str], rows: Iterable[Iterable[str | Text]], title: str | None = None) -> None:
    """Print a table; a name of somebody else's in it is shown, not obeyed."""
    columns = [Column(name, overflow="fold") for name in head]
    table = Table(*columns, title=None if title is None else Text(visible(title)))
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    Console().print(table)


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _strict(value.tolist())
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)
