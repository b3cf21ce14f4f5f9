"""How the command fails: one sentence and an exit code, a traceback only with ``--debug``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from surefoot._base.text import visible

FAILURE, USAGE, INTERRUPTED = 1, 2, 130
"""Something went wrong while working; what was asked for does not exist or makes no sense; Ctrl-C."""

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
