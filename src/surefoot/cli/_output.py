"""What commands print beside tables: JSON for machines, bars for people."""

from __future__ import annotations

import json
import math
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn


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


def bar(quiet: bool, *columns: ProgressColumn, text: str = "{task.description}") -> Progress:
    """A bar on stderr that goes when its work is done."""
    first = SpinnerColumn(), TextColumn(text), BarColumn()
    shown = Console(stderr=True)
    return Progress(*first, *columns, console=shown, disable=quiet, transient=True, speed_estimate_period=1e9)


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nonfinite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
