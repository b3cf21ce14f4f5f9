"""The command itself, without its parts: what it says of itself, how it fails, and the options of all its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer import Option

from surefoot._version import __version__
from surefoot.cli._errors import reported
from surefoot.cli._flags import FlagGroup

_options = {"debug": False}


class Handover(BaseException):
    """Leaves the command with work to be done outside of it: exceptions of a script are not those of the command."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work


class _Group(FlagGroup):
    """Commands whose errors are reported before click sees them: it would turn Ctrl-C into a bare "Aborted"."""

    def invoke(self, ctx: Any) -> Any:
        with reported(lambda: _options["debug"]):
            return super().invoke(ctx)


app = typer.Typer(
    name="surefoot",
    cls=_Group,
    help="""Tells which learning rates of stochastic training hold, and finds the best one.

    [bold]Start here[/]: three commands, from nothing to an answer.

      surefoot init               write SPEC.toml: problem, methods, rates
      surefoot study SPEC.toml    train; which rates hold, and which should
      surefoot report SPEC.db     an interactive page of it

    Every command explains itself, with examples: surefoot COMMAND --help.
    """,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed on the way, 2 wrong usage, 130 interrupted (Ctrl-C). "
    "Results go to stdout, everything else to stderr.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"surefoot {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[
        bool, Option("--debug", help="Show the traceback of an error; may stand anywhere in the line.")
    ] = False,
) -> None:
    _options["debug"] = debug
