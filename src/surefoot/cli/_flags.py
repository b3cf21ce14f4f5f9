"""Flags that look like flags: typer would write <bool> behind them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


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
