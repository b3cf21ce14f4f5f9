"""What ``surefoot claims`` and ``surefoot reproduce`` say about the claims: a table, or a line a section."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from surefoot.paper.claims import SECTIONS, Checked

_COLOURS = {"holds": "green", "fails": "red", "not-run": "yellow"}


def summary(rows: Sequence[Checked]) -> Iterator[str]:
    """One line a section of claims, and a sentence a claim that fails."""
    found = {row.id: row for row in rows}
    for section, ids in SECTIONS.items():
        here = [found[name] for name in ids if name in found]
        if not here:
            continue
        counts = {verdict: [row for row in here if row.verdict == verdict] for verdict in _COLOURS}
        words = [f"{len(counts[verdict])} {word}" for verdict, word in (("holds", "hold"), ("fails", "fail"))]
        if len(counts["not-run"]) < len(here):
            yield f"{section}: {', '.join(words)}"
        for row in counts["fails"]:
            yield f"  [red]fails[/] {escape(f'{row.claim}. Measured: {row.measured}. ({row.id})')}"
        for reason, absent in itertools.groupby(counts["not-run"], key=lambda row: row.measured):
            names = [row.id for row in absent]
            yield f"{section}: {len(names)} not checked; {escape(reason)} ({', '.join(names)})"


def table(rows: Sequence[Checked]) -> Table:
    """One row a claim: verdict, then the claim, the rule that decides it, and the numbers."""
    counts = ", ".join(f"{sum(row.verdict == verdict for row in rows)} {verdict}" for verdict in _COLOURS)
    result = Table("verdict", "claim, rule, measured", title=f"Claims of the paper: {counts}", show_lines=True)
    for row in rows:
        text = Text.assemble((row.claim, "bold"), f"  ({row.id})\n", ("rule: ", "dim"), (row.rule, "dim"))
        if row.measured:
            text.append(f"\n{row.measured}")
        result.add_row(Text(row.verdict, _COLOURS[row.verdict]), text)
    return result
