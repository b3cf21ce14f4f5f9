"""The nouns of a study: a method, a run, and what is kept of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surefoot.theory.models import Model

Floats = np.ndarray[Any, np.dtype[np.float64]]

STEP_FIELDS = ("loss", "grad_sq", "rate", "size", "delta", "distance")
"""Kept at every (k-th) step: f(x_t, s_t), ‖g_t‖², α_t, multiplier of g_t, δ_t, ‖x_t − x_1‖."""

EPOCH_FIELDS = ("train_loss", "valid_loss")
"""Kept at the start (entry 0) and after every epoch: losses over all training and all validation rows."""

FINAL_FIELDS = ("last_loss", "average_loss", "best_loss")
"""Full training loss at x_T (what the last-iterate bound speaks of), at the α-weighted average of x_1 … x_T, and the
smallest of those that were measured."""


@dataclass(frozen=True)
class Method:
    """A method of a sweep: a model of the loss, or the exact one (``model=None``), which needs the problem's prox."""

    name: str
    """How it was asked for, in its shortest form: ``sps``, ``sps(lower_bound=-2)``, ``power(p=0.25)``, ``spp``."""
    model: Model | None


@dataclass(frozen=True)
class Run:
    """One training run; the problem, the schedule and the batches' size are the study's."""

    method: Method
    lr: float
    seed: int


@dataclass
class Trace:
    """What is kept of a finished run. Arrays are float64; after divergence they hold ∞, never NaN."""

    run: Run
    status: str
    """``finished``, ``diverged`` or ``stopped``."""
    diverged_at: int
    """Index of the first step whose loss, gradient or iterate was not finite; −1 if none was."""
    steps: dict[str, Floats] = field(default_factory=dict)
    """One array for each of STEP_FIELDS, of equal length."""
    epochs: dict[str, Floats] = field(default_factory=dict)
    """One array for each of EPOCH_FIELDS, of length epochs + 1 (NaN-free; valid_loss is empty without validation)."""
    final: dict[str, float] = field(default_factory=dict)
    """One number for each of FINAL_FIELDS."""
    violations: int = 0
    """Steps whose loss was below the method's lower bound."""
