"""What a step does with lists of tensors: sums, running averages and moves. None of them reads a value.

Scalars are 0-d tensors in float64. A step that must not happen (``skip``, a 0-d bool) is masked: torch's fused kernels
take the mask as ``found_inf``, and leave their tensors alone where it is set, whatever the gradients hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

Tensors = Sequence[Tensor]

WIDE = (torch.float32, torch.float64)
"""The dtypes in which sums are taken, and which torch's fused kernels move without rounding in between."""
_BLOCK = 1 << 18
"""Elements that are summed in their own dtype on the CPU, with an error below 1e-6; a few such blocks fit the cache."""
SMALL = 1 << 16
"""CPU tensors of up to this many elements are gathered into one vector, which costs less than a call for each."""
_FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")
_PLAIN_SGD: dict[str, Any] = {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "is_first_step": False}


def scalar_dtype(device: torch.device) -> torch.dtype:
    """The dtype of scalars that live on a device."""
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which elements of this one are summed: float32 or better."""
    return dtype if dtype in WIDE else torch.float32


def flat(tensor: Tensor) -> Tensor:
    """All elements as a vector, without a copy wherever they lie densely in memory."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):  # for example channels_last
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1)


def total(values: Tensors, like: Tensor) -> Tensor:
    """The sum of 0-d tensors, in the dtype and on the device of ``like``."""
    if len(values) == 1:
        return values[0].to(like)
    kinds = {(value.device, value.dtype) for value in values}
    if len(kinds) > 1:
        values = [value.to(like) for value in values]
    return torch.stack(list(values)).to(like).sum()


def sum_sq(tensors: Tensors, like: Tensor) -> Tensor:
    """Σ‖a‖², as a scalar like ``like``; ∞ where a squared norm overflows its dtype (float32 at least)."""
    if not tensors:
        return torch.zeros_like(like)
    if _sums_blocks(tensors):
        return inner(tensors, tensors, like)
    if torch.compiler.is_compiling() or any(a.dtype not in WIDE for a in tensors):
        return total([torch.linalg.vector_norm(a, dtype=like.dtype).square() for a in tensors], like)
    norms = torch._foreach_norm(list(tensors))
    return torch.stack([norm.to(like.device) for norm in norms]).to(like.dtype).square().sum()


def inner(left: Tensors, right: Tensors, like: Tensor) -> Tensor:
    """Σ⟨a, b⟩, as a scalar like ``like``."""
    if not left:
        return torch.zeros_like(like)
    if not _sums_blocks(left):
        pairs = ((a.to(wide(a.dtype)), b.to(wide(a.dtype))) for a, b in zip(left, right, strict=True))
        return total([torch.sum(a * b) for a, b in pairs], like)
    small = [i for i, a in enumerate(left) if a.numel() <= SMALL]
    sums: list[Tensor] = []
    if small:
        gathered = _gather(left, small)
        sums += _dots(gathered, gathered if left is right else _gather(right, small))
    if len(small) < len(left):
        for a, b in zip(left, right, strict=True):
            if a.numel() > SMALL:
                alike = a.stride() == b.stride()
                sums += _dots(flat(a), flat(b)) if alike else _dots(a.reshape(-1), b.reshape(-1))
    return total(sums, like)


def _sums_blocks(tensors: Tensors) -> bool:
    """Whether to sum block by block: on the CPU, where torch's own sums in float32 lose digits or take longer."""
    return False not in [a.is_cpu for a in tensors] and not torch.compiler.is_compiling()


def _gather(tensors: Tensors, places: list[int]) -> Tensor:
    """All elements of some of the tensors as one vector."""
    if len(places) < len(tensors):
        tensors = [tensors[i] for i in places]
    if len(tensors) == 1:
        return tensors[0].reshape(-1)
    vector: Tensor = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
    return vector


def _dots(a: Tensor, b: Tensor) -> list[Tensor]:
    """⟨a, b⟩ of the blocks of two vectors."""
    dtype = wide(a.dtype)
    if a.numel() <= _BLOCK:
        return [torch.dot(a.to(dtype), b.to(dtype))]
    blocks = zip(torch.split(a, _BLOCK), torch.split(b, _BLOCK), strict=True)
    return [torch.dot(x.to(dtype), y.to(dtype)) for x, y in blocks]


def is_fusable(tensors: Tensors, others: Tensors) -> bool:
    """Whether torch's fused kernels serve these tensors: of one dtype and device, and in the same order in memory."""
    if torch.compiler.is_compiling():  # they have no tracing rule for a rate that is a tensor
        return False
    device, dtype = tensors[0].device, tensors[0].dtype
    if dtype not in WIDE or device.type not in _FUSED_DEVICES:
        return False
    if False in [b.dtype is dtype and b.device == device for b in others]:
        return False
    if False not in [a.is_contiguous() for a in tensors] and False not in [b.is_contiguous() for b in others]:
        return True
    dense = torch.ops.aten.is_non_overlapping_and_dense
    return all(a.stride() == b.stride() and dense(a) for a, b in zip(tensors, others, strict=True))


def move_(params: Tensors, directions: Tensors, size: Tensor, skip: Tensor) -> None:
    """``params −= size·directions``, unless the step is skipped."""
    _fused_or_not(params, directions, size, skip, averaging=False)


def lerp_(average: Tensors, new: Tensors, weight: Tensor, skip: Tensor) -> None:
    """``average += weight·(new − average)``, unless the step is skipped."""
    _fused_or_not(average, new, weight, skip, averaging=True)


def _fused_or_not(tensors: Tensors, others: Tensors, size: Tensor, skip: Tensor, *, averaging: bool) -> None:
    for targets, sources in _alike(tensors, others):
        device = targets[0].device
        if is_fusable(targets, sources):
            rate = size if device.type == "cpu" else size.to(device, torch.float32)
            found = skip.to(device, torch.float32)
            # x − s(−b + 1·x) is x + s(b − x): "maximize" and a decay of 1 make torch's step a running average.
            kind: dict[str, Any] = {"weight_decay": 1.0 if averaging else 0.0, "maximize": averaging}
            torch._fused_sgd_(targets, sources, [], lr=rate, found_inf=found, **kind, **_PLAIN_SGD)
            continue
        size_here, skip_here = size.to(device, wide(targets[0].dtype)), skip.to(device)
        if averaging:
            moves = torch._foreach_mul(torch._foreach_sub(sources, targets), size_here)
        else:
            moves = torch._foreach_mul(sources, -size_here)
        torch._foreach_add_(targets, [torch.where(skip_here, 0.0, move) for move in moves])


def mul_(tensors: Tensors, factor: Tensor, skip: Tensor) -> None:
    """``tensors *= factor``, unless the step is skipped."""
    kept = torch.where(skip, 1.0, factor)
    for (targets,) in _alike(tensors):
        torch._foreach_mul_(targets, kept.to(targets[0].device, wide(targets[0].dtype)))


def _alike(*lists: Tensors) -> list[list[list[Tensor]]]:
    """The lists, one part for each device and dtype of the first one."""
    first = lists[0]
    if not first:
        return []
    kinds = {(a.device, a.dtype) for a in first}
    if len(kinds) == 1:
        return [[list(tensors) for tensors in lists]]
    parts = []
    for kind in kinds:
        places = [i for i, a in enumerate(first) if (a.device, a.dtype) == kind]
        parts.append([[tensors[i] for i in places] for tensors in lists])
    return parts


def aligned(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor, copied into the memory order of another one if it has a different one."""
    if tensor.stride() == like.stride() or tensor.numel() <= 1:
        return tensor
    return torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)
