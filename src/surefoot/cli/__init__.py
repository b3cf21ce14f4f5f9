"""The command ``surefoot``. Its parts import what they need when they run, so that ``surefoot --help`` is quick."""

import io  # noqa: I001
import sys

from surefoot.cli import _own, _forecast, _store, _paper, _machine  # noqa: F401 - the order of the help
from surefoot.cli._app import Handover, app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the command."""
    is_watch = next((word for word in sys.argv[1:] if not word.startswith("-")), None) == "watch"
    if isinstance(sys.stdout, io.TextIOWrapper) and not is_watch:
        sys.stdout.reconfigure(errors="replace")  # where there is no ≥ or α, numbers are worth more than an error
    try:
        app()
    except Handover as handover:
        work = handover.work
    work()
