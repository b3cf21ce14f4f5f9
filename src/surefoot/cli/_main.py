"""The commands. Each imports what it needs when it runs, so that ``surefoot --help`` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot._version import __version__
from surefoot.cli import _data
from surefoot.cli._errors import reported

app = typer.Typer(
    name="surefoot",
    help="Makes the learning rate of stochastic training visible, predictable and safe.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed on the way, 2 wrong usage, 130 interrupted.",
)
app.add_typer(_data.app, name="data")

_options = {"debug": False}


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"surefoot {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    _options["debug"] = debug


@app.command()
def reproduce(
    figures: Annotated[
        list[str] | None, typer.Argument(metavar="[FIGURE]...", help="Names of figures; none means all.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures and tables.")] = Path("out"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no table.")] = False,
) -> None:
    """Compute the figures again and write each as PNG, PDF and CSV.

    [bold]Examples[/]

      surefoot reproduce
      surefoot reproduce toy-function universal-curves --out figures
    """
    from surefoot.cli._reproduce import reproduce as run

    run(figures or [], out, quiet)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what is installed, which extras and data sets are there, and how to get what is missing.

    [bold]Example[/]

      surefoot doctor
    """
    from surefoot.cli._doctor import doctor as run

    run(as_json)


def main() -> None:
    """Entry point of the command."""
    with reported(lambda: _options["debug"]):
        app()
