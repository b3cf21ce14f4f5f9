"""How the command fails: one sentence and an exit code, a traceback only with ``--debug``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FAILURE = 1
"""Something went wrong while working: a file, the network, a solver."""
USAGE = 2
"""What was asked for does not exist or makes no sense."""
INTERRUPTED = 130


class UsageFault(Exception):
    """What was asked for does not exist or makes no sense."""


@contextmanager
def reported(debug: Callable[[], bool]) -> Iterator[None]:
    """Turn exceptions of the library into a message on stderr and an exit code."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        sys.exit(_say(str(interrupt) or "interrupted", INTERRUPTED))
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, UsageFault) as error:
        if debug():
            raise
        sys.exit(_say(f"error: {error}", USAGE if isinstance(error, ValueError | TypeError | UsageFault) else FAILURE))


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"surefoot: {message}\n")
    return code
