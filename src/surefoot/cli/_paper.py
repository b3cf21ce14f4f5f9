"""Commands that compute the paper again: reproduce, claims, pep."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from surefoot.cli._app import FAILURE, PAPER, Json, Quiet, app, print_json, print_table, resumable

if TYPE_CHECKING:
    from surefoot.pep import WorstCase


@app.command(rich_help_panel=PAPER)
def reproduce(
    figures: Annotated[
        list[str] | None,
        Argument(
            metavar="FIGURE",
            help="Names of figures, or the paper's numbers (figure1 … figure12); none means all.",
        ),
    ] = None,
    out: Annotated[Path, Option("--out", "-o", help="Folder for pictures and tables.")] = Path("out"),
    preset: Annotated[
        str | None,
        Option(
            "--preset",
            help="Train ResNet20 first, in this size: smoke (seconds), start, small (hours), medium, paper (days).",
        ),
    ] = None,
    device: Annotated[str, Option("--device", help="Where networks train: cpu, cuda, …")] = "cpu",
    data: Annotated[
        str | None,
        Option("--data", help="CIFAR-10's folder; else what the data folders hold."),
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress bar and no table.")] = False,
) -> None:
    """Compute the figures again and write each as PNG, PDF and CSV.

    Without names: all figures, then a summary of the claims and OUT/report.html.

    Figures of ResNet20 are drawn from runs in OUT/studies, or else from numbers that come with the package. With
    --preset they are trained: [bold]cifar10[/] names all of them. An interrupted sweep goes on where it stopped.

    [bold]Examples[/]

      surefoot reproduce
      surefoot reproduce figure1 figure4 --out figures
      surefoot reproduce cifar10 --preset smoke
    """
    from surefoot.cli._reproduce import reproduce as run

    with resumable(f"figures that are done are in {out}, finished runs of networks in {out / 'studies'}"):
        run(figures or [], out, preset, device, data, quiet)


@app.command(rich_help_panel=PAPER)
def claims(
    ids: Annotated[list[str] | None, Argument(metavar="ID", help="Ids of claims; none means all.")] = None,
    as_json: Json = False,
    store: Annotated[Path | None, Option("--store", help="Folder that keeps the runs, such as out/studies.")] = None,
    quiet: Quiet = False,
) -> None:
    """Check the paper's claims on real runs: the rule, the numbers, the verdict.

    A claim that fails is shown as failing; the exit code is 0 all the same, because the check itself worked.

    [bold]Examples[/]

      surefoot claims
      surefoot claims v3-lower-bound vowel-reason
      surefoot claims --json
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from surefoot.paper.claims import check

    rows = check(ids or None, folder=store, progress=not (quiet or as_json))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    colours = {"holds": "green", "fails": "red", "not-run": "yellow"}
    counts = ", ".join(f"{sum(row.verdict == verdict for row in rows)} {verdict}" for verdict in colours)
    table = Table("verdict", "claim, rule, measured", title=f"Claims of the paper: {counts}", show_lines=True)
    for row in rows:
        found = "\n".join(f"{size}: {words}" for size, words in row.sweeps.items()) or row.measured
        text = Text.assemble((row.claim, "bold"), f"  ({row.id})\n", (f"rule: {row.rule}", "dim"), f"\n{found}")
        table.add_row(Text(row.verdict, colours[row.verdict]), text)
    Console().print(table)


@app.command(rich_help_panel=PAPER)
def pep(
    names: Annotated[list[str] | None, Argument(metavar="NAME", help="Names of statements; none means all.")] = None,
    cases: Annotated[bool, Option("--cases", help="One row a case instead of one a statement.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Verify lemmas and bounds in the worst case, by semidefinite programs (needs [bold]surefoot\\[pep][/]).

    The exit code is 1 if a case is not solved or contradicts its statement.

    [bold]Examples[/]

      surefoot pep
      surefoot pep one-step --cases
    """
    from surefoot.pep import run, summary, table

    with resumable("cases that are solved are kept in the cache"):
        rows = run(names or None, progress=False if quiet or as_json else None)
    if as_json:
        print_json([_numbers(row) for row in rows])
    else:
        head, *lines = table(rows) if cases else summary(rows)
        print_table(head, lines)
    if not all(row.agrees for row in rows):
        raise typer.Exit(FAILURE)


def _numbers(result: WorstCase) -> dict[str, Any]:
    """A case for machines; what no solver solved has an error in place of numbers."""
    case = {"statement": result.statement, "case": dict(result.parameters), "ok": result.agrees}
    if result.verdict == "not solved":
        return {**case, "error": "; ".join(result.failures)}
    kept = ("worst_case", "attained", "theory", "exact", "relation", "verdict", "solver", "status")
    return {**case, **{name: getattr(result, name) for name in kept}, "failures": list(result.failures)}
