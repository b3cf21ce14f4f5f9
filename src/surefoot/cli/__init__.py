"""The command ``surefoot``."""

from surefoot.cli._main import main

__all__ = ["main"]
