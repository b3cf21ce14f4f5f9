"""``surefoot pep``: statements verified in the worst case."""

from __future__ import annotations

import json
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.table import Table

from surefoot.cli._errors import FAILURE


def pep(names: Sequence[str] | None, cases: bool, as_json: bool, quiet: bool) -> None:
    """Verify, then print a table or JSON."""
    from surefoot.pep import Row, run, summary, table

    rows = run(names, progress=False if quiet or as_json else None)
    if as_json:
        found = [{"ok": row.ok, **dict(zip(Row.COLUMNS, row.cells(), strict=True))} for row in rows]
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        header, *lines = table(rows) if cases else summary(rows)
        shown = Table(*header)
        for line in lines:
            shown.add_row(*line)
        Console().print(shown)
    if not all(row.ok for row in rows):
        raise typer.Exit(FAILURE)
