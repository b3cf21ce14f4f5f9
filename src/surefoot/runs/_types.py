"""The types of a sweep: a planned run and its key, what runs share, and what is kept of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from surefoot.rules import Floats as Floats
from surefoot.rules import StopRule

if TYPE_CHECKING:
    from surefoot.runs._methods import Method

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


class RunPlan(NamedTuple):
    """One training run; the problem, the schedule and the batches' size are the study's."""

    method: Method
    lr: float
    seed: int

    @property
    def key(self) -> Key:
        """What tells this run from the others of its study; its method is given by name."""
        return Key(self.method.name, self.lr, self.seed)


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


def close(
    run: RunPlan,
    settings: Settings,
    steps: Mapping[str, Floats],
    epochs: Mapping[str, Sequence[float] | Floats],
    final: Mapping[str, float],
    diverged_at: int,
    stopped_at: int,
    violations: int,
    has_validation: bool,
) -> Trace:
    """The trace of a run that has come to its end: whatever lies behind it is ∞.

    Args:
        run: The run.
        settings: What the runs of the study share.
        steps: Those of STEP_FIELDS that were recorded, one entry a kept step (more are dropped, missing ones are ∞).
        epochs: EPOCH_FIELDS, as far as they were measured.
        final: last_loss and average_loss, as far as they are known.
        diverged_at: The step at which the run diverged, or −1.
        stopped_at: The step at which a rule ended the run, or −1.
        violations: Steps whose loss was below the lower bound.
        has_validation: Whether there are validation rows.
    """
    is_cut = diverged_at >= 0 or stopped_at >= 0
    end = diverged_at if diverged_at >= 0 else stopped_at + 1 if stopped_at >= 0 else settings.steps
    known = -(-end // settings.every)
    rates: Floats = run.lr * settings.schedule[:: settings.every]
    values = {name: padded(steps[name][:known], settings.kept) for name in TRACED}
    measured = (end - 1 if stopped_at >= 0 and diverged_at < 0 else end) // settings.steps_per_epoch + 1
    losses = {
        name: padded(epochs[name][:measured], settings.epochs + 1 if name == "train_loss" or has_validation else 0)
        for name in EPOCH_FIELDS
    }
    last = final["last_loss"] if end >= settings.steps - 1 and np.isfinite(final["last_loss"]) else np.inf
    average = np.inf if is_cut or np.isinf(final["average_loss"]) else final["average_loss"]
    best = min(float(losses["train_loss"][: settings.epochs].min()), last)
    return Trace(
        run.key,
        "diverged" if diverged_at >= 0 else "stopped" if stopped_at >= 0 else "finished",
        diverged_at,
        {name: rates if name == "rate" else values[name] for name in STEP_FIELDS},
        losses,
        {"last_loss": last, "average_loss": average, "best_loss": best},
        violations,
    )


def padded(values: Sequence[float] | Floats, length: int) -> Floats:
    """Values of a given length: what is not finite, or was not computed, is ∞."""
    result: Floats = np.full(length, np.inf)
    known = np.asarray(values, float)[:length]
    result[: len(known)] = np.where(np.isfinite(known), known, np.inf)
    return result
