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

from surefoot.optim import _sums, native
from surefoot.optim._sums import WIDE, Tensors
from surefoot.optim.native import Pass

Scalar = Any
"""A Python float (or bool), or a 0-d tensor where values must stay on their device."""

LARGE = 1 << 18
"""From this many elements on, an operation on one tensor costs far more than its call."""


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
    def read(self, vector: Any) -> list[Scalar]:
        """The elements of a vector as scalars: of a NumPy array where scalars can be read, of a tensor elsewhere."""

    @abstractmethod
    def write(self, vector: Any, values: list[Scalar]) -> None:
        """Fill such a vector in place with scalars."""

    @abstractmethod
    def isfinite(self, value: Scalar) -> Scalar:
        """Whether a scalar is finite."""

    @abstractmethod
    def either(self, condition: Scalar, yes: float, no: float) -> Scalar:
        """One of two numbers."""

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

    def lerp_and_add_(self, average: Tensors, new: Tensors, weight: Scalar, tensors: Tensors, scale: Scalar) -> None:
        """Move the average, then tensors += scale·average."""
        self.lerp_(average, new, weight)
        self.add_(tensors, average, scale)

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

    def __init__(self, foreach: bool, large: bool = True) -> None:
        super().__init__(foreach)
        self.large = foreach and large
        """Whether native passes that only move tensors are worth the look at every tensor before."""

    def scalar(self, value: Tensor | float) -> float:
        return float(value)

    def rate(self, value: Tensor | float) -> float:
        return float(value)

    def read(self, vector: Any) -> list[float]:
        values: list[float] = vector.tolist()
        return values

    def write(self, vector: Any, values: list[Scalar]) -> None:
        vector[:] = values

    def isfinite(self, value: Scalar) -> bool:
        return math.isfinite(value)

    def either(self, condition: Scalar, yes: float, no: float) -> float:
        return yes if condition else no

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
        return _sums.sum_sq(tensors)

    def inner(self, left: Tensors, right: Tensors) -> float:
        return _sums.inner(left, right)

    def total(self, values: Tensors) -> float:
        return sum(value.item() for value in values)

    def lerp_(self, average: Tensors, new: Tensors, weight: float) -> None:
        if self.foreach:
            torch._foreach_lerp_(average, new, weight)
            return
        for a, b in zip(average, new, strict=True):
            a.lerp_(b, weight)

    def lerp_and_sum_sq(self, average: Tensors, new: Tensors, weight: float) -> float:
        """In one pass, where the native one serves."""
        found = native.run(Pass.LERP_SQUARES, average, new, numbers=(weight,)) if self.foreach else None
        return float(super().lerp_and_sum_sq(average, new, weight)) if found is None else _sums.checked(found, average)

    def lerp_and_add_(self, average: Tensors, new: Tensors, weight: float, tensors: Tensors, scale: float) -> None:
        """In one pass: the native one, or torch's kernel for SGD with momentum, where they serve the tensors."""
        numbers = (weight, scale)
        if self.large and native.run(Pass.LERP_ADD, average, new, tensors, numbers=numbers) is not None:
            return
        if not self.foreach or not _alike(average, new, tensors):
            super().lerp_and_add_(average, new, weight, tensors, scale)
            return
        # The kernel takes a momentum of 0 for none, and leaves the average as it is: a first step makes it the new one.
        past = 1.0 - weight
        _fused_sgd(tensors, new, average, -scale, momentum=past or 0.5, dampening=past, is_first_step=not past)

    def lerp_squares_(self, average: Tensors, new: Tensors, weight: float) -> None:
        if self.foreach:
            torch._foreach_mul_(average, 1.0 - weight)
            torch._foreach_addcmul_(average, new, new, value=weight)
            return
        for a, b in zip(average, new, strict=True):
            a.mul_(1.0 - weight).addcmul_(b, b, value=weight)

    def add_(self, tensors: Tensors, directions: Tensors, scale: float) -> None:
        if self.large and native.run(Pass.ADD, tensors, directions, numbers=(scale,)) is not None:
            return
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

    def read(self, vector: Any) -> list[Scalar]:
        return list(vector.unbind())

    def write(self, vector: Any, values: list[Scalar]) -> None:
        torch._foreach_copy_(vector.unbind(), [self.scalar(value) for value in values])

    def isfinite(self, value: Scalar) -> Tensor:
        return torch.isfinite(value)

    def either(self, condition: Scalar, yes: float, no: float) -> Tensor:
        return torch.where(condition, yes, no).to(self.dtype)

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
        if self.foreach and all(a.dtype in WIDE for a in tensors):
            norms = list(torch._foreach_norm(tensors))
        else:
            norms = [torch.linalg.vector_norm(a, dtype=None if a.dtype in WIDE else torch.float32) for a in tensors]
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
            wide = dtype if dtype in WIDE else torch.float32
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


def _alike(*lists: Tensors) -> bool:
    """Whether all tensors are contiguous and of one dtype, float32 or float64, as torch's fused kernels want them."""
    dtype = lists[0][0].dtype
    return dtype in WIDE and all(a.dtype is dtype and a.is_contiguous() for tensors in lists for a in tensors)


def _fused_sgd(
    tensors: Tensors,
    directions: Tensors,
    average: Tensors,
    lr: float,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    is_first_step: bool = False,
) -> None:
    """Average ← momentum·average + (1 − dampening)·directions, and tensors −= lr·average, or lr·directions."""
    torch._fused_sgd_(
        tensors,
        directions,
        average,
        lr=lr,
        momentum=momentum,
        dampening=dampening,
        is_first_step=is_first_step,
        weight_decay=0.0,
        nesterov=False,
        maximize=False,
    )


def _widened(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in WIDE else tensor.to(torch.float32)
