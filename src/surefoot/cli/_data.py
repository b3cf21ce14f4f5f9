"""``surefoot data``: data sets, those that are here and those that can be had."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from surefoot.cli._app import MACHINE, Group, Json, Quiet, app, completing

data = typer.Typer(
    cls=Group,
    help="""Data sets: what there is, and how to get more.

    vowel, dna, digits and a text come with the package; CIFAR-10 is downloaded once, checked, and kept.

    [bold]Examples[/]

      surefoot data list --all
      surefoot data get cifar10
    """,
    no_args_is_help=True,
)


app.add_typer(data, name="data", rich_help_panel=MACHINE)


@data.command("list")
def list_(
    as_json: Json = False,
    everything: Annotated[bool, Option("--all", "-a", help="Also those that are not here yet.")] = False,
) -> None:
    """List the data sets that are here.

    Bundled ones come with the package, cached ones were downloaded.

    [bold]Examples[/]

      surefoot data list
      surefoot data list --all
    """
    from surefoot.cli._output import print_json, print_table
    from surefoot.data import available

    infos = [info for info in available() if everything or info.where != "downloadable"]
    if as_json:
        print_json([asdict(info) for info in infos])
        return
    head = ("name", "where", "task", "rows", "features", "classes")
    cells = [[getattr(info, name) for name in head] for info in infos]
    print_table(head, [["" if cell is None else str(cell) for cell in row] for row in cells])
    if not everything:
        typer.echo("`surefoot data list --all` also shows what can be downloaded, `surefoot data get NAME` gets it.")


@data.command("get")
def get_(
    name: Annotated[
        str,
        Argument(
            metavar="NAME",
            help="A name of `surefoot data list --all`, or a LIBSVM file of your own.",
            autocompletion=completing("surefoot.data:available"),
        ),
    ],
    source: Annotated[Path | None, Option("--from", metavar="PATH", help="For cifar10: a folder that has it.")] = None,
    quiet: Quiet = False,
) -> None:
    """Bring a data set into the cache, checked, and say where it is.

    Nothing is downloaded twice. `surefoot doctor` says where the cache is, SUREFOOT_DATA sets another folder.

    [bold]Examples[/]

      surefoot data get cifar10
      surefoot data get cifar10 --from cifar-10-batches-bin
    """
    from surefoot.cli._output import say
    from surefoot.data import get

    if quiet:
        import pooch

        pooch.get_logger().setLevel("WARNING")
    for path in get(name, path=source):
        say(path)
