"""Options that several commands have, and flags that look like flags: typer would write <bool> behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option
from typer.core import TyperGroup

from surefoot.cli import _completion

Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress bar; only the result.")]
Silent = Annotated[bool, Option("--quiet", "-q", help="Print nothing.")]
Json = Annotated[bool, Option("--json", help="Print JSON, for machines, and no progress bar.")]
Store = Annotated[Path | None, Option("--store", help="File that keeps the runs; by default beside the spec, as .db.")]
Engine = Annotated[
    str,
    Option(
        "--engine",
        help="Who does the runs: auto (this machine) or dask (a cluster).",
        autocompletion=_completion.engines,
    ),
]
Address = Annotated[
    str | None, Option("--address", help="Of an existing Dask scheduler; without it, one is started on this machine.")
]
Cpus = Annotated[int | None, Option("--cpus", help="What a run takes of the CPU that Dask workers offer.")]
Gpus = Annotated[int | None, Option("--gpus", help="What a run takes of the GPU that Dask workers offer.")]


class FlagGroup(TyperGroup):
    """Commands whose help shows nothing behind an option that takes no value."""

    def get_params(self, ctx: Any) -> Any:
        """Its own options."""
        return _bare(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of its commands."""
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
