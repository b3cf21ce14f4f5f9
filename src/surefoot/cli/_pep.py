"""``surefoot pep``: statements verified in the worst case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from surefoot.cli._errors import FAILURE
from surefoot.cli._output import print_json

if TYPE_CHECKING:
    from surefoot.pep import Row


def pep(names: Sequence[str] | None, cases: bool, as_json: bool, quiet: bool) -> None:
    """Verify, then print a table or JSON."""
    from surefoot.pep import run, summary, table

    rows = run(names, progress=False if quiet or as_json else None)
    if as_json:
        print_json([_numbers(row) for row in rows])
    else:
        header, *lines = table(rows) if cases else summary(rows)
        shown = Table(*header)
        for line in lines:
            shown.add_row(*line)
        Console().print(shown)
    if not all(row.ok for row in rows):
        raise typer.Exit(FAILURE)


def _numbers(row: Row) -> dict[str, Any]:
    """A case for machines; what no solver solved has an error in place of numbers."""
    found: dict[str, Any] = {"statement": row.name, "case": dict(row.parameters), "ok": row.ok}
    if row.result is None:
        return {**found, "error": row.error}
    kept = ("worst_case", "attained", "theory", "exact", "relation", "verdict", "solver", "status")
    return {**found, **{name: getattr(row.result, name) for name in kept}, "failures": list(row.result.failures)}
