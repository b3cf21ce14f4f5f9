"""Several ranks that train one model: the loss that they agree on, and parameters that lie in pieces on them.

The pieces are the DTensors of FSDP2 and of tensor parallelism. The optimizer works on those that this rank holds.
Everything elementwise needs nothing else; a sum over elements (a squared norm, an inner product) is this rank's part
until :meth:`Spread.total` has added it up over the ranks; and what needs a tensor as a whole gathers it with
:func:`whole` or :func:`gathered` and keeps its :func:`piece`.

DTensors are recognised by what they have, not by their class: importing it takes half a second, and who has no DTensor
should not pay for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as distributed
from torch import Tensor

from surefoot.optim._arithmetic import Scalar, scalar_dtype

if TYPE_CHECKING:
    from surefoot.optim._settings import Settings

_ZERO = "torch.distributed.optim.zero_redundancy_optimizer"


def is_distributed(tensor: Tensor) -> bool:
    """Whether the tensor is a DTensor."""
    return hasattr(tensor, "device_mesh")


def local(tensor: Any) -> Tensor:
    """The piece of a DTensor that this rank holds, in the same memory; any other tensor itself."""
    held: Tensor = tensor.to_local() if is_distributed(tensor) else tensor
    return held


def whole(tensor: Any) -> Tensor:
    """All of a DTensor, gathered on every rank of its mesh; any other tensor itself."""
    full: Tensor = tensor.full_tensor() if is_distributed(tensor) else tensor
    return full


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


def spread(tensor: Any) -> Spread | None:
    """Over which ranks a tensor is spread; None if this rank has all of it, copies elsewhere or not."""
    placements = tensor.placements if is_distributed(tensor) else ()
    dims = tuple(dim for dim, placement in enumerate(placements) if not placement.is_replicate())
    return Spread(tensor.device_mesh, dims) if dims else None


def placed_as(grad: Any, p: Any) -> Tensor:
    """The gradient in the placements of its parameter: tensor parallelism may leave it unsummed."""
    same = not is_distributed(p) or grad.placements == p.placements
    placed: Tensor = grad if same else grad.redistribute(placements=p.placements)
    return placed


def gathered(part: Tensor, original: Any) -> Tensor:
    """The tensor, on every rank, of which ``part`` is this rank's piece; it is spread as the DTensor ``original``."""
    from torch.distributed.tensor import DTensor

    mesh, placements, shape, stride = original.device_mesh, original.placements, original.shape, original.stride()
    return whole(DTensor.from_local(part, mesh, placements, run_check=False, shape=shape, stride=stride))


def piece(tensor: Tensor, original: Any) -> Tensor:
    """A copy of this rank's piece of a tensor that every rank has; to be spread as the DTensor ``original``."""
    from torch.distributed.tensor import DTensor, Replicate

    mesh = original.device_mesh
    copies = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    # A copy, or the piece would keep all of the tensor alive.
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


def refuse_partition() -> None:
    """Refuse to be built by ``ZeroRedundancyOptimizer``: each rank would step by the norm of its own parameters."""
    if _ZERO not in sys.modules:
        return
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == _ZERO:
            raise TypeError(
                "optimizer_class must not be one of surefoot in a ZeroRedundancyOptimizer, which gives every rank a "
                "part of the parameters: the step needs the norm of all of them. Shard the model with "
                "torch.distributed.fsdp.fully_shard (FSDP2), and its optimizer is sharded too"
            )
        frame = frame.f_back


class Joining:
    """The ranks' agreement on the loss, as torch's ``Join`` wants it for uneven inputs: ``Join([model, optimizer])``.

    A rank that has run out of batches takes part with a loss of 0, as ``DistributedDataParallel`` does with its
    gradients, so that loss and gradient stay means over the same number of ranks.
    """

    _settings: Settings
    param_groups: list[dict[str, Any]]
    _join_config: Any = None

    def agree(self, loss: Scalar, bound: Scalar | None) -> tuple[Scalar, Scalar | None]:
        """Loss and lower bound as means over the process group."""
        if self._join_config is not None:
            from torch.distributed.algorithms.join import Join

            Join.notify_join_context(self)  # type: ignore[arg-type]
        loss, mean = mean_over_ranks(self._settings.process_group, loss, 0.0 * loss if bound is None else bound)
        return loss, None if bound is None else mean

    @property
    def join_device(self) -> torch.device:
        """The device on which the ranks talk about joining."""
        device: torch.device = self.param_groups[0]["count"].device
        return device

    @property
    def join_process_group(self) -> Any:
        """The process group whose ranks talk about joining."""
        group = self._settings.process_group
        return distributed.group.WORLD if group is None or group == "auto" else group

    def join_hook(self, **options: Any) -> Any:
        """What a rank does that has run out of batches."""
        from torch.distributed.algorithms.join import JoinHook

        optimizer, device = self, self.join_device

        class Hook(JoinHook):
            def main_hook(self) -> None:
                on_host = device.type == "cpu"
                zero = 0.0 if on_host else torch.zeros((), dtype=scalar_dtype(device), device=device)
                mean_over_ranks(optimizer._settings.process_group, zero, zero)

        return Hook()
