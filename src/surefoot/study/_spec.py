"""The TOML file that describes a study."""

from __future__ import annotations

import os
import tomllib
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from surefoot._base.arguments import unknown


def read_spec(path: str | os.PathLike[str], study: type) -> dict[str, Any]:
    """The arguments of a study in a TOML file; a key of another name is an error, with the right one as a hint."""
    try:
        # Editors of Windows put a byte order mark in front, which TOML does not know.
        table = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileNotFoundError(f"spec {str(path)!r} does not exist") from None
    except IsADirectoryError:
        raise IsADirectoryError(f"spec {str(path)!r} is a folder, not a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from None
    known = {name: value for name, value in signature(study).parameters.items() if name != "stop"}
    for key in table:
        if key not in known:
            wrong = unknown("key", key, known)
            raise ValueError(f"{path}: {wrong} (what only the problem knows goes under [problem_options])")
    for name, parameter in known.items():
        if parameter.default is Parameter.empty and name not in table:
            raise ValueError(f"{path}: the key {name!r} is missing")
    return table
