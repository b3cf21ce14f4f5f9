"""The candidates of a search, and what is known about each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from surefoot.rules import ROUNDING, partial_weights
from surefoot.runs import Floats, Key, Lane
from surefoot.theory import bounds


@dataclass(eq=False)
class Candidate:
    """A method and a rate, with its planned runs."""

    method: str
    lr: float
    rates: Floats
    """α_t = lr·η_t."""
    weights: Floats
    """What one unit of δ_t adds to the bound."""
    lanes: list[Lane]
    dead: bool = False
    """Its gradients have vanished while the loss stayed high."""
    reason: str = ""
    """Why it was stopped, for the table."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.method + ' ' if self.method else ''}lr={self.lr:g}"

    @property
    def done(self) -> int:
        """Steps taken, over all data orders."""
        return sum(lane.done for lane in self.lanes)

    @property
    def diverged(self) -> bool:
        """Whether one of its runs was not finite."""
        return any(lane.diverged for lane in self.lanes)

    @property
    def out(self) -> bool:
        """Whether it ended without a result."""
        return self.dead or self.diverged

    @property
    def complete(self) -> bool:
        """Whether all runs were taken to their end."""
        return all(lane.complete for lane in self.lanes)

    @np.errstate(over="ignore")
    def noise(self) -> float:
        """Σ_t w_t δ_t over the steps done, divided by the planned number of data orders.

        Of a complete candidate this is the noise of its last-iterate bound; before that, a lower bound of it, because
        no term is negative. (The mean over the orders *done* could fall.)
        """
        if self.diverged:
            return np.inf
        if self.complete:
            moving = self.rates > 0
            return float(bounds.last_iterate(self.rates[moving], self.mean_deltas()[moving], 0.0).noise)
        parts = [float(self.weights[: lane.done] @ lane.deltas[: lane.done]) for lane in self.lanes]
        return sum(parts) / len(self.lanes) * (1.0 - ROUNDING)

    @np.errstate(over="ignore")
    def mean_deltas(self) -> Floats:
        """The mean over the data orders of complete runs, which stands for E[δ_t]."""
        return np.asarray(np.mean([lane.deltas for lane in self.lanes], axis=0))

    @np.errstate(over="ignore")
    def loss_at(self, step: int, window: int) -> float:
        """Mean batch loss over the ``window`` steps before ``step``; the same batches for all candidates."""
        if self.diverged:
            return np.inf
        return float(np.mean([lane.losses[max(0, step - window) : step] for lane in self.lanes]))

    @np.errstate(over="ignore")
    def recent_loss(self, window: int) -> float:
        """Mean batch loss over the last steps of each run that has started; NaN if none has."""
        parts = [lane.losses[max(0, lane.done - window) : lane.done].mean() for lane in self.lanes if lane.done]
        return float(np.mean(parts)) if parts else math.nan

    def final_loss(self, window: int) -> float:
        """The loss that counts: what the runs evaluate at their end, or else the mean of the last batch losses."""
        if not self.complete:
            return np.inf
        values = [lane.evaluation for lane in self.lanes]
        found = [value for value in values if value is not None]
        if len(found) == len(values):
            return float(np.mean(found))
        return self.loss_at(len(self.rates), window)


def make_candidate(method: str, lr: float, schedule: Floats, seeds: tuple[int, ...]) -> Candidate:
    """A candidate that has not started."""
    rates = lr * schedule
    lanes = [Lane(Key(method, lr, seed), len(schedule)) for seed in seeds]
    return Candidate(method, lr, rates, partial_weights(rates), lanes)


def raised(value: float, tolerance: float) -> float:
    """(1 + tolerance)·value, also for a value below 0 or ∞: what a bound may be to count as no larger."""
    return value + tolerance * abs(value) if tolerance else value
