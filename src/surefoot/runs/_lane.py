"""What is known of a run: what was computed, and how much of it somebody has asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from surefoot.runs._run import Floats
from surefoot.runs._types import Key, Trace


class Told(NamedTuple):
    """What a run has told from some step on: what processes tell each other, and what its file holds."""

    begin: int
    losses: Floats
    deltas: Floats
    """The stability indices, at least 0."""
    lost_at: int | None = None
    negative_at: int | None = None
    proves: bool = True
    marks: tuple[tuple[int, float], ...] = ()
    evaluation: float | None = None
    trace: Trace | None = None
    """What a study keeps of a run that has come to its end."""


@dataclass(eq=False)
class Lane:
    """One run: one method, rate and data order.

    ``done`` are the steps that the policy has asked for, ``recorded`` those that were computed. They differ after a
    resumption, and where a core was free: what is there is not computed again. All that a policy sees stops at
    ``done``, so that its decisions do not depend on when what was computed.
    """

    key: Key
    horizon: int
    """T, the steps of a whole run."""
    recorded: int = 0
    done: int = 0
    ended: bool = False
    """Whether it has no further step: it is at its end, or a step was not finite, or a rule has ended it."""
    lost_at: int | None = None
    """Index of the first step that was not finite, asked for or not."""
    negative_at: int | None = None
    """Index of the first step whose index was negative, as with momentum: it counts as 0, and proves nothing."""
    marks: list[tuple[int, float]] = field(default_factory=list)
    """(steps, ‖x_t − x_1‖) at the cuts."""
    evaluation: float | None = None
    """The loss that counts, at the end."""
    proves: bool = True
    """Whether the run's indices may stand in a bound as far as they are not negative."""

    @cached_property
    def losses(self) -> Floats:
        """The batch losses, as far as they are recorded."""
        return np.full(self.horizon, np.nan)

    @cached_property
    def deltas(self) -> Floats:
        """The stability indices, as far as they are recorded."""
        return np.full(self.horizon, np.nan)

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
        return self.done == self.horizon and not self.diverged

    @property
    def certifies(self) -> bool:
        """Whether the indices asked for may stand in a bound."""
        return self.proves and (self.negative_at is None or self.negative_at >= self.done)

    def is_behind(self, step: int) -> bool:
        """Whether steps before ``step`` have to be computed."""
        return self.recorded < step and not self.ended

    def ask(self, step: int) -> None:
        """Note that the steps before ``step`` were asked for; they are computed by now."""
        self.done = max(self.done, min(step, self.recorded))

    def told(self, begin: int = 0) -> Told:
        """What is known from a step on."""
        numbers = self.losses[begin : self.recorded], self.deltas[begin : self.recorded]
        return Told(begin, *numbers, self.lost_at, self.negative_at, self.proves, tuple(self.marks), self.evaluation)

    def take(self, told: Told) -> None:
        """Take over what a run has told, in this process or in another one."""
        end = told.begin + len(told.losses)
        if len(told.losses):
            self.losses[told.begin : end], self.deltas[told.begin : end] = told.losses, told.deltas
        self.recorded = max(self.recorded, end)
        self.lost_at, self.negative_at, self.proves = told.lost_at, told.negative_at, told.proves
        self.marks, self.evaluation = list(told.marks), told.evaluation
        self.ended = self.recorded == self.horizon or told.lost_at is not None or told.trace is not None
        if told.lost_at is not None:
            self.losses[told.lost_at :] = self.deltas[told.lost_at :] = np.inf
