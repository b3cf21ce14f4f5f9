"""Commands for stores: what they hold, and how it is removed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from surefoot._base.text import aligned
from surefoot.cli._app import OWN, Group, Json, Silent, app, print_json, say

store = typer.Typer(cls=Group, no_args_is_help=True, help="What a store holds: list, delete.")
app.add_typer(store, name="store", rich_help_panel=OWN)

File = Annotated[Path, Argument(metavar="STORE.db", help="The file of one or more studies.")]
States = Annotated[Path | None, Option("--states", help="The folder of unfinished runs, if it is not STORE.db.states.")]


@store.command("ls")
def ls(file: File, as_json: Json = False) -> None:
    """List the studies of a store, the last started one at the end, with their finished and unfinished runs.

    [bold]Examples[/]

      surefoot store ls study.db
      surefoot store ls study.db --json
    """
    from surefoot.runs import Store

    with Store.read(file) as opened:
        rows = [
            {
                "study": number,
                "problem": entry.settings["problem"]["name"],
                "methods": [method["name"] for method in entry.settings["methods"]],
                "created": entry.created,
                "runs": len(opened.done(entry.context)),
                "unfinished": len(opened.unfinished(entry.context)),
            }
            for number, entry in enumerate(opened.studies())
        ]
    if as_json:
        print_json(rows)
    elif rows:
        lines = [[", ".join(v) if isinstance(v, list) else str(v) for v in row.values()] for row in rows]
        say(aligned([list(rows[0]), *lines]))
    else:
        say("no studies")


@store.command("delete")
def delete(
    file: File,
    study: Annotated[int, Argument(metavar="STUDY", help="Its number in `surefoot store ls`.")],
    states: States = None,
    quiet: Silent = False,
) -> None:
    """Delete a study, with its runs unless another study of the store has them too.

    [bold]Examples[/]

      surefoot store delete study.db 0
    """
    from surefoot.runs import Store

    with Store.write(file, states=states) as opened:
        entries = opened.studies()
        if not 0 <= study < len(entries):
            raise ValueError(f"study must be a number below {len(entries)}, the studies in {file}, got {study}")
        opened.delete(entries[study])
    if not quiet:
        say(f"deleted study {study}; the others keep their order")
