"""One error for all packages that are not installed."""

from __future__ import annotations


def missing(extra: str, error: ImportError) -> ImportError:
    """An error that names the extra to install.

    >>> raise missing("optuna", ImportError("No module named 'optuna'"))
    Traceback (most recent call last):
    ImportError: surefoot.integrations.optuna needs a package (No module named 'optuna'): pip install 'surefoot[optuna]'
    """
    return ImportError(f"surefoot.integrations.{extra} needs a package ({error}): pip install 'surefoot[{extra}]'")
