"""Which code is the user's, and which belongs to a package with a version."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

_INSTALLED = ("site-packages", "dist-packages")


def is_foreign(cls: Any) -> bool:
    """Whether a class or function is of a package, so that it counts by its name and the package's version."""
    return package_of(getattr(cls, "__module__", None)) is not None


def package_of(module: Any) -> str | None:
    """The package that a module of this name belongs to; None if its code is the user's.

    >>> package_of("numpy.linalg"), package_of("json"), package_of("__main__")
    ('numpy', 'json', None)
    """
    top = module.partition(".")[0] if isinstance(module, str) else "builtins"
    return top if _is_package(top, _place(sys.modules.get(top))) else None


@lru_cache(maxsize=4096)
def _is_package(top: str, place: str | None) -> bool:
    if top in ("builtins", "surefoot"):
        return True
    if place is None:  # built into Python, not imported, or made in memory
        return top in sys.stdlib_module_names
    path = Path(place)
    if any(part in _INSTALLED for part in path.parts):
        return version_of(top) is not None  # a single file without a version is read as the user's
    library = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    return top in sys.stdlib_module_names and any(path.is_relative_to(folder) for folder in library)


def _place(module: ModuleType | None) -> str | None:
    """The file or folder of a module."""
    file = getattr(module, "__file__", None)
    if file is None:
        file = next(iter(getattr(module, "__path__", None) or ()), None)
    return file if isinstance(file, str) else None


@lru_cache(maxsize=1024)
def version_of(top: str) -> str | None:
    """The version of a package, without its build: builds for other devices are alike.

    >>> version_of("json") == f"Python {sys.version_info.major}.{sys.version_info.minor}"
    True
    """
    if top == "surefoot":
        return ""  # whoever uses this adds the version of its numbers
    if top == "builtins" or top in sys.stdlib_module_names:
        return f"Python {sys.version_info.major}.{sys.version_info.minor}"
    version = getattr(sys.modules.get(top), "__version__", None)
    if not isinstance(version, str):
        from importlib import metadata

        names = metadata.packages_distributions().get(top, [top])
        try:
            version = metadata.version(names[0])
        except metadata.PackageNotFoundError:
            return None
    return version.partition("+")[0]
