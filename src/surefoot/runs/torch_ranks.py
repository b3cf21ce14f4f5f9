"""Ranks of torch.distributed: processes, as torchrun starts them, that train one network together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def count() -> int:
    """How many ranks there are; 1 where torch.distributed is not in use, or torch not even imported."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


def number() -> int:
    """The rank of this process; rank 0 is the one that writes."""
    return int(sys.modules["torch.distributed"].get_rank()) if count() > 1 else 0


def shared(value: Any) -> Any:
    """The value that rank 0 gives to this call, on every rank."""
    if count() == 1:
        return value
    import torch.distributed as distributed

    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def mean(value: Tensor) -> Tensor:
    """The mean of a value over the ranks."""
    from surefoot.optim import mean_over_ranks

    result: Tensor = mean_over_ranks("auto", value)[0]
    return result


def wrapped(model: nn.Module) -> nn.Module:
    """The model as it is called in training: its gradients are means over the ranks."""
    if count() == 1:
        return model
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model)


def part(rows: int) -> slice:
    """Which rows of a batch this rank takes: as many as every other one, as far as possible."""
    ranks, rank = count(), number()
    return slice(rows * rank // ranks, rows * (rank + 1) // ranks)
