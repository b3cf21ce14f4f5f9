"""A run's key, what the runs of a study share, and what is kept of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.rules import Floats as Floats
from surefoot.rules import StopRule

STEP_FIELDS = ("loss", "grad_sq", "rate", "size", "delta", "distance")
"""Kept at every (k-th) step: f(x_t, s_t), ‖g_t‖², α_t, multiplier of g_t, δ_t, ‖x_t − x_1‖."""

TRACED = tuple(name for name in STEP_FIELDS if name != "rate")
"""The step fields that have to be recorded: rates are known in advance."""

EPOCH_FIELDS = ("train_loss", "valid_loss")
"""Kept at the start (entry 0) and after every epoch: losses over all training and all validation rows."""

FINAL_FIELDS = ("last_loss", "average_loss", "best_loss")
"""Full training loss at x_T (what the last-iterate bound speaks of), at the α-weighted average of x_1 … x_T, and the
smallest of those that were measured."""


class Key(NamedTuple):
    """What tells two runs of the same problem and settings apart."""

    method: str
    """The method's identity in a store, its name in a search."""
    lr: float
    seed: int

    def __str__(self) -> str:
        return f"{self.method + ' ' if self.method else ''}lr={self.lr:g}, seed {self.seed}"


@dataclass(frozen=True)
class Settings:
    """What all runs of a sweep share."""

    steps_per_epoch: int
    epochs: int
    batch_size: int
    schedule: Floats
    sampling: str
    every: int
    rules: tuple[StopRule, ...] = ()
    """Rules that end runs."""
    distance: float | None = None
    """D, for rules that want the bias."""

    @property
    def steps(self) -> int:
        """T, the number of steps of a run."""
        return self.steps_per_epoch * self.epochs

    @property
    def kept(self) -> int:
        """How many steps a trace keeps: 0, every, 2·every, …"""
        return -(-self.steps // self.every)


class Trace(NamedTuple):
    """What is kept of a finished run. Arrays are float64; after divergence they hold ∞, never NaN."""

    key: Key
    status: str
    """``finished``, ``diverged`` or ``stopped``."""
    diverged_at: int
    """Index of the first step whose loss, gradient or iterate was not finite; −1 if none was."""
    steps: Mapping[str, Floats]
    """One array for each of STEP_FIELDS, of equal length."""
    epochs: Mapping[str, Floats]
    """One array for each of EPOCH_FIELDS, of length epochs + 1; without validation rows valid_loss is empty, or NaN."""
    final: Mapping[str, float]
    """One number for each of FINAL_FIELDS."""
    violations: int = 0
    """Steps whose loss was below the method's lower bound."""


@dataclass(eq=False)
class Record:
    """What was computed of a run, and how much of that was asked for.

    Other processes send records, and files hold them. ``done`` and what was computed differ after a resumption: what is
    there is not computed again. A search looks at ``done`` steps only, so that its decisions do not depend on when what
    was computed.
    """

    key: Key
    horizon: int
    """T, the steps of a whole run."""
    losses: Floats = field(default_factory=lambda: np.empty(0))
    """The batch losses of the steps that were taken; of a run of a study that has ended, only its trace is sent."""
    lost_at: int | None = None
    """Index of the first step that was not finite, asked for or not."""
    evaluation: float | None = None
    """The loss that counts, at the end."""
    trace: Trace | None = None
    """What a study keeps of a run that has ended."""
    done: int = 0
    """Steps that were asked for."""
    saved: int = 0
    """Steps that its file holds."""

    @property
    def taken(self) -> int:
        """Steps that were taken."""
        return len(self.losses)

    @property
    def ended(self) -> bool:
        """Whether it has no further step: it is at its end, or a step was not finite, or a rule has ended it."""
        return self.taken == self.horizon or self.lost_at is not None or self.trace is not None

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
        return self.taken < step and not self.ended

    def take(self, other: Record) -> None:
        """Take over what another process, or a file, knows of the run."""
        if other.taken >= self.taken:
            self.losses, self.lost_at, self.evaluation, self.trace = (
                other.losses, other.lost_at, other.evaluation, other.trace,
            )  # fmt: skip


def closed(
    settings: Settings,
    keys: Sequence[Key],
    steps: Floats,
    train: Floats,
    valid: Floats,
    last: Floats,
    average: Floats,
    diverged_at: NDArray[np.intp],
    stopped_at: NDArray[np.intp],
    violations: NDArray[np.intp],
) -> list[Trace]:
    """The traces of runs that have come to their end: what lies behind it is ∞. The arrays are written to.

    Args:
        settings: What the runs share.
        keys: The runs, n of them.
        steps: The fields TRACED of the kept steps, of shape (5, n, kept).
        train: The full losses at the start and after every epoch, of shape (n, epochs + 1).
        valid: The same over the validation rows; of shape (n, 0) without any.
        last: Full losses before the last step.
        average: Full losses at the averages of the points; NaN where these mean nothing, as for networks.
        diverged_at: The steps at which runs diverged, or −1.
        stopped_at: The steps at which a rule ended them, or −1.
        violations: Steps whose loss was below the lower bound.
    """
    rates = np.array([key.lr for key in keys])[:, None] * settings.schedule[:: settings.every]
    ends = np.where((diverged_at < 0) & (stopped_at >= 0), stopped_at + 1, diverged_at)
    for place in np.flatnonzero(ends >= 0).tolist():
        end = int(ends[place])
        # A run that a rule ends at the last step of an epoch is not measured any more.
        epoch = (end if diverged_at[place] >= 0 else end - 1) // settings.steps_per_epoch
        steps[:, place, -(-end // settings.every) :] = np.inf
        train[place, epoch + 1 :] = valid[place, epoch + 1 :] = np.inf
        average[place] = np.inf
        if max(diverged_at[place], stopped_at[place]) < settings.steps - 1:
            last[place] = np.inf
    for array in (last, train, valid, steps):
        if not np.isfinite(array.sum()):
            np.copyto(array, np.inf, where=~np.isfinite(array))
    best = np.minimum(train[:, : settings.epochs].min(axis=1), last)
    columns = (diverged_at, stopped_at, violations, last, average, best)
    numbers = zip(*(values.tolist() for values in columns), strict=True)
    arrays = zip(*steps, rates, train, valid, strict=True)
    traces = []
    for key, (diverged, stopped, below, *final), fields in zip(keys, numbers, arrays, strict=True):
        loss, grad_sq, size, delta, distance, rate, *losses = fields
        traces.append(
            Trace(
                key,
                "diverged" if diverged >= 0 else "stopped" if stopped >= 0 else "finished",
                diverged,
                dict(zip(STEP_FIELDS, (loss, grad_sq, rate, size, delta, distance), strict=True)),
                dict(zip(EPOCH_FIELDS, losses, strict=True)),
                dict(zip(FINAL_FIELDS, final, strict=True)),
                below,
            )
        )
    return traces
