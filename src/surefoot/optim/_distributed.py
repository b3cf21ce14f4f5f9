"""Several ranks that train one model: the loss that they agree on, and parameters that are sharded over them.

The shards are the DTensors of FSDP2 and of tensor parallelism. An optimizer works on those that this rank holds.
Everything elementwise needs nothing else; a sum over elements (a squared norm, an inner product) is this rank's part
until :meth:`Shards.total` has added it up over the ranks; and what needs a tensor as a whole gathers it with
:func:`gathered` and keeps its :func:`shard`.

DTensors are recognised by what they have, not by their class: importing it takes half a second.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch.distributed as distributed
from torch import Tensor

_ZERO = "torch.distributed.optim.zero_redundancy_optimizer"


def has_ranks() -> bool:
    """Whether this process is one of several that train together."""
    return distributed.is_available() and distributed.is_initialized()


def is_distributed(tensor: Tensor) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "device_mesh")


def local(tensor: Any) -> Tensor:
    """The shard of a DTensor that this rank holds, in the same memory; any other tensor itself."""
    held: Tensor = tensor.to_local() if is_distributed(tensor) else tensor
    return held


def whole(tensor: Any) -> Tensor:
    """All of a DTensor, gathered on every rank of its mesh; any other tensor itself."""
    full: Tensor = tensor.full_tensor() if is_distributed(tensor) else tensor
    return full


class Shards(NamedTuple):
    """The ranks over which the elements of a tensor are sharded: some dimensions of a device mesh."""

    mesh: Any
    dims: tuple[int, ...]

    def total(self, value: Tensor) -> Tensor:
        """A sum over the elements of this rank, added up over the ranks: the same bits on each. All have to call it."""
        sums = value.clone()
        for dim in self.dims:
            distributed.all_reduce(sums, group=self.mesh.get_group(dim))
        return sums


def shards_of(tensor: Any) -> Shards | None:
    """Over which ranks a tensor is sharded; None if this rank has all of it, copies elsewhere or not."""
    placements = tensor.placements if is_distributed(tensor) else ()
    dims = tuple(dim for dim, placement in enumerate(placements) if not placement.is_replicate())
    return Shards(tensor.device_mesh, dims) if dims else None


def placed_as(grad: Any, p: Any) -> Tensor:
    """The gradient in the placements of its parameter: tensor parallelism may leave it unsummed."""
    same = not is_distributed(p) or grad.placements == p.placements
    placed: Tensor = grad if same else grad.redistribute(placements=p.placements)
    return placed


def gathered(part: Tensor, original: Any) -> Tensor:
    """The tensor, on every rank, of which ``part`` is this rank's shard; it is sharded as the DTensor ``original``."""
    from torch.distributed.tensor import DTensor

    mesh, placements, shape, stride = original.device_mesh, original.placements, original.shape, original.stride()
    return whole(DTensor.from_local(part, mesh, placements, run_check=False, shape=shape, stride=stride))


def shard(tensor: Tensor, original: Any) -> Tensor:
    """A copy of this rank's shard of a tensor that every rank has; to be sharded as the DTensor ``original``."""
    from torch.distributed.tensor import DTensor, Replicate

    mesh = original.device_mesh
    copies = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    # A copy, or the shard would keep all of the tensor alive.
    return local(copies.redistribute(placements=original.placements)).clone()


def check_parameter(p: Any) -> None:
    """Refuse what the optimizers cannot move: complex and integer tensors, and layouts that hide elements from them."""
    if not p.is_floating_point():
        raise TypeError(f"parameters must be real floating-point tensors, got one of dtype {p.dtype}")
    if getattr(p, "_is_flat_param", False) or getattr(p, "_fsdp_flattened", False):
        raise TypeError(
            "parameters must be whole or DTensors, got one that FullyShardedDataParallel (FSDP1) has flattened: "
            "use torch.distributed.fsdp.fully_shard (FSDP2)"
        )
    if is_distributed(p) and any(placement.is_partial() for placement in p.placements):
        raise TypeError(f"parameters must be sharded or replicated, got a DTensor with placements {p.placements}")


def mean_over_ranks(process_group: Any, values: Tensor) -> Tensor:
    """Means over a process group in one small all-reduce; ``"auto"`` is the default group, None stays alone."""
    if process_group is None or not has_ranks():
        return values
    group = None if process_group == "auto" else process_group
    size = distributed.get_world_size(group)
    if size == 1:
        return values
    sums = values.clone()
    distributed.all_reduce(sums, group=group)
    return sums / size


def refuse_partition() -> None:
    """Refuse to be built by ``ZeroRedundancyOptimizer``: each rank would step by the norm of its own parameters."""
    frame: Any = sys._getframe(1) if _ZERO in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == _ZERO:
            raise TypeError(
                "optimizer_class must not be one of surefoot in a ZeroRedundancyOptimizer: the step needs the norm "
                "of all parameters. Shard the model with torch.distributed.fsdp.fully_shard (FSDP2)"
            )
        frame = frame.f_back
