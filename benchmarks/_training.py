"""One training run of a task: every optimizer, schedule and clipping that the benchmarks compare."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from _tasks import Task, trial
from surefoot.theory import schedules

Factory = Callable[[nn.Module, float], torch.optim.Optimizer]
"""An optimizer from the network and a rate."""


@dataclass
class Outcome:
    """What a run did."""

    losses: list[float]
    """Of every batch; ∞ from the step on that was not finite."""
    initial: float
    final: float
    """Held-out loss before and after; ∞ if the run was lost."""


def factors(name: str, steps: int) -> list[float]:
    """``constant``, or ``cosine`` after a warmup of a tenth of the steps."""
    if name == "constant":
        return [1.0] * steps
    warm = max(1, steps // 10)
    return [min(1.0, (k + 1) / warm) * float(f) for k, f in enumerate(schedules.cosine(steps))]


def train(
    task: Task,
    factory: Factory,
    lr: float,
    *,
    seed: int = 0,
    steps: int = 200,
    schedule: str = "constant",
    clip: float | None = None,
) -> Outcome:
    """Train once, on one thread."""
    made = trial(task, seed, steps)
    initial = made.held_out()
    optimizer = factory(made.model, lr)
    eta = factors(schedule, steps)
    rates = [group["lr"] for group in optimizer.param_groups]
    wants_loss = "loss" in inspect.signature(optimizer.step).parameters
    losses: list[float] = []
    mode(optimizer, "train")
    for step in range(steps):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * eta[step]
        optimizer.zero_grad()
        loss = made.batch_loss(step)
        loss.backward()
        value = loss.item()
        losses.append(value)
        if not math.isfinite(value):
            losses += [math.inf] * (steps - len(losses))
            losses[step] = math.inf
            return Outcome(losses, initial, math.inf)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(made.model.parameters(), clip)
        if wants_loss:
            optimizer.step(loss=loss)
        else:
            optimizer.step()
    mode(optimizer, "eval")
    return Outcome(losses, initial, made.held_out())


def mode(optimizer: Any, name: str) -> None:
    """Schedule-free optimizers want to know whether they train."""
    if hasattr(optimizer, name):
        getattr(optimizer, name)()


def halves(parameters: Iterable[tuple[str, nn.Parameter]]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices inside the network, and everything else: what is split by hand for Muon."""
    matrices, rest = [], []
    for name, p in parameters:
        inside = p.ndim == 2 and not any(word in name for word in ("tokens", "places", "head", "left", "right"))
        (matrices if inside else rest).append(p)
    return matrices, rest
