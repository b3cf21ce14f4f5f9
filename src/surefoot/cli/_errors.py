"""How the command fails: one sentence and an exit code, a traceback only with ``--debug``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from surefoot._base.text import visible

FAILURE = 1
"""Something went wrong while working: a file, the network, a package that is missing, a solver."""
USAGE = 2
"""What was asked for does not exist or makes no sense."""
INTERRUPTED = 130
"""Ctrl-C."""

_USAGE_ERRORS = typer.BadParameter.__mro__[2]
"""The base of typer's own errors, which print themselves: it has no public name in all versions of typer."""

_EXPECTED = (ValueError, TypeError, OSError, ImportError, RuntimeError)
"""What the library raises on purpose, with a message for the user; anything else is a fault of the library."""


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
        sys.exit(_say(str(interrupt) or "interrupted", INTERRUPTED))
    except Exception as error:
        if debug() or isinstance(error, _USAGE_ERRORS):
            raise
        if not isinstance(error, _EXPECTED):
            kind = f"{type(error).__name__}: {error}"
            sys.exit(_say(f"unexpected {kind}; `surefoot --debug …` shows where: please report it", FAILURE))
        sys.exit(_say(f"error: {error}", USAGE if isinstance(error, ValueError | TypeError) else FAILURE))


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning without the file and the line that ``warnings`` shows: users of the command wrote neither."""
    _say(f"warning: {message}", 0)


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"surefoot: {visible(message)}\n")
    return code
