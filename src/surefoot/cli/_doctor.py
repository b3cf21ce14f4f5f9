"""``surefoot doctor``: what is here, what is missing, how to get it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from typing import Any

from surefoot._version import __version__
from surefoot.cli._app import MACHINE, Json, app


@app.command(rich_help_panel=MACHINE)
def doctor(as_json: Json = False) -> None:
    """Say what is installed, which extras and data sets are there, and how to get what is missing.

    An extra is a group of packages that only some features need: pip install 'surefoot\\[pep]'.

    [bold]Example[/]

      surefoot doctor
    """
    from rich.text import Text

    from surefoot.cli._output import print_json, print_table, say

    facts = findings()
    if as_json:
        print_json(facts)
        return
    say(f"surefoot {facts['surefoot']}, Python {facts['python']}, {facts['system']}, {facts['cores']} cores")
    rows: list[list[str | Text]] = []
    for row in facts["packages"]:
        requirement = f"surefoot[{row['extra']}]" if row["extra"] else row["name"]
        missing = Text.assemble(("missing", "yellow"), f": pip install '{requirement}'")
        rows.append([row["name"], row["version"] or missing, row["extra"] or "core"])
    print_table(("package", "version", "for"), rows, "packages")
    print_table(("data set", "where"), [[row["name"], row["where"]] for row in facts["datasets"]], "data sets")
    say(f"More data: `surefoot data list --all`. Cache folder: {facts['cache']}")


def findings() -> dict[str, Any]:
    """Versions, extras and data sets of this installation."""
    from surefoot.data import available, folders

    packages = [{"name": name, "extra": extra, "version": _installed(name)} for name, extra in _requirements().items()]
    return {
        "surefoot": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": packages,
        "datasets": [{"name": info.name, "where": info.where} for info in available() if info.where != "downloadable"],
        "cache": str(folders()[-1]),
    }


def _requirements() -> dict[str, str]:
    """Every package that our own metadata asks for, and the extra that brings it ("" for the core)."""
    extras: dict[str, str] = {}
    for line in importlib.metadata.requires("surefoot") or []:
        name, extra = re.findall(r"^[\w.-]+", line)[0], "".join(re.findall(r"extra == ['\"]([\w-]+)", line))
        if name != "surefoot" and extra not in ("dev", "docs", "bench"):
            extras.setdefault(name, extra)
    return extras


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
