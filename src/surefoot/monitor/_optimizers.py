"""What a monitor reads of an optimizer without changing it, and when nothing can be said of its rate."""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.monitor._records import widest
from surefoot.monitor._sample import real
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
_PIECE = 1 << 18
"""Elements whose squares are added up in float32."""
_FIRST_STEPS = 12
"""Steps in which a monitor compares its loss with those of others: that reads the device."""
_MOST = 8
"""Optimizers that are compared with each other; scripts with one per layer have hundreds."""


def parameters(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of all groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def rates(optimizer: Optimizer) -> list[Tensor | float]:
    """The groups' rates; a tensor that is not on the CPU stays one, so that nobody waits."""
    lrs = [group["lr"] for group in optimizer.param_groups]
    return [lr.detach().clone() if isinstance(lr, Tensor) and not lr.is_cpu else float(lr) for lr in lrs]


def squares(optimizer: Optimizer, device: torch.device) -> list[Tensor]:
    """‖g‖² of every group; a fused optimizer that ``GradScaler`` steps has gradients that are still scaled."""
    scale = getattr(optimizer, "grad_scale", None)
    found = []
    for group in optimizer.param_groups:
        flat = [real(p.grad.detach()).reshape(-1) for p in group["params"] if p.grad is not None]
        pieces = [piece for grad in flat for piece in torch.split(grad, _PIECE)]
        norm = torch.nn.utils.get_total_norm([p.float() if p.dtype.itemsize < 4 else p for p in pieces])
        norm = norm.to(device, widest(device))
        found.append((norm if scale is None else norm / scale).square())
    return found


def number(loss: Any) -> Tensor | float | None:
    """A copy of a loss, which may be changed before it is read; None if it is not one real number."""
    if isinstance(loss, Tensor):
        if loss.numel() != 1 or loss.is_complex():
            return None
        value: Tensor = loss.detach().reshape(())
        return value.float() if value.dtype.itemsize < 4 else value.clone()
    return float(loss) if isinstance(loss, Real) else None


def is_plain_sgd(optimizer: Optimizer) -> bool:
    """Whether a step is exactly x − α·g: torch's SGD without momentum, weight decay or maximisation."""
    return type(optimizer) is torch.optim.SGD and not any(
        group["momentum"] or group["weight_decay"] or group["maximize"] for group in optimizer.param_groups
    )


def is_sharded(params: Sequence[Tensor]) -> bool:
    """Whether parameters are DTensors, of whose gradients this rank holds pieces: a norm would take all ranks."""
    return any(hasattr(p, "device_mesh") for p in params)


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
