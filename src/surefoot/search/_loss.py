"""The search for the smallest loss at the horizon: it asks the policy, and advances real runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.runs import Floats, Runner
from surefoot.search._candidate import Candidate
from surefoot.search._race import Race


@dataclass
class LossSearch:
    """Advances whom the race asks for, and chooses among those that got to the end."""

    runner: Runner
    schedule: Floats
    notify: Callable[[], None]
    tolerance: float
    maximize: bool = False
    """Whether what the runs evaluate is to be large."""

    def search(self, candidates: list[Candidate], start: Sequence[Candidate] = ()) -> Candidate | None:
        """The best candidate at the horizon among those that got there; None if there is none."""
        race = self.race(candidates)
        with np.errstate(over="ignore", invalid="ignore"):
            for places, step in race.requests([candidates.index(candidate) for candidate in start]):
                lanes = [lane for i in places for lane in candidates[i].lanes]
                self.runner.advance(lanes, step, [lane for i in race.likely() for lane in candidates[i].lanes])
                for i in places:
                    race.histories[i] = candidates[i].history()
                self.notify()
        for place, candidate in enumerate(candidates):
            candidate.reason = race.reasons.get(place, "")
        return self.best(candidates)

    def race(self, candidates: Sequence[Candidate]) -> Race:
        """The policy with all that is known of the candidates."""
        return Race(
            [candidate.lr for candidate in candidates],
            [candidate.method for candidate in candidates],
            self.runner.horizon,
            self.schedule,
            self.tolerance,
            [candidate.history() for candidate in candidates],
        )

    def best(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The best of those that are complete."""
        sign = -1.0 if self.maximize else 1.0
        final = [c for c in candidates if c.complete and not c.out and np.isfinite(c.final_loss())]
        return min(final, key=lambda candidate: sign * candidate.final_loss(), default=None)
