"""Arithmetic on lists of tensors, in two kinds that the optimizer's one algorithm runs on.

:class:`Host` serves CPU tensors: scalars are Python floats, because reading a CPU scalar is free and float arithmetic
is faster than that of 0-d tensors. :class:`Device` serves everything else, and traced code: scalars are 0-d tensors
that are never read, and a step that must not happen is suppressed by its mask ``taken``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

Scalar = Any
"""A Python float (or bool), or a 0-d tensor where values must stay on their device."""
Tensors = list[Tensor] | tuple[Tensor, ...]

_SMALL = 1 << 14
"""Tensors of up to this many elements are gathered into one vector for a norm, larger ones go to BLAS one by one."""
_LARGE = 1 << 18
"""From this many elements on, an operation on one tensor costs far more than its call."""
_BLOCK = 1 << 18
"""BLAS sums at most this many elements in float32, with an error of 1e-6 even in a single thread; the rest is summed in
float64. In one go, 2 million of them would be off by 2e-5, and 40 million by 2e-4."""
_NARROW_BLOCK = 1 << 16
"""The same for low-precision tensors, which are widened first and should stay in the cache."""
_WIDE = (torch.float32, torch.float64)


def flat(tensor: Tensor) -> Tensor:
    """All elements as a vector, without a copy wherever they lie densely in memory."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):  # for example channels_last
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1)


class Arithmetic(ABC):
    """What the algorithm needs of lists of tensors; scalars go in and out."""

    one: Scalar
    """The number 1, as a scalar of this kind."""
    fuses: ClassVar[bool] = False
    """Whether torch's fused CPU kernels serve these tensors."""
    reads: ClassVar[bool] = False
    """Whether scalars can be read without waiting."""

    def __init__(self, foreach: bool) -> None:
        self.foreach = foreach

    @abstractmethod
    def scalar(self, value: Tensor | float) -> Scalar:
        """A number, or a tensor of one element, as a scalar of this kind."""

    def rate(self, value: Tensor | float) -> Scalar:
        """A learning rate: numbers stay numbers."""
        return self.scalar(value) if isinstance(value, Tensor) else value

    @abstractmethod
    def read(self, vector: Tensor) -> list[Scalar]:
        """The elements of a vector as scalars."""

    @abstractmethod
    def write(self, vector: Tensor, values: list[Scalar]) -> None:
        """Fill a vector in place with scalars."""

    @abstractmethod
    def isfinite(self, value: Scalar) -> Scalar:
        """Whether a scalar is finite."""

    @abstractmethod
    def either(self, condition: Scalar, yes: float, no: float) -> Scalar:
        """One of two numbers."""

    @abstractmethod
    def least(self, one: Scalar, other: Scalar) -> Scalar:
        """The smaller one of two scalars."""

    @abstractmethod
    def most(self, one: Scalar, other: Scalar) -> Scalar:
        """The larger one of two scalars."""

    @abstractmethod
    def ratio(self, part: Scalar, total: Scalar) -> Scalar:
        """part/total, or 0 where the total is 0."""

    @abstractmethod
    def choose(self, new: Scalar, old: Scalar) -> Scalar:
        """The new scalar, or the old one if the step was masked."""

    @abstractmethod
    def decide(self, finite: Scalar, violated: Scalar) -> bool:
        """Whether the code goes on; a step that must not happen may be masked instead."""

    @abstractmethod
    def usable(self, gradients: Tensors) -> Tensors:
        """The gradients as they may be used from here on."""

    @abstractmethod
    def sum_sq(self, tensors: Tensors) -> Scalar:
        """Σ‖a‖², in float32 or better inside a tensor and in float64 across them."""

    @abstractmethod
    def inner(self, left: Tensors, right: Tensors) -> Scalar:
        """Σ⟨a, b⟩."""

    @abstractmethod
    def total(self, values: Tensors) -> Scalar:
        """The sum of 0-d tensors."""

    @abstractmethod
    def lerp_(self, average: Tensors, new: Tensors, weight: Scalar) -> None:
        """Average += weight·(new − average)."""

    @abstractmethod
    def lerp_squares_(self, average: Tensors, new: Tensors, weight: Scalar) -> None:
        """Average += weight·(new² − average)."""

    def lerp_and_sum_sq(self, average: Tensors, new: Tensors, weight: Scalar) -> Scalar:
        """Move the average, and return its Σ‖·‖² afterwards."""
        self.lerp_(average, new, weight)
        return self.sum_sq(average)

    def copy_(self, tensors: Tensors, new: Tensors) -> None:
        """Tensors ← new."""
        torch._foreach_copy_(tensors, new)

    @abstractmethod
    def add_(self, tensors: Tensors, directions: Tensors, scale: Scalar) -> None:
        """Tensors += scale·directions."""

    @abstractmethod
    def mul_(self, tensors: Tensors, factor: Scalar) -> None:
        """Tensors *= factor."""

    def save(self, tensors: Tensors) -> Tensors:
        """A copy for :meth:`restore`, where that does something."""
        return []

    def restore(self, tensors: Tensors, saved: Tensors) -> None:  # noqa: B027
        """Put back what a masked step has changed."""


class Host(Arithmetic):
    """CPU tensors, with Python floats as scalars: a step that must not happen ends before it has changed anything."""

    one = 1.0
    fuses = True
    reads = True

    def scalar(self, value: Tensor | float) -> float:
        return float(value)

    def rate(self, value: Tensor | float) -> float:
        return float(value)

    def read(self, vector: Tensor) -> list[float]:
        values: list[float] = vector.tolist()
        return values

    def write(self, vector: Tensor, values: list[Scalar]) -> None:
        vector.numpy()[:] = values  # shares the memory, and is faster than a tensor on the way

    def isfinite(self, value: Scalar) -> bool:
        return math.isfinite(value)

    def either(self, condition: Scalar, yes: float, no: float) -> float:
        return yes if condition else no

    def least(self, one: float, other: float) -> float:
        return min(one, other)

    def most(self, one: float, other: float) -> float:
        return max(one, other)

    def ratio(self, part: float, total: float) -> float:
        return part / total if total else 0.0

    def choose(self, new: Scalar, old: Scalar) -> Scalar:
        return new

    def decide(self, finite: Scalar, violated: Scalar) -> bool:
        return bool(finite and not violated)

    def usable(self, gradients: Tensors) -> Tensors:
        return gradients

    def sum_sq(self, tensors: Tensors) -> float:
        # Not _foreach_norm: it is slower here, and its plain float32 sum is off by 1e-3 at 40 million elements.
        total = 0.0
        small = []
        for a in tensors:
            if self.foreach and a.numel() <= _SMALL:
                small.append(a)
            else:
                total += _dot(a, a)
        if small:
            gathered = _gather(small)
            total += _dot(gathered, gathered)
        if math.isfinite(total):
            return total
        # An overflow of the float32 squares is not a gradient that is not finite: look again before giving up.
        norms = [torch.linalg.vector_norm(a, dtype=torch.float64).item() for a in tensors]
        return float(sum(norm * norm for norm in norms))

    def inner(self, left: Tensors, right: Tensors) -> float:
        total = 0.0
        small: tuple[list[Tensor], list[Tensor]] = ([], [])
        for a, b in zip(left, right, strict=True):
            if self.foreach and a.numel() <= _SMALL:
                small[0].append(a)
                small[1].append(b)
            else:
                total += _dot(a, b)
        if small[0]:
            total += _dot(_gather(small[0]), _gather(small[1]))
        return total

    def total(self, values: Tensors) -> float:
        return sum(value.item() for value in values)

    def lerp_(self, average: Tensors, new: Tensors, weight: float) -> None:
        if self.foreach:
            torch._foreach_lerp_(average, new, weight)
            return
        for a, b in zip(average, new, strict=True):
            a.lerp_(b, weight)

    def lerp_and_sum_sq(self, average: Tensors, new: Tensors, weight: float) -> float:
        """Large tensors are summed while they are still in the cache."""
        large = [i for i, a in enumerate(average) if a.numel() > _LARGE] if self.foreach else []
        if not large:
            return float(super().lerp_and_sum_sq(average, new, weight))
        total = 0.0
        for i in large:
            total += _dot(average[i].lerp_(new[i], weight), average[i])
        rest = [i for i, a in enumerate(average) if a.numel() <= _LARGE]
        if rest:
            total += super().lerp_and_sum_sq([average[i] for i in rest], [new[i] for i in rest], weight)
        return total if math.isfinite(total) else self.sum_sq(average)

    def lerp_squares_(self, average: Tensors, new: Tensors, weight: float) -> None:
        if self.foreach:
            torch._foreach_mul_(average, 1.0 - weight)
            torch._foreach_addcmul_(average, new, new, value=weight)
            return
        for a, b in zip(average, new, strict=True):
            a.mul_(1.0 - weight).addcmul_(b, b, value=weight)

    def add_(self, tensors: Tensors, directions: Tensors, scale: float) -> None:
        if self.foreach:
            torch._foreach_add_(tensors, directions, alpha=scale)
            return
        for a, b in zip(tensors, directions, strict=True):
            a.add_(b, alpha=scale)

    def mul_(self, tensors: Tensors, factor: float) -> None:
        if self.foreach:
            torch._foreach_mul_(tensors, factor)
            return
        for a in tensors:
            a.mul_(factor)


class Device(Arithmetic):
    """Tensors whose values must not be read: scalars are 0-d tensors, and ``taken`` masks a step that must not be."""

    def __init__(self, foreach: bool, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(foreach)
        self.device = device
        self.dtype = dtype
        self.one = torch.ones((), dtype=dtype, device=device)
        self.taken: Tensor = torch.ones((), dtype=torch.bool, device=device)

    def scalar(self, value: Tensor | float) -> Tensor:
        """A 0-d tensor; a number becomes one by a fill, which needs no copy from the host."""
        if isinstance(value, Tensor):
            return value.detach().reshape(()).to(self.device, self.dtype, non_blocking=True)
        return torch.full((), value, dtype=self.dtype, device=self.device)

    def read(self, vector: Tensor) -> list[Scalar]:
        return list(vector.unbind())

    def write(self, vector: Tensor, values: list[Scalar]) -> None:
        torch._foreach_copy_(vector.unbind(), [self.scalar(value) for value in values])

    def isfinite(self, value: Scalar) -> Tensor:
        return torch.isfinite(value)

    def either(self, condition: Scalar, yes: float, no: float) -> Tensor:
        return torch.where(condition, yes, no).to(self.dtype)

    def least(self, one: Scalar, other: Scalar) -> Tensor:
        return torch.minimum(one + 0.0 * self.one, other + 0.0 * self.one)

    def most(self, one: Scalar, other: Scalar) -> Tensor:
        return torch.maximum(one + 0.0 * self.one, other + 0.0 * self.one)

    def ratio(self, part: Scalar, total: Scalar) -> Tensor:
        return torch.where(total > 0, part / total, 0.0)

    def decide(self, finite: Scalar, violated: Scalar) -> bool:
        """Set the mask; the code goes on in any case."""
        self.taken = torch.logical_and(finite, torch.logical_not(violated))
        return True

    def sum_sq(self, tensors: Tensors) -> Tensor:
        """Σ‖a‖²: norms in float32 or better, their squares in the scalars' dtype, where they cannot overflow."""
        if self.foreach and all(a.dtype in _WIDE for a in tensors):
            norms = list(torch._foreach_norm(tensors))
        else:
            norms = [torch.linalg.vector_norm(a, dtype=None if a.dtype in _WIDE else torch.float32) for a in tensors]
        return torch.stack([norm.to(self.device, self.dtype) for norm in norms]).square().sum()

    def inner(self, left: Tensors, right: Tensors) -> Tensor:
        return self.total([torch.sum(_widened(a) * _widened(b)) for a, b in zip(left, right, strict=True)])

    def total(self, values: Tensors) -> Tensor:
        return torch.stack([value.to(self.device, self.dtype) for value in values]).sum()

    def usable(self, gradients: Tensors) -> Tensors:
        """The gradients, or zeros if the step is not taken (0·NaN would be NaN)."""
        return [torch.where(self.taken.to(a.device), a, 0.0) for a in gradients]

    def lerp_(self, average: Tensors, new: Tensors, weight: Scalar) -> None:
        weight = self._masked(weight, 0.0)
        self._combine_(average, 1.0 - weight, new, weight)

    def lerp_squares_(self, average: Tensors, new: Tensors, weight: Scalar) -> None:
        weight = self._masked(weight, 0.0)
        squares = torch._foreach_mul(new, new) if self.foreach else [a * a for a in new]
        self._combine_(average, 1.0 - weight, squares, weight)

    def add_(self, tensors: Tensors, directions: Tensors, scale: Scalar) -> None:
        self._combine_(tensors, None, directions, self._masked(scale, 0.0))

    def mul_(self, tensors: Tensors, factor: Scalar) -> None:
        self._combine_(tensors, self._masked(factor, 1.0))

    def choose(self, new: Scalar, old: Scalar) -> Tensor:
        """The new scalar if the step is taken, else the old one."""
        return torch.where(self.taken, new, old)

    def restore(self, tensors: Tensors, saved: Tensors) -> None:
        for a, old in zip(tensors, saved, strict=True):
            a.copy_(torch.where(self.taken.to(a.device), a, old))

    def save(self, tensors: Tensors) -> Tensors:
        return [a.clone() for a in tensors]

    def _masked(self, value: Scalar, otherwise: float) -> Tensor:
        """The value if the step is taken."""
        return torch.where(self.taken, self.scalar(value), otherwise)

    def _combine_(self, left: Tensors, factor: Tensor | None, right: Tensors = (), scale: Tensor | None = None) -> None:
        """left = factor·left + scale·right; parameters may live on several devices, scalars come to them."""
        for device, dtype in dict.fromkeys((a.device, a.dtype) for a in left):
            here = [i for i, a in enumerate(left) if a.device == device and a.dtype is dtype]
            targets = [left[i] for i in here]
            wide = dtype if dtype in _WIDE else torch.float32
            if factor is not None:
                local = factor.to(device, wide)
                if self.foreach:
                    torch._foreach_mul_(targets, local)
                else:
                    for a in targets:
                        a.mul_(local)
            if scale is not None:
                local = scale.to(device, wide)
                if self.foreach:
                    torch._foreach_add_(targets, torch._foreach_mul([right[i] for i in here], local))
                else:
                    for i, a in zip(here, targets, strict=True):
                        a.add_(right[i] * local)


def _gather(tensors: list[Tensor]) -> Tensor:
    """All elements as one new vector."""
    vector: Tensor = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
    return vector


def _widened(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in _WIDE else tensor.to(torch.float32)


def _dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩ by BLAS, whose blocked sums are accurate in float32 too."""
    if a is b:
        left = right = flat(a)
    elif a.stride() == b.stride():
        left, right = flat(a), flat(b)
    else:
        left, right = a.reshape(-1), b.reshape(-1)
    wide = left.dtype in _WIDE and left.dtype is right.dtype
    if wide and left.numel() <= _BLOCK:
        return torch.dot(left, right).item()
    block = _BLOCK if wide else _NARROW_BLOCK
    blocks = zip(torch.split(left, block), torch.split(right, block), strict=True)
    return sum((torch.dot(x, y) if wide else torch.dot(x.float(), y.float())).item() for x, y in blocks)
