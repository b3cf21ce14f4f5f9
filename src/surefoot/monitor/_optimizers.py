"""What a monitor reads of an optimizer, without changing it: gradients, rates, and what it says about its own step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim import SPP, Arithmetic, Device, Host, ModelBased, Scalar


def arithmetic(optimizer: Optimizer) -> Arithmetic:
    """Arithmetic for the optimizer's tensors: floats for those on the CPU, 0-d tensors for all others."""
    params = parameters(optimizer)
    if all(p.is_cpu for p in params):
        return Host(True)
    device = params[0].device
    return Device(True, device, widest(device))


def widest(device: torch.device) -> torch.dtype:
    """The widest floats that a device has: Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def parameters(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of all groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def rates(optimizer: Optimizer, ops: Arithmetic) -> list[Scalar]:
    """The groups' rates; a tensor that is not on the CPU stays one, so that nobody waits."""
    lrs = [group["lr"] for group in optimizer.param_groups]
    return [float(lr) if isinstance(ops, Host) or not isinstance(lr, Tensor) or lr.is_cpu else lr for lr in lrs]


def squares(optimizer: Optimizer, ops: Arithmetic) -> list[Scalar]:
    """‖g‖² of every group; a fused optimizer that ``GradScaler`` steps has gradients that are still scaled."""
    gradients = [[real(p.grad) for p in group["params"] if p.grad is not None] for group in optimizer.param_groups]
    scale = getattr(optimizer, "grad_scale", None)
    unscaled = 1.0 if scale is None else 1.0 / (float(scale) if isinstance(ops, Host) else scale)
    return [ops.sum_sq(grads) * unscaled * unscaled if grads else 0.0 for grads in gradients]


def unless(overflow: Tensor | None, value: Scalar, ops: Arithmetic) -> Scalar:
    """The value, or NaN for "not measured" if the scaled gradient has overflowed."""
    if overflow is None:
        return value
    if isinstance(ops, Host):
        return math.nan if float(overflow) else value
    return torch.where(overflow.to(ops.one.device) > 0, math.nan, value)


def measured(value: Any, ops: Arithmetic) -> Scalar:
    """A measured number, ∞ if it is not finite: NaN stands for what was not measured."""
    if isinstance(value, Tensor) and not isinstance(ops, Host):
        return torch.where(torch.isfinite(value), value, math.inf)
    value = value.item() if isinstance(value, Tensor) else float(value)
    return value if math.isfinite(value) else math.inf


def knows_index(optimizer: Optimizer) -> bool:
    """Whether the optimizer tells size and δ of its step, as ours do."""
    return isinstance(optimizer, ModelBased | SPP)


def is_plain_sgd(optimizer: Optimizer) -> bool:
    """Whether a step is exactly x − α·g: torch's SGD without momentum, weight decay or maximisation."""
    return type(optimizer) is torch.optim.SGD and not any(
        group["momentum"] or group["weight_decay"] or group["maximize"] for group in optimizer.param_groups
    )


def is_sharded(optimizer: Optimizer) -> bool:
    """Whether parameters are DTensors, of whose gradients this rank holds pieces: a norm would take all ranks."""
    return any(hasattr(p, "device_mesh") for p in parameters(optimizer))


def knows_square(optimizer: Optimizer) -> bool:
    """Whether the optimizer notes ‖g‖² of its step, and all groups have one rate, so that no group's own is needed."""
    lrs = [group["lr"] for group in optimizer.param_groups]
    return hasattr(optimizer, "last_grad_sq") and all(_is_same(lr, lrs[0]) for lr in lrs)


def _is_same(lr: Any, first: Any) -> bool:
    """Whether two rates are surely equal; tensors are not read to find out."""
    return lr is first or not (isinstance(lr, Tensor) or isinstance(first, Tensor) or lr != first)


def real(tensor: Tensor) -> Tensor:
    """A tensor as a real one that shares its memory; of a sparse tensor, its values."""
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def obstacle(optimizer: Optimizer) -> str | None:
    """Why nothing can be said of an optimizer's rate; None if something can."""
    if isinstance(optimizer, torch.optim.LBFGS | SPP):
        name = optimizer.__class__.__name__  # not type(): watch hands over a stand-in
        return f"{name} looks at several points within a step, and no single gradient explains it"
    if any(group.get("maximize") for group in optimizer.param_groups) or getattr(optimizer, "maximize", False):
        return "with maximize=True the loss should grow, and a verdict knows only losses that should fall"
    if not isinstance(optimizer, ModelBased) or optimizer.height.firm is None:
        return None
    first = optimizer.param_groups[0]
    below = int(first["violations"])
    total = below + int(first["skipped"]) + int(first["count"])
    if 2 * below <= total:
        return None
    bound = first["bound"].item()
    return f'{below} of {total} steps were skipped, because the loss is below lower_bound={bound:g}; "level" needs none'
