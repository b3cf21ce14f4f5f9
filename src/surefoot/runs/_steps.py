"""What a step of a torch optimizer that is not ours tells the theory, and whether indices may stand in a bound."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim import ModelBased


def foreign_step(optimizer: Optimizer, parameters: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Take a step, and return ‖g‖², size and index as 0-d tensors: reading them is what would wait for the device.

    The index is ½α‖g‖² for plain ``torch.optim.SGD``, and for any other ½⟨g, x_t − x_{t+1}⟩, at least 0: a heuristic,
    the midpoint of the interval that holds the index of every convex model with this step. The size of a step that is
    not a multiple of g is that of one along g that is as long.
    """
    moving = [p for p in parameters if p.grad is not None]
    gradients = [p.grad for p in moving if p.grad is not None]
    grad_sq = norm_sq(gradients)
    if is_plain_sgd(optimizer) and len(optimizer.param_groups) == 1:
        optimizer.step()
        rate = torch.as_tensor(optimizer.param_groups[0]["lr"], dtype=torch.float64, device=grad_sq.device)
        return grad_sq, rate, 0.5 * rate * grad_sq
    before = [p.detach().clone() for p in moving]
    gradients = [g.clone() for g in gradients]  # before hooks of the optimizer change them
    optimizer.step()
    with torch.no_grad():
        moves = difference(before, moving)
        inner = torch.stack([(m * g).sum(dtype=torch.float64) for m, g in zip(moves, gradients, strict=True)]).sum()
        size = (norm_sq(moves) / grad_sq).sqrt()
        size = torch.where(size.isnan(), torch.zeros_like(size), size)  # no gradient, and no move
        return grad_sq, size, (0.5 * inner).clamp_min(0.0)


def certifies(optimizer: Optimizer) -> bool:
    """Whether the indices may stand in a bound: Euclidean steps without averaging, clipping, weight decay and hooks."""
    if is_hooked(optimizer) or any(group.get("weight_decay") for group in optimizer.param_groups):
        return False
    return optimizer.certifies if isinstance(optimizer, ModelBased) else is_plain_sgd(optimizer)


def is_plain_sgd(optimizer: Optimizer) -> bool:
    """Whether an optimizer is ``torch.optim.SGD`` without momentum, decay and hooks: then ½α‖g‖² is its index."""
    return (
        type(optimizer) is torch.optim.SGD
        and not is_hooked(optimizer)
        and not any(group["momentum"] or group["weight_decay"] or group["maximize"] for group in optimizer.param_groups)
    )


def is_hooked(optimizer: Optimizer) -> bool:
    """Whether hooks of torch, or another ``step``, have a part in an optimizer's steps."""
    own_step, module = vars(optimizer).get("step"), sys.modules["torch.optim.optimizer"]
    replaced = own_step is not None and not hasattr(own_step, "_wrapped_by_lr_sched")  # a scheduler wraps it to count
    return replaced or any(
        (
            optimizer._optimizer_step_pre_hooks,
            optimizer._optimizer_step_post_hooks,
            getattr(module, "_global_optimizer_pre_hooks", None),
            getattr(module, "_global_optimizer_post_hooks", None),
        )
    )


def difference(left: list[Tensor], right: list[Tensor]) -> Any:
    """x − y, tensor by tensor."""
    return torch._foreach_sub(left, right)  # torch's stub knows only the scalar form


def norm_sq(tensors: Any) -> Tensor:
    """The squared norm of all tensors together, in float64."""
    return torch.stack([norm.double() for norm in torch._foreach_norm(list(tensors))]).square().sum()
