"""Finished runs as records, and where a result finds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from surefoot.runs._nouns import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Floats, Trace


class Key(NamedTuple):
    """What tells two runs of the same problem and settings apart."""

    method: str
    """The method's identity in a store, its name in a search."""
    lr: float
    seed: int

    def __str__(self) -> str:
        return f"{self.method + ' ' if self.method else ''}lr={self.lr:g}, seed {self.seed}"

    def stem(self, folder: Path, context: str = "") -> Path:
        """Where the files of this run lie, without what the names of its states end with."""
        return folder / hashlib.sha256(json.dumps([context, *self]).encode()).hexdigest()[:20]


class Record(NamedTuple):
    """A finished run, its arrays stacked in the order of ``STEP_FIELDS``, ``EPOCH_FIELDS`` and ``FINAL_FIELDS``."""

    key: Key
    status: str
    diverged_at: int
    violations: int
    final: tuple[float, ...]
    steps: Floats
    """Shape (fields, kept steps)."""
    epochs: Floats
    """Shape (fields, epochs + 1); NaN where there are no validation rows."""


def record(trace: Trace, identity: str) -> Record:
    """What is kept of a trace, under the identity of its method."""
    run = trace.run
    epochs = [trace.epochs[name] for name in EPOCH_FIELDS]
    length = max(len(values) for values in epochs)
    return Record(
        Key(identity, float(run.lr), int(run.seed)),
        trace.status,
        int(trace.diverged_at),
        int(trace.violations),
        tuple(float(trace.final[name]) for name in FINAL_FIELDS),
        np.array([trace.steps[name] for name in STEP_FIELDS]),
        np.array([values if len(values) else np.full(length, np.nan) for values in epochs]),
    )


class Begun(NamedTuple):
    """A run of a search: what is known of it, and the file of the folder beside the store that it goes on from."""

    key: Key
    losses: Floats
    deltas: Floats
    about: dict[str, Any]
    """What else was told, JSON-able."""
    state: str | None


class Archive(Protocol):
    """The finished runs of one problem and setting, and what is known about the problem."""

    def records(self) -> Iterable[Record]:
        """All finished runs, of other studies of the same problem and settings too."""

    def facts(self) -> dict[str, Any]:
        """What was computed about the problem: JSON-able values by name."""

    def remember(self, name: str, value: Any) -> None:
        """Keep one more fact, or replace it."""


@dataclass
class MemoryArchive:
    """Runs and facts that live as long as the result."""

    runs: dict[Key, Record] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)

    def add(self, records: Iterable[Record]) -> None:
        """Keep finished runs."""
        for run in records:
            self.runs.setdefault(run.key, run)

    def records(self) -> Iterable[Record]:
        """All finished runs."""
        return self.runs.values()

    def facts(self) -> dict[str, Any]:
        """What was computed about the problem."""
        return dict(self.known)

    def remember(self, name: str, value: Any) -> None:
        """Keep one more fact."""
        self.known[name] = value
