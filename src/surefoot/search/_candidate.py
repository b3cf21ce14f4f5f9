"""A candidate of a search: a method with a rate, and what is known of its runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from surefoot.runs import Floats, Record


@dataclass(eq=False)
class Candidate:
    """A method and a rate, with one run per seed."""

    method: str
    lr: float
    records: list[Record]
    reason: str = ""
    """Why it was stopped, for the table."""

    @property
    def done(self) -> int:
        """Steps taken, over all seeds."""
        return sum(record.done for record in self.records)

    @property
    def diverged_at(self) -> int | None:
        """Index of the first step, among those asked for, at which one of its runs was not finite."""
        return min((record.ended_at for record in self.records if record.ended_at is not None), default=None)

    @property
    def complete(self) -> bool:
        """Whether all its runs were taken to their end."""
        return all(record.complete for record in self.records)

    @np.errstate(over="ignore", invalid="ignore")
    def history(self) -> Floats:
        """The losses as far as all its runs were taken, the mean over its seeds; ∞ where it diverged."""
        end = self.diverged_at
        if end is not None:
            parts = [record.losses[:end] for record in self.records if record.done >= end]
            return np.append(np.mean(parts, axis=0), np.inf)
        done = min(record.done for record in self.records)
        return np.asarray(np.mean([record.losses[:done] for record in self.records], axis=0))

    @np.errstate(over="ignore")
    def recent_loss(self) -> float:
        """Mean batch loss over the last tenth of a run's steps, as far as it was taken; NaN if none was."""
        window = -(-self.records[0].horizon // 10)
        parts = [
            record.losses[max(0, record.done - window) : record.done].mean() for record in self.records if record.done
        ]
        return float(np.mean(parts)) if parts else math.nan

    def score(self) -> float:
        """What decides among complete candidates: the evaluations of its runs, or else their last batch losses."""
        if not self.complete:
            return math.inf
        evaluations = [record.evaluation for record in self.records if record.evaluation is not None]
        return float(np.mean(evaluations)) if len(evaluations) == len(self.records) else self.recent_loss()

    def __str__(self) -> str:
        return f"{self.method + ' ' if self.method else ''}lr={self.lr:g}"
