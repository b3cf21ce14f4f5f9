"""Losses and other single numbers on their way into a step and out of it."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from surefoot.optim._arithmetic import Scalar
from surefoot.optim._shards import whole


def scalar_dtype(device: torch.device) -> torch.dtype:
    """The dtype of scalars that live on a device."""
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64


def scalar(value: Any, name: str = "loss") -> Tensor | float:
    """The value detached, if it is one real number."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} must have one element, got a tensor of shape {tuple(value.shape)}")
        if value.is_complex():
            raise TypeError(f"{name} must be real, got a tensor of dtype {value.dtype}")
        found = whole(value.detach())
        return found.reshape(()) if found.ndim else found
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{name} must be a number or a tensor of one element, got {type(value).__name__}")


def check_closure(closure: Any, hint: str = "") -> None:
    """Refuse a closure that is no function: the first argument of ``step`` is easily taken for the loss."""
    if closure is not None and not callable(closure):
        raise TypeError(f"closure must be a function that returns the loss, got {type(closure).__name__}{hint}")


def mean_over_ranks(process_group: Any, *values: Scalar) -> tuple[Scalar, ...]:
    """Means over a process group in one small all-reduce; ``"auto"`` is the default group, None stays alone."""
    if process_group is None or not distributed.is_available() or not distributed.is_initialized():
        return values
    group = None if process_group == "auto" else process_group
    size = distributed.get_world_size(group)
    if size == 1:
        return values
    on_host = not isinstance(values[0], Tensor)
    sums = torch.tensor(values, dtype=torch.float64) if on_host else torch.stack(values)
    distributed.all_reduce(sums, group=group)
    return tuple((sums / size).tolist() if on_host else sums / size)
