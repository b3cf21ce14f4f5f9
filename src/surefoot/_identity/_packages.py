"""Which code belongs to a package that a version tells apart, and which is the user's.

One rule: what surely belongs to a package, and surely is what was installed, counts by its name and the package's
version. All else counts by what it is: byte code and values.
"""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

_MADE_AT_RUN_TIME = 1 << 9
"""A flag of classes: the library that a name says it is of may not have it."""
_INSTALLED = ("site-packages", "dist-packages")


def is_foreign(value: Any) -> bool:
    """Whether a class or function is a package's: defined in a module of it, and found there under its name."""
    if isinstance(value, FunctionType):  # functools.wraps copies __module__, not the globals
        return package_of(value.__globals__.get("__name__", "")) is not None
    module = getattr(value, "__module__", None)
    if package_of(module) is None:
        return False
    if not isinstance(value, type) or not value.__flags__ & _MADE_AT_RUN_TIME:
        return True
    found: Any = sys.modules.get(module or "builtins")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


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
    if any(part in _INSTALLED for part in Path(place).parts):
        return version_of(top) is not None  # a single file without a version is read as the user's
    return top in sys.stdlib_module_names and place.startswith(sysconfig.get_path("stdlib"))


def _place(module: ModuleType | None) -> str | None:
    """The file or folder of a module."""
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", None) or ()), None)
    return file if isinstance(file, str) else None


@lru_cache(maxsize=1024)
def version_of(top: str) -> str | None:
    """The version of a package, without its build: builds for other devices are alike. None if there is none.

    A version says what code it is only if the package came from an index and has not been changed since. In all other
    cases, such as a package of yours that pip installed from a folder, a hash of its code follows the version.

    >>> version_of("json") == f"Python {sys.version_info.major}.{sys.version_info.minor}"
    True
    """
    if top == "surefoot":
        return ""  # whoever uses this adds the version of its numbers
    if top == "builtins" or top in sys.stdlib_module_names:
        return f"Python {sys.version_info.major}.{sys.version_info.minor}"
    try:
        installed = metadata.distribution(top)
    except metadata.PackageNotFoundError:  # its modules have another name
        if not (names := metadata.packages_distributions().get(top)):
            return None
        installed = metadata.distribution(names[0])
    state, version = hashlib.blake2b(digest_size=6), installed.version.partition("+")[0]
    files = sorted(_unsure(top, installed))
    for path in files:
        state.update(hashlib.blake2b(path.read_bytes()).digest())
    return f"{version} ({state.hexdigest()})" if files else version


def _unsure(top: str, installed: metadata.Distribution) -> Iterator[Path]:
    """The files of a package of which the version does not surely say what is in them.

    Of a package from an index, these are the loaded files that are newer than the installer's record; of any other one
    all files with code.
    """
    record = re.search(r"^(.*/RECORD),", installed.read_text("RECORD") or "", re.MULTILINE)
    if record is None or installed.read_text("direct_url.json") is not None:
        place = Path(_place(sys.modules.get(top)) or "")
        folder = place if place.is_dir() else place.parent
        files = folder.rglob("*") if place.name == "__init__.py" or place.is_dir() else iter([place])
        return (path for path in files if path.suffix in (".py", ".so", ".pyd") and path.is_file())
    written = Path(str(installed.locate_file(record[1]))).stat().st_mtime + 2.0
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == top]
    loaded = {Path(file) for module in modules if isinstance(file := getattr(module, "__file__", None), str)}
    return (path for path in loaded if path.is_file() and path.stat().st_mtime > written)
