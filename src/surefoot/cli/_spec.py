"""Reading a spec for a command."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from surefoot._text import visible
from surefoot.study import Spec, Study


def read(path: Path) -> Study:
    """The study of a spec; ``problem = "module:factory"`` finds modules that stand beside the file.

    Such a spec is code: reading it imports the module, and says so on stderr.
    """
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # At the end: a file of the user's must not hide a package that something else imports.
        sys.path.append(folder)
    problem = Spec.from_toml(path).problem
    if ":" in problem:
        _say_what_is_imported(problem.partition(":")[0])
    return Study.from_spec(path)


def _say_what_is_imported(module: str) -> None:
    """A spec with a problem of its own runs Python code: say which, before it runs."""
    try:
        found = importlib.util.find_spec(module.partition(".")[0])  # to look for a module in a package would import it
    except (ImportError, ValueError):  # the study says what is wrong with it
        return
    if found is not None:
        sys.stderr.write(f"the spec imports the module {visible(module)} from {visible(found.origin)}\n")
