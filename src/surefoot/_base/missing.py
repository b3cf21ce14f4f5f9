"""One error for all packages that are not installed."""

from __future__ import annotations


def missing(what: str, reason: object, extra: str) -> ImportError:
    """An error that says what needs a package, and names the extra to install.

    >>> raise missing("surefoot.integrations.optuna", ImportError("No module named 'optuna'"), "optuna")
    Traceback (most recent call last):
    ImportError: surefoot.integrations.optuna needs a package (No module named 'optuna'): pip install 'surefoot[optuna]'
    """
    return ImportError(f"{what} needs a package ({reason}): pip install 'surefoot[{extra}]'")
