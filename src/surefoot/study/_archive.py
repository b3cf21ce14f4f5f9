"""Where a result finds the finished runs of one problem and setting, and what is known about the problem."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.runs import Store, StudyEntry, Trace


@dataclass
class MemoryArchive:
    """Runs and facts that live as long as the result."""

    runs: Sequence[Trace]
    known: dict[str, Any] = field(default_factory=dict)

    def traces(self) -> Iterable[Trace]:
        """All finished runs."""
        return self.runs

    def facts(self) -> dict[str, Any]:
        """What was computed about the problem, by name."""
        return dict(self.known)

    def remember(self, name: str, value: Any) -> None:
        """Keep one more fact."""
        self.known[name] = value


@dataclass(frozen=True)
class FileArchive:
    """Runs and facts in a study's file, which is opened only while something is read or written."""

    path: Path
    context: str
    problem: str

    def traces(self) -> Iterator[Trace]:
        """All finished runs, of other studies of the same problem and settings too."""
        with Store.read(self.path) as store:
            yield from store.traces(self.context)

    def facts(self) -> dict[str, Any]:
        """What was computed about the problem: JSON-able values by name."""
        with Store.read(self.path) as store:
            return store.facts(self.problem)

    def remember(self, name: str, value: Any) -> None:
        """Keep one more fact, or replace it."""
        with Store.write(self.path) as store:
            store.remember(self.problem, name, value)


def entry_at(entries: Sequence[StudyEntry], position: int, path: str | os.PathLike[str]) -> StudyEntry:
    """The study at a position in a file."""
    if not -len(entries) <= position < len(entries):
        raise ValueError(f"study must be a position below {len(entries)}, the studies in {path}, got {position}")
    return entries[position]


Archive = MemoryArchive | FileArchive
