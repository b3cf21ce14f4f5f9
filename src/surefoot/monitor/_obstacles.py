"""When nothing can be said of an optimizer's rate."""

from __future__ import annotations

import math
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from surefoot.monitor._measure import number, parameters
from surefoot.optim import SPP, Surefoot

if TYPE_CHECKING:
    from surefoot.monitor._monitor import StabilityMonitor

_OWN_LENGTH = {
    "Adadelta", "Rprop", "COCOB", "DoG", "LDoG", "DoWG", "Prodigy",
    "DAdaptAdam", "DAdaptAdaGrad", "DAdaptAdan", "DAdaptLion", "DAdaptSGD",
}  # fmt: skip
"""Optimizers that find the length of their steps themselves: their rate is a factor, or only the first length."""
_ENVIRONMENTS = ("gymnasium", "gym", "pettingzoo")
"""Packages of reinforcement learning, in which the loss is not the goal."""
_FIRST_STEPS = 12
"""Steps in which a monitor compares its loss with those of others: that reads the device."""
_MOST = 8
"""Optimizers that are compared with each other; scripts with one per layer have hundreds."""


def obstacle(optimizer: Optimizer) -> str | None:
    """Why nothing can be said of an optimizer's rate; None if something can."""
    name = type(optimizer).__name__
    if isinstance(optimizer, Surefoot):
        return "Surefoot has no rate"
    if isinstance(optimizer, torch.optim.LBFGS | SPP):
        return f"{name} evaluates the loss at several points within a step, and no single gradient explains it"
    if name in _OWN_LENGTH:
        return f"{name} finds the length of its steps itself, and its rate cannot be compared with others"
    if any(group.get("maximize") for group in optimizer.param_groups) or getattr(optimizer, "maximize", False):
        return "with maximize=True the loss should grow, and a verdict knows only losses that should fall"
    package = next((package for package in _ENVIRONMENTS if package in sys.modules), None)
    if package is not None:
        return f"{package} is imported, and the loss of reinforcement learning is not its goal"
    return None


_stepping = threading.local()
"""Has the monitors whose optimizers make steps in this thread."""


def take_turns(monitor: StabilityMonitor, optimizer: Optimizer, loss: Any) -> None:
    """Find out, before one of its first steps, whether an optimizer takes turns with another one, as in a GAN.

    Its loss has then been differentiated with respect to the other one's parameters too, or these are frozen just now,
    but the other one does not step with it: its own next loss is a different one. Two optimizers that share a model and
    a loss, such as Muon and AdamW, step with the same.
    """
    others = _stepping.__dict__.setdefault("monitors", weakref.WeakSet())
    others.add(monitor)
    if monitor.steps > _FIRST_STEPS or not 1 < len(others) <= _MOST or number(loss) is None:
        return
    value = float(loss)
    if not math.isfinite(value):
        return
    overheard, monitor.overheard = monitor.overheard, None
    other = None if overheard is None or overheard[1] == value else overheard[0]()
    if other is not None:
        monitor.takes_turns = other.takes_turns = True
    for other in list(others):
        partner = other.optimizer
        if partner is None or partner is optimizer or not other.steps:
            continue
        pending = number(other.pending())
        shares = pending is not None and float(pending) == value
        if shares or not any(p.requires_grad for p in parameters(partner)):
            other.overheard = weakref.ref(monitor), value
