"""The command ``surefoot``."""

import io
import sys

from surefoot.cli._main import Handover, app

__all__ = ["main"]


def main() -> None:
    """Entry point of the command."""
    words = sys.argv[1:]
    is_watch = next((word for word in words if not word.startswith("-")), None) == "watch"
    if isinstance(sys.stdout, io.TextIOWrapper) and not is_watch:
        sys.stdout.reconfigure(errors="replace")  # where there is no ≥ or α, numbers are worth more than an error
    end = words.index("watch") if is_watch else len(words)  # what follows is the script's
    arguments = [word for place, word in enumerate(words) if word != "--debug" or place > end]
    try:
        app(["--debug", *arguments] if "--debug" in words[:end] else arguments)
    except Handover as handover:
        work = handover.work
    work()
