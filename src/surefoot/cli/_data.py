"""``surefoot data list`` and ``surefoot data get``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from surefoot._text import visible
from surefoot.cli import _completion
from surefoot.cli._flags import FlagGroup

app = typer.Typer(
    cls=FlagGroup,
    help="""Data sets: what there is, and how to get more.

    vowel, dna, digits and a text come with the package; all others are downloaded once, checked, and kept.

    [bold]Examples[/]

      surefoot data list --all
      surefoot data get a9a
    """,
    no_args_is_help=True,
)


@app.command("list")
def list_(
    as_json: Annotated[bool, Option("--json", help="For machines.")] = False,
    everything: Annotated[bool, Option("--all", "-a", help="Also those that are not here yet.")] = False,
) -> None:
    """List the data sets that are here.

    Bundled ones come with the package, cached ones were downloaded.

    [bold]Examples[/]

      surefoot data list
      surefoot data list --all
    """
    from surefoot.data import available

    rows = [info for info in available() if everything or info.where != "downloadable"]
    if as_json:
        typer.echo(json.dumps([{**asdict(info), "path": str(info.path) if info.path else None} for info in rows]))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("name", "where", "task", "rows", "features", "classes")
    for info in rows:
        numbers = [info.rows, info.features, info.classes]
        table.add_row(
            Text(visible(info.name)),
            info.where,
            info.task,
            *("" if number is None else str(number) for number in numbers),
        )
    Console().print(table)
    if not everything:
        typer.echo("`surefoot data list --all` also shows what can be downloaded, `surefoot data get NAME` gets it.")


@app.command("get")
def get_(
    name: Annotated[
        str,
        Argument(
            metavar="NAME",
            help="A name of `surefoot data list --all`, or FOLDER/FILE of the LIBSVM site.",
            autocompletion=_completion.datasets,
        ),
    ],
    source: Annotated[
        Path | None, Option("--from", metavar="PATH", help="For cifar10: an archive or folder that has it.")
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress bar; only the result.")] = False,
) -> None:
    """Bring a data set into the cache, checked, and say where it is.

    Nothing is downloaded twice. `surefoot doctor` says where the cache is, SUREFOOT_DATA sets another folder.

    [bold]Examples[/]

      surefoot data get a9a
      surefoot data get multiclass/letter.scale
      surefoot data get cifar10
      surefoot data get cifar10 --from cifar-10-python.tar.gz
    """
    from surefoot.data import get

    for path in get(name, path=source, progress=not quiet):
        typer.echo(visible(path))
