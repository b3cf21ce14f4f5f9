"""Commands for stores: what they hold, and how it is removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from surefoot._base.text import aligned
from surefoot.cli._app import OWN, Group, Json, Silent, app, print_json, say

store = typer.Typer(cls=Group, no_args_is_help=True, help="What a store holds: list, prune, delete.")
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


@store.command("prune")
def prune(file: File, states: States = None, quiet: Silent = False) -> None:
    """Remove the files of unfinished runs that no study of the store goes on with.

    These are runs of earlier versions of a study's code: of each problem with its settings, the study that was started
    last keeps its own. Nothing may be running on the store.

    [bold]Examples[/]

      surefoot store prune study.db
    """
    from surefoot.runs import Store

    with Store.write(file, states=states) as opened:
        last = {_without_code(entry.settings): entry.context for entry in opened.studies()}
        kept = {path for context in last.values() for path in opened.unfinished(context)}
        removed = [path for path in opened.unfinished() if path not in kept]
        size = sum(path.stat().st_size for path in removed)
        for path in removed:
            path.unlink(missing_ok=True)
    if not quiet:
        say(f"removed {len(removed)} files of unfinished runs, {size} bytes")


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


def _without_code(settings: dict[str, Any]) -> str:
    """The settings of a study that stay when only its code changes."""
    methods = {"methods", "lrs", "seeds"}
    shared = {name: value for name, value in settings.items() if name not in methods}
    return json.dumps(shared | {"problem": settings["problem"]["name"]}, sort_keys=True)
