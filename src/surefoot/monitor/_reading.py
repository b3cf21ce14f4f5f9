"""Reading an optimizer: its gradients, rates, and what it says about its own step. Nothing here changes anything."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim import Euclidean, ModelBased
from surefoot.optim._arithmetic import Arithmetic, Device, Host, Scalar


def arithmetic(optimizer: Optimizer) -> Arithmetic:
    """Arithmetic for the optimizer's tensors: floats for those on the CPU, 0-d tensors for all others."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if all(p.is_cpu for p in params):
        return Host(True)
    device = params[0].device
    return Device(True, device, torch.float32 if device.type == "mps" else torch.float64)


def gradients(group: dict[str, Any]) -> list[Tensor]:
    """The group's gradients as real, dense tensors; of a sparse one, its values."""
    return [real(p.grad) for p in group["params"] if p.grad is not None]


def rates(optimizer: Optimizer, ops: Arithmetic) -> list[Scalar]:
    """The groups' rates; a tensor that is not on the CPU stays one, so that nobody waits."""
    found = [group["lr"] for group in optimizer.param_groups]
    return [float(lr) if isinstance(ops, Host) or not isinstance(lr, Tensor) or lr.is_cpu else lr for lr in found]


def squares(optimizer: Optimizer, ops: Arithmetic) -> list[Scalar]:
    """‖g‖² of every group."""
    found = [gradients(group) for group in optimizer.param_groups]
    return [ops.sum_sq(grads) if grads else 0.0 for grads in found]


def difference_sq(ops: Arithmetic, left: list[Tensor], right: list[Tensor]) -> Scalar:
    """Σ‖a − b‖²."""
    return ops.sum_sq(torch._foreach_sub(left, right)) if left else 0.0


def measured(value: Any, ops: Arithmetic) -> Scalar:
    """A measured number: what is not finite is ∞, because NaN stands for what was not measured."""
    if isinstance(value, Tensor) and not isinstance(ops, Host):
        return torch.where(torch.isfinite(value), value, math.inf)
    value = value.item() if isinstance(value, Tensor) else float(value)
    return value if math.isfinite(value) else math.inf


def is_plain_sgd(optimizer: Optimizer) -> bool:
    """Whether a step is exactly x − α·g: torch's SGD without momentum, weight decay or maximisation."""
    return type(optimizer) is torch.optim.SGD and not any(
        group["momentum"] or group["weight_decay"] or group["maximize"] for group in optimizer.param_groups
    )


def is_gradient_step(optimizer: Optimizer) -> bool:
    """Whether the optimizer moves along −g, so that its rate can be compared with Polyak's."""
    if isinstance(optimizer, ModelBased):
        return isinstance(optimizer._settings.geometry, Euclidean)
    return isinstance(optimizer, torch.optim.SGD)


def knows_square(optimizer: Optimizer) -> bool:
    """Whether the optimizer notes ‖g‖² of its step, and that is all there is to know about its groups."""
    rates = [group["lr"] for group in optimizer.param_groups]
    return hasattr(optimizer, "last_grad_sq") and all(rate is rates[0] or _equal(rate, rates[0]) for rate in rates)


def noted_square(optimizer: Any) -> Scalar:
    """‖g‖² of the last step, as the optimizer has noted it."""
    return optimizer.last_grad_sq


def _equal(left: Any, right: Any) -> bool:
    return not isinstance(left, Tensor) and not isinstance(right, Tensor) and bool(left == right)


def pending_loss(optimizer: Optimizer) -> Tensor | float | None:
    """The losses that were added to one of our optimizers for its coming step."""
    return optimizer._added if isinstance(optimizer, ModelBased) else None


def parameters(optimizer: Optimizer) -> list[Tensor]:
    """All parameters, as real tensors."""
    return [real(p.detach()) for group in optimizer.param_groups for p in group["params"]]


def copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Copies with memory of their own."""
    return [tensor.detach().clone() for tensor in tensors]


def real(tensor: Tensor) -> Tensor:
    """A tensor as a real one, without a copy; of a sparse one, its values."""
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
