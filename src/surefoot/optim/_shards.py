"""Parameters that lie in pieces on several ranks: the DTensors of FSDP2 and of tensor parallelism.

The optimizer works on the pieces that this rank holds. Everything elementwise needs nothing else; a sum over elements
(a squared norm, an inner product) is this rank's part until :meth:`Spread.total` has added it up over the ranks; and
what needs a tensor as a whole gathers it with :func:`whole` or :func:`gathered` and keeps its :func:`piece`.

DTensors are recognised by what they have, not by their class: importing it takes half a second, and who has no DTensor
should not pay for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as distributed
from torch import Tensor


def is_distributed(tensor: Tensor) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "device_mesh")


def local(tensor: Tensor) -> Tensor:
    """The piece of a DTensor that this rank holds, in the same memory; any other tensor itself."""
    return tensor.to_local() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """All of a DTensor, gathered on every rank of its mesh; any other tensor itself."""
    return tensor.full_tensor() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]


class Spread(NamedTuple):
    """The ranks over which the elements of a tensor are spread: some dimensions of a device mesh."""

    mesh: Any
    dims: tuple[int, ...]

    def total(self, value: Any) -> Any:
        """A sum over the elements of this rank, added up over the ranks; a Python float or a 0-d tensor.

        Every rank gets the same bits, so that all of them take the same decisions. All of them have to call it.
        """
        on_device = isinstance(value, Tensor)
        sums = value.clone() if on_device else torch.tensor(value, dtype=torch.float64)
        for dim in self.dims:
            distributed.all_reduce(sums, group=self.mesh.get_group(dim))
        return sums if on_device else sums.item()


def spread(tensor: Tensor) -> Spread | None:
    """Over which ranks a tensor is spread; None if this rank has all of it, copies elsewhere or not."""
    if not is_distributed(tensor):
        return None
    layout: Any = tensor
    dims = tuple(dim for dim, placement in enumerate(layout.placements) if not placement.is_replicate())
    return Spread(layout.device_mesh, dims) if dims else None


class Pieces(NamedTuple):
    """This rank's pieces of tensors that are spread alike."""

    spread: Spread | None
    originals: list[Tensor]
    """The parameters as they were given: DTensors, if they are spread."""
    params: list[Tensor]
    grads: list[Tensor]
    buffers: list[list[Tensor]]


def pieces(params: list[Tensor], grads: list[Tensor], buffers: list[list[Tensor]]) -> list[Pieces]:
    """The pieces of parameters, gradients and buffers, in one part for each spread that occurs."""
    spreads = [spread(p) for p in params]
    parts = []
    for one in dict.fromkeys(spreads):
        here = [i for i, other in enumerate(spreads) if other == one]
        originals = [params[i] for i in here]
        parts.append(
            Pieces(
                one,
                originals,
                [local(p) for p in originals],
                [local(_placed_as(grads[i], params[i])) for i in here],
                [[local(buffer[i]) for i in here] for buffer in buffers],
            )
        )
    return parts


def _placed_as(grad: Tensor, p: Tensor) -> Tensor:
    """The gradient in the placements of its parameter: tensor parallelism may leave it unsummed."""
    layout: Any = p
    if is_distributed(p) and grad.placements != layout.placements:  # type: ignore[attr-defined]
        return grad.redistribute(placements=layout.placements)  # type: ignore[attr-defined, no-any-return]
    return grad


def gathered(part: Tensor, original: Tensor) -> Tensor:
    """The tensor, on every rank, of which ``part`` is this rank's piece; it is spread as the DTensor ``original``."""
    from torch.distributed.tensor import DTensor

    layout: Any = original
    joined = DTensor.from_local(
        part,
        layout.device_mesh,
        layout.placements,
        run_check=False,
        shape=original.shape,
        stride=original.stride(),
    )
    return whole(joined)


def piece(tensor: Tensor, original: Tensor) -> Tensor:
    """A copy of this rank's piece of a tensor that every rank has; to be spread as the DTensor ``original``."""
    from torch.distributed.tensor import DTensor, Replicate

    layout: Any = original
    copies = DTensor.from_local(tensor, layout.device_mesh, [Replicate()] * layout.device_mesh.ndim, run_check=False)
    # A copy, or the piece would keep all of the tensor alive.
    return local(copies.redistribute(placements=layout.placements)).clone()


def check_parameter(p: Tensor) -> None:
    """Refuse what the optimizers cannot move: complex and integer tensors, and layouts that hide elements from them."""
    if not p.is_floating_point():
        raise TypeError(f"parameters must be real floating-point tensors, got one of dtype {p.dtype}")
    if getattr(p, "_is_flat_param", False) or getattr(p, "_fsdp_flattened", False):
        raise TypeError(
            "parameters must be whole or DTensors, got one that FullyShardedDataParallel (FSDP1) has flattened: "
            "use torch.distributed.fsdp.fully_shard (FSDP2)"
        )
    layout: Any = p
    if is_distributed(p) and any(placement.is_partial() for placement in layout.placements):
        raise TypeError(f"parameters must be sharded or replicated, got a DTensor with placements {layout.placements}")
