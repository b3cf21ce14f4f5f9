"""Finished runs as records, and where a result finds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from surefoot.runs._nouns import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Floats, Trace


class Key(NamedTuple):
    """What tells two runs of the same problem and settings apart."""

    method: str
    """The method's identity."""
    lr: float
    seed: int


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
