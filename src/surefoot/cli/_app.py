"""The command without its parts: what it says of itself, how it fails, what it prints, and options of several parts."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from surefoot._base.text import visible
from surefoot._version import __version__
from surefoot.plots import plain

if TYPE_CHECKING:
    from rich.text import Text

OWN = "Your own training"
PAPER = "The paper, computed again"
MACHINE = "This installation"

FAILURE, USAGE, INTERRUPTED = 1, 2, 130
"""Something went wrong while working; what was asked for does not exist or makes no sense; Ctrl-C."""

_USAGE_ERRORS = typer.BadParameter.__mro__[2]
"""The base of typer's own errors, which print themselves: it has no public name in all versions of typer."""

_EXPECTED = (ValueError, TypeError, OSError, ImportError, RuntimeError)
"""What the library raises on purpose, with a message for the user; anything else is a fault of the library."""

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


class Handover(BaseException):
    """Leaves the command with work to be done outside of it: exceptions of a script are not those of the command."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work


# -- how it fails -----------------------------------------------------------------------------------------------------


class Group(TyperGroup):
    """Commands whose errors are reported before click sees them: it would turn Ctrl-C into a bare "Aborted"."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and report its errors."""
        with reported(lambda: bool(ctx.find_root().params.get("debug"))):
            return super().invoke(ctx)


@contextmanager
def reported(debug: Callable[[], bool]) -> Iterator[None]:
    """Turn exceptions of the library into a message on stderr and an exit code, and warnings into one line each."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise  # the end of --help, an exit code, `| head`: typer knows what to do
    except KeyboardInterrupt as interrupt:
        sys.exit(_fail(str(interrupt) or "interrupted; nothing was begun that could be kept", INTERRUPTED))
    except Exception as error:
        if debug() or isinstance(error, _USAGE_ERRORS):
            raise
        if not isinstance(error, _EXPECTED):
            kind = f"{type(error).__name__}: {error}"
            sys.exit(_fail(f"unexpected {kind}; `surefoot --debug …` shows where: please report it", FAILURE))
        sys.exit(_fail(f"error: {error}", USAGE if isinstance(error, ValueError | TypeError) else FAILURE))


@contextmanager
def resumable(kept: str) -> Iterator[None]:
    """Let Ctrl-C say what is kept, unless the library has said it already, and that the same line goes on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        words = str(interrupt) or f"interrupted; {kept}. The same command goes on from there"
        raise KeyboardInterrupt(words) from None


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning without the file and the line that ``warnings`` shows: users of the command wrote neither."""
    _fail(f"warning: {message}", 0)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"surefoot: {visible(message)}\n")
    return code


# -- what it prints ---------------------------------------------------------------------------------------------------


def say(text: object) -> None:
    """Print a line; names, paths and titles of somebody else in it are shown, not obeyed."""
    typer.echo(visible(text))


def print_json(value: Any) -> None:
    """Print a value as strict JSON, in which ∞ and NaN are texts."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_table(head: Iterable[str], rows: Iterable[Iterable[str | Text]], title: str | None = None) -> None:
    """Print a table; a name of somebody else's in it is shown, not obeyed."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(name, overflow="fold") for name in head]
    table = Table(*columns, title=None if title is None else Text(visible(title)))
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    Console().print(table)


# -- what it says of itself -------------------------------------------------------------------------------------------

app = typer.Typer(
    name="surefoot",
    cls=Group,
    help="""Train without tuning the learning rate.

    [bold]Start here[/]: a script of yours, or a spec of a sweep.

      surefoot watch train.py     run it unchanged; is its learning rate right?
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
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False,
) -> None: ...
