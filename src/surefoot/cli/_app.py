"""The command itself, without its parts: what it says of itself, how it fails, and options that several parts have."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from surefoot._version import __version__
from surefoot.cli._errors import reported

OWN = "Your own training"
PAPER = "The paper, computed again"
MACHINE = "This installation"


def completing(*names: str) -> Callable[[str], list[str]]:
    """Make the function that finishes a word in the shell: one of the names, or of a registry ``module:attribute``."""

    def complete(incomplete: str) -> list[str]:
        entries: list[Any] = []
        for name in names:
            module, colon, attribute = name.partition(":")
            listed = getattr(importlib.import_module(module), attribute) if colon else [name]
            entries += listed() if callable(listed) else listed
        words = [str(getattr(entry, "name", entry)) for entry in entries]
        return [word for word in words if word.startswith(incomplete)]

    return complete


Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress bar; only the result.")]
Silent = Annotated[bool, Option("--quiet", "-q", help="Print nothing.")]
Json = Annotated[bool, Option("--json", help="Print JSON, for machines, and no progress bar.")]
Store = Annotated[Path | None, Option("--store", help="File that keeps the runs; by default beside the spec, as .db.")]
Engine = Annotated[str, Option("--engine", help="Who does the runs: auto (this machine) or dask (a cluster).")]
Address = Annotated[
    str | None, Option("--address", help="Of an existing Dask scheduler; without it, one is started on this machine.")
]
Cpus = Annotated[int | None, Option("--cpus", help="What a run takes of the CPU that Dask workers offer.")]
Gpus = Annotated[int | None, Option("--gpus", help="What a run takes of the GPU that Dask workers offer.")]

_options = {"debug": False}


class Handover(BaseException):
    """Leaves the command with work to be done outside of it: exceptions of a script are not those of the command."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work


class Group(TyperGroup):
    """Commands whose errors are reported before click sees them: it would turn Ctrl-C into a bare "Aborted".

    Their help shows nothing behind an option that takes no value; typer would write <bool> there.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and report its errors."""
        with reported(lambda: _options["debug"]):
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> Any:
        """The options of the group itself."""
        return _bare(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the group by its name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and not isinstance(command, TyperGroup):
            original = command.get_params
            command.get_params = lambda ctx: _bare(original(ctx))  # type: ignore[method-assign]
        return command


def _bare(parameters: Any) -> Any:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


app = typer.Typer(
    name="surefoot",
    cls=Group,
    help="""Train without tuning the learning rate.

    [bold]Start here[/]: two commands, from a spec to an answer.

      surefoot study SPEC.toml    train; which rates hold, and which should
      surefoot report SPEC.db     an interactive page of it

    Every command explains itself, with examples: surefoot COMMAND --help. `surefoot study --help` shows a spec.
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
