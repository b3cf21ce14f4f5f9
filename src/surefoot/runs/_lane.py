"""What is known of a run: what was computed, and how much of it somebody has asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from surefoot.runs._run import Floats
from surefoot.runs._types import Key, Trace


class Told(NamedTuple):
    """The numbers of a run from some step on: what processes send each other, and what its file holds."""

    begin: int
    losses: Floats
    lost_at: int | None = None
    evaluation: float | None = None
    trace: Trace | None = None
    """What a study keeps of a run that has come to its end."""


@dataclass(eq=False)
class Lane:
    """The record of one run: one method, rate and seed.

    ``done`` are the steps that the policy has asked for, ``recorded`` those that were computed. They differ after a
    resumption: what is there is not computed again. All that a policy sees stops at ``done``, so that its decisions do
    not depend on when what was computed.
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
    evaluation: float | None = None
    """The loss that counts, at the end."""

    @cached_property
    def losses(self) -> Floats:
        """The batch losses, as far as they are recorded."""
        return np.full(self.horizon, np.nan)

    @property
    def ended_at(self) -> int | None:
        """Index of the first step asked for that was not finite."""
        return self.lost_at if self.lost_at is not None and self.done > self.lost_at else None

    @property
    def complete(self) -> bool:
        """Whether all steps were taken, and asked for."""
        return self.done == self.horizon and self.ended_at is None

    def is_behind(self, step: int) -> bool:
        """Whether steps before ``step`` have to be computed."""
        return self.recorded < step and not self.ended

    def ask(self, step: int) -> None:
        """Note that the steps before ``step`` were asked for; they are computed by now."""
        self.done = max(self.done, min(step, self.recorded))

    def told(self, begin: int = 0) -> Told:
        """What is known from a step on."""
        return Told(begin, self.losses[begin : self.recorded], self.lost_at, self.evaluation)

    def take(self, told: Told) -> None:
        """Take over the numbers of a run, from this process or from another one."""
        end = told.begin + len(told.losses)
        if len(told.losses):
            self.losses[told.begin : end] = told.losses
        self.recorded = max(self.recorded, end)
        self.lost_at, self.evaluation = told.lost_at, told.evaluation
        self.ended = self.recorded == self.horizon or told.lost_at is not None or told.trace is not None
        if told.lost_at is not None:
            self.losses[told.lost_at :] = np.inf
