"""What a step does with lists of tensors: sums, running averages and moves. None of them reads a value.

The tensors of a list have one device and dtype. Scalars are 0-d tensors in float64. A step that must not happen
(``skip``, a 0-d bool) is masked: torch's fused kernels take the mask as ``found_inf``, and leave their tensors alone
where it is set, whatever the gradients hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

Tensors = list[Tensor] | tuple[Tensor, ...]

WIDE = (torch.float32, torch.float64)
"""The dtypes in which sums are taken, and which torch's fused kernels move without rounding in between."""
SMALL = 1 << 16
"""CPU tensors of up to this many elements are gathered into one vector, which costs less than a call for each."""
_CPU_BLOCK, _DEVICE_BLOCK = 1 << 18, 1 << 26
"""Elements of a block. On the CPU it stays in the cache, and its sum in float32 has an error below 1e-6."""
_FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")
_PLAIN_SGD: dict[str, Any] = {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "is_first_step": False}


def scalar_dtype(device: torch.device) -> torch.dtype:
    """The dtype of scalars that live on a device."""
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which elements of this one are summed: float32 or better."""
    return dtype if dtype in WIDE else torch.float32


def total(values: Tensors, like: Tensor) -> Tensor:
    """The sum of 0-d tensors, in the dtype and on the device of ``like``."""
    if len(values) == 1:
        return values[0].to(like)
    return torch.stack([value.to(like.device) for value in values]).to(like.dtype).sum()


def blocks(*lists: Tensors) -> Iterator[tuple[Tensors, ...]]:
    """Corresponding parts of the lists: small tensors together, large ones in slices."""
    sizes = [a.numel() for a in lists[0]]
    small, limit = (SMALL, _CPU_BLOCK) if lists[0][0].is_cpu else (_DEVICE_BLOCK, _DEVICE_BLOCK)
    if max(sizes) <= small and sum(sizes) <= 2 * limit:
        yield lists
        return
    gathered: list[int] = []
    count = 0
    for place, size in enumerate(sizes):
        tensors = [each[place] for each in lists]
        if size <= small:
            gathered.append(place)
            count += size
            if count > limit:
                yield tuple([each[i] for i in gathered] for each in lists)
                gathered, count = [], 0
        elif size <= limit or False in [a.is_contiguous() for a in tensors]:
            yield tuple([a] for a in tensors)
        else:
            slices = zip(*[a.view(-1).split(limit) for a in tensors], strict=True)  # type: ignore[no-untyped-call]
            yield from (tuple([a] for a in each) for each in slices)
    if gathered:
        yield tuple([each[i] for i in gathered] for each in lists)


def _vector(tensors: Tensors) -> Tensor:
    """All elements as one vector in float32 or better."""
    if len(tensors) == 1:
        vector = tensors[0].flatten()
    else:
        vector = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
    return vector if vector.dtype in WIDE else vector.float()


def sum_sq(tensors: Tensors, like: Tensor) -> Tensor:
    """Σ‖a‖², as a scalar like ``like``; ∞ where a squared norm overflows its dtype (float32 at least)."""
    if not tensors:
        return torch.zeros_like(like)
    if tensors[0].is_cpu or torch.compiler.is_compiling():  # torch's own norms lose digits on the CPU
        vectors = (_vector(block) for (block,) in blocks(tensors))
        return total([torch.dot(vector, vector) for vector in vectors], like)
    norms = torch._foreach_norm(list(tensors), 2, wide(tensors[0].dtype))
    return torch.stack(norms).to(like).square().sum()


def inner(left: Tensors, right: Tensors, like: Tensor) -> Tensor:
    """Σ⟨a, b⟩, as a scalar like ``like``."""
    if not left:
        return torch.zeros_like(like)
    return total([torch.dot(_vector(a), _vector(b)) for a, b in blocks(left, right)], like)


def is_fusable(tensors: Tensors, others: Tensors) -> bool:
    """Whether torch's fused kernels serve these tensors: in float32 or better, in the same order in memory."""
    first, other = tensors[0], others[0]
    if torch.compiler.is_compiling():  # they have no tracing rule for a rate that is a tensor
        return False
    if first.dtype not in WIDE or other.dtype is not first.dtype:
        return False
    if first.device.type not in _FUSED_DEVICES or other.device != first.device:
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
    device = tensors[0].device
    if is_fusable(tensors, others):
        rate = size if device.type == "cpu" else size.to(device, torch.float32)
        found = skip.to(device, torch.float32)
        # x − s(−b + 1·x) is x + s(b − x): "maximize" and a decay of 1 make torch's step a running average.
        kind: dict[str, Any] = {"weight_decay": 1.0 if averaging else 0.0, "maximize": averaging}
        torch._fused_sgd_(tensors, others, [], lr=rate, found_inf=found, **kind, **_PLAIN_SGD)
        return
    size_here, skip_here = size.to(device, wide(tensors[0].dtype)), skip.to(device)
    if averaging:
        moves = torch._foreach_mul(torch._foreach_sub(others, tensors), size_here)
    else:
        moves = torch._foreach_mul(others, -size_here)
    torch._foreach_add_(tensors, [torch.where(skip_here, 0.0, move) for move in moves])


def times(tensors: Sequence[Tensor], factor: Tensor | float) -> list[Tensor]:
    """The tensors, times a scalar; they themselves if it is the number 1."""
    if not isinstance(factor, Tensor):
        return list(tensors)
    return list(torch._foreach_mul(list(tensors), factor.to(tensors[0].device, wide(tensors[0].dtype))))


def mul_(tensors: Tensors, factor: Tensor, skip: Tensor) -> None:
    """``tensors *= factor``, unless the step is skipped."""
    kept = torch.where(skip, 1.0, factor)
    torch._foreach_mul_(tensors, kept.to(tensors[0].device, wide(tensors[0].dtype)))
