"""Results on disk, named by everything they depend on, so that no problem is solved twice."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from functools import cache as once
from pathlib import Path

from surefoot import data, pep, theory
from surefoot._base.files import write_whole
from surefoot.pep._solver import versions
from surefoot.pep._statement import Case, Verification

CACHE_VARIABLE = "SUREFOOT_PEP_CACHE"
"""A folder for the results, or ``off``."""


def folder(choice: bool | str | Path | None = None) -> Path | None:
    """Where results are kept; None if they are not.

    ``False`` is nowhere, a path is itself; ``None`` asks ``$SUREFOOT_PEP_CACHE`` (a folder, or ``off``), and like
    ``True`` falls back to ``surefoot/pep`` in the user's cache folder.

    >>> folder("results")
    PosixPath('results')
    """
    if choice is None:
        setting = os.environ.get(CACHE_VARIABLE, "").strip()
        choice = setting.lower() != "off" and (setting or True)
    if isinstance(choice, bool):
        return data.folders()[-1] / "pep" if choice else None
    return Path(choice).expanduser()


class Cache:
    """One JSON file a result: written whole or not at all, so that several processes may share the folder."""

    def __init__(self, where: Path | None) -> None:
        self.where = where
        self._origin = {"versions": versions(), "code": _code()}

    def load(self, statement: str, parameters: Case) -> Verification | None:
        """The stored result; None if there is none, or the file is damaged."""
        if self.where is None:
            return None
        try:
            stored = json.loads(self._path(statement, parameters).read_text(encoding="utf-8"))
            result = Verification(**{**stored, "failures": tuple(stored["failures"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        are_numbers = isinstance(result.worst_case, float) and isinstance(result.theory, float)
        return result if are_numbers and result.status == "optimal" else None

    def store(self, parameters: Case, result: Verification) -> None:
        """Keep a result. A folder that cannot be written to costs the cache, not the result."""
        if self.where is None:
            return
        path = self._path(result.statement, parameters)
        text = json.dumps(dataclasses.asdict(result), indent=1, allow_nan=False)
        with contextlib.suppress(OSError):
            self.where.mkdir(parents=True, exist_ok=True)
            write_whole(path, text, "a result", sync=False)

    def _path(self, statement: str, parameters: Case) -> Path:
        assert self.where is not None
        content = {"statement": statement, "parameters": dict(parameters), **self._origin}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return self.where / f"{statement}-{digest[:24]}.json"


@once
def _code() -> str:
    """Digest of the code that the results depend on: this room and the theory."""
    digest = hashlib.sha256()
    for package in (pep, theory):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
