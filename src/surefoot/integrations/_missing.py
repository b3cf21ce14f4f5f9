"""One error for all packages that are not installed."""

from __future__ import annotations


def missing(module: str, error: ImportError, extra: str | None = None) -> ImportError:
    """An error that names the extra to install; it is called as the module, unless given.

    >>> raise missing("optuna", ImportError("No module named 'optuna'"))
    Traceback (most recent call last):
    ImportError: surefoot.integrations.optuna needs a package (No module named 'optuna'): pip install 'surefoot[optuna]'
    """
    extra = extra or module
    return ImportError(f"surefoot.integrations.{module} needs a package ({error}): pip install 'surefoot[{extra}]'")
