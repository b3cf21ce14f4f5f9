"""Sums over the elements of CPU tensors, at the speed of memory: Σ‖a‖² and Σ⟨a, b⟩ as Python floats.

Σ‖a‖² is a sum over rows of :data:`_ROW` elements. Threads share the rows but never a row, and all rows are added up in
one order, so that the result is the same for any number of threads. A row is short enough for a float32 sum; the rows
are summed in float64.

Where :mod:`surefoot.optim.native` was built, it does this in half of the time. Without it other ways were tried (124 M
elements, two threads): 25 ms for this one, 27 for BLAS dots of blocks, whose bits depend on the number of threads, and
33 for ``np.vecdot``, which is the fastest on one thread (39 against 45) and gains little from another; rows of
``vector_norm`` are slower; ``_foreach_norm`` is off by 1.7e-3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._utils import _flatten_dense_tensors

from surefoot.optim import native
from surefoot.optim.native import Tensors as Tensors
from surefoot.optim.native import together

_ROW = 1 << 8
"""Elements that are summed in their own dtype (float32 at least), with an error below 1e-6 even if all are equal
and their rounding errors are too."""
_SMALL = 1 << 16
"""Tensors of up to this many elements are gathered into one vector, which costs less than a call for each."""
_MANY = 1 << 13
"""From this many rows on, several threads are worth their start."""
_BLOCK = 1 << 18
"""BLAS sums at most this many elements in float32, with an error of 1e-6 even in a single thread; the rest is summed in
float64. In one go, 2 million of them would be off by 2e-5, and 40 million by 2e-4."""
_NARROW_BLOCK = 1 << 16
"""The block of low-precision tensors, which are widened first and should stay in the cache."""
WIDE = (torch.float32, torch.float64)
"""The dtypes that sums are taken in."""

Array = NDArray[Any]


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that elements of this one are summed in: float32 or better."""
    return dtype if dtype in WIDE else torch.float32


def flat(tensor: Tensor) -> Tensor:
    """All elements as a vector, without a copy wherever they lie densely in memory."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):  # for example channels_last
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1)


def sum_sq(tensors: Tensors) -> float:
    """Σ‖a‖² over all tensors."""
    total = native.run(native.Pass.SQUARES, tensors)
    return checked(_sum_sq(tensors) if total is None else total, tensors)


def checked(total: float, tensors: Tensors) -> float:
    """Σ‖a‖² as it was found; if that is not finite, once more in float64, for float32 squares overflow too early."""
    if math.isfinite(total):
        return total
    norms = [torch.linalg.vector_norm(a, dtype=torch.float64).item() for a in tensors]
    return float(sum(norm * norm for norm in norms))


def _sum_sq(tensors: Tensors) -> float:
    small = [a for a in tensors if a.numel() <= _SMALL]
    vectors = [_gather(small)] if small else []
    if len(small) < len(tensors):
        vectors += [flat(a) for a in tensors if a.numel() > _SMALL]
    total = 0.0
    rows = []
    with np.errstate(over="ignore", invalid="ignore"):
        for vector in vectors:
            if vector.dtype not in WIDE:  # NumPy has no bfloat16
                total += _narrow_sum_sq(vector)
                continue
            elements = vector.detach().numpy()
            size = elements.size - elements.size % _ROW
            last = elements[size:]
            total += float(np.dot(last, last))
            rows.append(elements[:size].reshape(-1, _ROW))
    return total + _sum_sq_of_rows(rows)


def _sum_sq_of_rows(arrays: list[Array]) -> float:
    """Σ of squares, on as many threads as torch has; NumPy lets the others run meanwhile."""
    threads = torch.get_num_threads() if sum(map(len, arrays)) >= _MANY else 1
    sums = [np.empty(len(rows), rows.dtype) for rows in arrays]

    def squares(thread: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, out in zip(arrays, sums, strict=True):
                part = slice(thread * len(rows) // threads, (thread + 1) * len(rows) // threads)
                np.einsum("ij,ij->i", rows[part], rows[part], out=out[part])

    together(squares, threads)
    return sum(float(row_sums.sum(dtype=np.float64)) for row_sums in sums)


def _narrow_sum_sq(vector: Tensor) -> float:
    """‖a‖² of a vector of low precision, in float32 a row."""
    size = vector.numel() - vector.numel() % _ROW
    last = vector[size:].float()
    norms = torch.linalg.vector_norm(vector[:size].view(-1, _ROW), dim=1, dtype=torch.float32).double()
    return torch.dot(last, last).item() + float(np.square(norms.numpy()).sum())


def inner(left: Tensors, right: Tensors) -> float:
    """Σ⟨a, b⟩ over all pairs of tensors."""
    total = 0.0
    small: tuple[list[Tensor], list[Tensor]] = ([], [])
    for a, b in zip(left, right, strict=True):
        if a.numel() <= _SMALL:
            small[0].append(a)
            small[1].append(b)
        else:
            total += dot(a, b)
    if small[0]:
        total += dot(_gather(small[0]), _gather(small[1]))
    return total


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩ by BLAS, whose blocked sums are accurate in float32 too."""
    left, right = (flat(a), flat(b)) if a.stride() == b.stride() else (a.reshape(-1), b.reshape(-1))
    is_wide = left.dtype in WIDE and left.dtype is right.dtype
    if is_wide and left.numel() <= _BLOCK:
        return torch.dot(left, right).item()
    block = _BLOCK if is_wide else _NARROW_BLOCK
    blocks = zip(torch.split(left, block), torch.split(right, block), strict=True)
    return sum((torch.dot(x, y) if is_wide else torch.dot(x.float(), y.float())).item() for x, y in blocks)


def _gather(tensors: list[Tensor]) -> Tensor:
    """All elements as one new vector."""
    vector: Tensor = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
    return vector
