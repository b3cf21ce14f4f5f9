"""What is known of a run: what was computed, and how much of it somebody has asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from surefoot.runs._bench import Advanced
from surefoot.runs._run import Floats
from surefoot.runs._types import Key


@dataclass(eq=False)
class Lane:
    """One run: one method, rate and data order.

    ``done`` are the steps that the policy has asked for, ``recorded`` those that were computed. They differ after a
    resumption, and where a core was free: what is there is not computed again. All that a policy sees stops at
    ``done``, so that its decisions do not depend on when what was computed.
    """

    key: Key
    losses: Floats
    deltas: Floats
    recorded: int = 0
    done: int = 0
    lost_at: int | None = None
    """Index of the first step that was not finite, asked for or not."""
    negative_at: int | None = None
    """Index of the first step whose index was negative, asked for or not."""
    marks: list[tuple[int, float]] = field(default_factory=list)
    """(steps, ‖x_t − x_1‖) at the points where the run was put aside."""
    evaluation: float | None = None
    """The loss that counts, at the end."""
    proves: bool = True
    """Whether the run's indices may stand in a bound as far as they are not negative."""

    @classmethod
    def new(cls, key: Key, horizon: int) -> Lane:
        """A run that has not started."""
        return cls(key, np.full(horizon, np.nan), np.full(horizon, np.nan))

    @property
    def ended_at(self) -> int | None:
        """Index of the first step asked for that was not finite."""
        return self.lost_at if self.lost_at is not None and self.done > self.lost_at else None

    @property
    def diverged(self) -> bool:
        """Whether the steps asked for hold one that was not finite."""
        return self.ended_at is not None

    @property
    def complete(self) -> bool:
        """Whether all steps were taken."""
        return self.done == len(self.losses) and not self.diverged

    @property
    def certifies(self) -> bool:
        """Whether the indices asked for may stand in a bound."""
        return self.proves and (self.negative_at is None or self.negative_at >= self.done)

    def is_behind(self, step: int) -> bool:
        """Whether steps before ``step`` have to be computed."""
        return self.recorded < step and self.lost_at is None

    def ask(self, step: int) -> None:
        """Note that steps were asked for, which are computed by now."""
        reached = self.recorded if self.lost_at is not None else step
        self.done = max(self.done, min(step, reached))

    def record(self, found: Advanced) -> None:
        """Add what came of a piece."""
        begin, end = self.recorded, self.recorded + len(found.losses)
        self.losses[begin:end], self.deltas[begin:end] = found.losses, found.deltas
        self.recorded = end
        self.proves &= found.certifies
        if found.negative is not None and self.negative_at is None:
            self.negative_at = begin + found.negative
        if found.distance is not None:
            self.marks.append((end, found.distance))
        self.evaluation = found.evaluation
        if found.lost:
            self.lose(end - 1)

    def lose(self, step: int) -> None:
        """Note at which step the run ended: whatever lies behind is ∞."""
        self.lost_at = step
        self.losses[step:] = self.deltas[step:] = np.inf
