"""Where a result finds the finished runs of one problem and setting, and what is known about the problem."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.runs import Store, StudyEntry, Trace


@dataclass(frozen=True)
class Archive:
    """Runs and facts in a store: a file, which is opened only while something is read or written, or one in memory."""

    store: Path | Store
    context: str
    problem: str

    def traces(self) -> Iterator[Trace]:
        """All finished runs, of other studies of the same problem and settings too."""
        with self._opened(Store.read) as store:
            yield from store.traces(self.context)

    def facts(self) -> dict[str, Any]:
        """What was computed about the problem: JSON-able values by name."""
        with self._opened(Store.read) as store:
            return store.facts(self.problem)

    def remember(self, name: str, value: Any) -> None:
        """Keep one more fact, or replace it."""
        with self._opened(Store.write) as store:
            store.remember(self.problem, name, value)

    def _opened(self, opened: Any) -> AbstractContextManager[Store]:
        store: AbstractContextManager[Store] = (
            nullcontext(self.store) if isinstance(self.store, Store) else opened(self.store)
        )
        return store


def entry_at(entries: Sequence[StudyEntry], position: int, path: str | os.PathLike[str]) -> StudyEntry:
    """The study at a position in a file."""
    if not -len(entries) <= position < len(entries):
        raise ValueError(f"study must be a position below {len(entries)}, the studies in {path}, got {position}")
    return entries[position]
