"""Commands about this installation: doctor, data."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from surefoot._version import __version__
from surefoot.cli._app import MACHINE, Group, Json, Quiet, app, print_json, print_table, say


@app.command(rich_help_panel=MACHINE)
def doctor(as_json: Json = False) -> None:
    """Say what is installed, which extras and data sets are there, and how to get what is missing.

    An extra is a group of packages that only some features need: pip install 'surefoot\\[pep]'.

    [bold]Example[/]

      surefoot doctor
    """
    from rich.text import Text

    from surefoot.data import available, folders

    facts = {
        "surefoot": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": [{"name": n, "extra": extra, "version": _installed(n)} for n, extra in _requirements().items()],
        "datasets": [{"name": info.name, "where": info.where} for info in available()],
        "cache": str(folders()[-1]),
    }
    if as_json:
        print_json(facts)
        return
    say(f"surefoot {facts['surefoot']}, Python {facts['python']}, {facts['system']}, {facts['cores']} cores")
    rows: list[list[str | Text]] = []
    packages: Any = facts["packages"]
    for row in packages:
        requirement = f"surefoot[{row['extra']}]" if row["extra"] else row["name"]
        missing = Text.assemble(("missing", "yellow"), f": pip install '{requirement}'")
        rows.append([row["name"], row["version"] or missing, row["extra"] or "core"])
    print_table(("package", "version", "for"), rows, "packages")
    print_table(("data set", "where"), [[info.name, info.where] for info in available()], "data sets")
    say(f"`surefoot data get NAME` downloads to the cache folder: {facts['cache']}")


def _requirements() -> dict[str, str]:
    """Every package that our own metadata asks for, and the extra that brings it ("" for the core)."""
    extras: dict[str, str] = {}
    for line in importlib.metadata.requires("surefoot") or []:
        name, extra = re.findall(r"^[\w.-]+", line)[0], "".join(re.findall(r"extra == ['\"]([\w-]+)", line))
        if name != "surefoot" and extra not in ("dev", "docs", "bench"):
            extras.setdefault(name, extra)
    return extras


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


data = typer.Typer(
    cls=Group,
    help="""Data sets: what there is, and how to get more.

    vowel, dna and digits come with the package; CIFAR-10 is downloaded once, checked, and kept.

    [bold]Examples[/]

      surefoot data list
      surefoot data get cifar10
    """,
    no_args_is_help=True,
)
app.add_typer(data, name="data", rich_help_panel=MACHINE)


@data.command("list")
def list_(as_json: Json = False) -> None:
    """List the data sets: bundled ones come with the package, cached ones were downloaded.

    [bold]Example[/]

      surefoot data list
    """
    from surefoot.data import available

    if as_json:
        print_json([asdict(info) for info in available()])
        return
    head = ("name", "where", "task", "rows", "features", "classes")
    cells = [[getattr(info, name) for name in head] for info in available()]
    print_table(head, [["" if cell is None else str(cell) for cell in row] for row in cells])
    say("`surefoot data get NAME` downloads what is not here yet.")


@data.command("get")
def get_(
    name: Annotated[str, Argument(metavar="NAME", help="As in `surefoot data list`, or a LIBSVM file of your own.")],
    source: Annotated[Path | None, Option("--from", metavar="PATH", help="For cifar10: a folder that has it.")] = None,
    quiet: Quiet = False,
) -> None:
    """Bring a data set into the cache, checked, and say where it is.

    Nothing is downloaded twice. `surefoot doctor` says where the cache is, SUREFOOT_DATA sets another folder.

    [bold]Examples[/]

      surefoot data get cifar10
      surefoot data get cifar10 --from cifar-10-batches-bin
    """
    from surefoot.data import get

    if quiet:
        import pooch

        pooch.get_logger().setLevel("WARNING")
    for path in get(name, path=source):
        say(path)
