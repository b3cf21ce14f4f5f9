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
    """What one unit of each δ_t adds to the bound."""
    lanes: list[Lane]
    dead: bool = False
    """Whether its gradients have vanished while the loss stayed high."""
    reason: str = ""
    """Why it was stopped, for the table."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return name_of(self.method, self.lr)

    @property
    def done(self) -> int:
        """Steps taken, over all data orders."""
        return sum(lane.done for lane in self.lanes)

    @property
    def ended_at(self) -> int | None:
        """Index of the first step, among those asked for, at which one of its runs was not finite."""
        return min((lane.ended_at for lane in self.lanes if lane.ended_at is not None), default=None)

    @property
    def diverged(self) -> bool:
        """Whether one of its runs was not finite."""
        return self.ended_at is not None

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
            deltas = np.mean([lane.deltas for lane in self.lanes], axis=0)  # stands for E[δ_t]
            return float(bounds.last_iterate(self.rates[moving], deltas[moving], 0.0).noise)
        parts = [float(self.weights[: lane.done] @ lane.deltas[: lane.done]) for lane in self.lanes]
        return sum(parts) / len(self.lanes) * (1.0 - ROUNDING)

    @np.errstate(over="ignore", invalid="ignore")
    def history(self) -> Floats:
        """The losses as far as all its runs were taken, the mean over its data orders; ∞ where it ended."""
        end = self.ended_at
        if end is not None:
            parts = [lane.losses[:end] for lane in self.lanes if lane.done >= end]
            return np.append(np.mean(parts, axis=0), np.inf)
        done = min(lane.done for lane in self.lanes)
        return np.asarray(np.mean([lane.losses[:done] for lane in self.lanes], axis=0))

    @property
    def window(self) -> int:
        """How many losses count as the last ones: those of a tenth of a run."""
        return -(-len(self.rates) // 10)

    @np.errstate(over="ignore")
    def last_loss(self) -> float:
        """Mean of the last batch losses of a complete candidate; the same batches for all of them."""
        return float(np.mean([lane.losses[-self.window :] for lane in self.lanes]))

    @np.errstate(over="ignore")
    def recent_loss(self) -> float:
        """Mean batch loss over the last steps of each run that has started; NaN if none has."""
        parts = [lane.losses[max(0, lane.done - self.window) : lane.done].mean() for lane in self.lanes if lane.done]
        return float(np.mean(parts)) if parts else math.nan

    def final_loss(self) -> float:
        """The loss that counts: what the runs evaluate at their end, or else the mean of the last batch losses."""
        if not self.complete:
            return np.inf
        evaluations = [lane.evaluation for lane in self.lanes if lane.evaluation is not None]
        return float(np.mean(evaluations)) if len(evaluations) == len(self.lanes) else self.last_loss()


def make_candidate(method: str, lr: float, schedule: Floats, seeds: tuple[int, ...]) -> Candidate:
    """A candidate that has not started."""
    rates = lr * schedule
    lanes = [Lane(Key(method, lr, seed), len(schedule)) for seed in seeds]
    return Candidate(method, lr, rates, partial_weights(rates), lanes)


def name_of(method: str, lr: float) -> str:
    """What a method with a rate is called in messages; a method without a name is left out."""
    return f"{method + ' ' if method else ''}lr={lr:g}"


def raised(value: float, tolerance: float) -> float:
    """(1 + tolerance)·value, also for a value below 0 or ∞: what a bound may be to count as no larger."""
    return value + tolerance * abs(value) if tolerance else value
