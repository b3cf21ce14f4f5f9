"""Reading a spec for a command."""

from __future__ import annotations

import sys
from pathlib import Path

from surefoot.study import Study


def read(path: Path) -> Study:
    """The study of a spec; ``problem = "module:factory"`` finds modules that stand beside the file."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # At the end: a file of the user's must not hide a package that something else imports.
        sys.path.append(folder)
    return Study.from_spec(path)
