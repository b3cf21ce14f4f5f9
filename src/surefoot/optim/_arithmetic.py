"""Arithmetic on lists of tensors, in two kinds that the optimizer's one algorithm runs on.

:class:`Host` serves CPU tensors: scalars are Python floats, because reading a CPU scalar is free and float arithmetic
is faster than that of 0-d tensors. :class:`Device` serves everything else, and traced code: scalars are 0-d tensors
that are never read, and a step that must not happen is suppressed by its mask ``taken``.

Both have the same methods. With ``foreach=False`` a list is worked through one tensor after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from surefoot.optim import _sums, native
from surefoot.optim._sums import WIDE, Tensors, wide
from surefoot.optim.native import Pass
from surefoot.theory.arrays import FLOATS, namespace

Scalar = Any
"""A Python float (or bool), or a 0-d tensor where values must stay on their device."""

LARGE = 1 << 18
"""From this many elements on, an operation on one tensor costs far more than its call."""
_PIECE = 1 << 18
"""Elements of a piece: four arrays of it stay in the cache, also where it is shared."""


def scalar_dtype(device: torch.device) -> torch.dtype:
    """The dtype of scalars that live on a device."""
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64


class Host:
    """CPU tensors, with Python floats as scalars: a step that must not happen ends before it has changed anything."""

    reads = True
    """Whether scalars can be read without waiting; where they can, torch's fused CPU kernels serve, too."""
    xp = FLOATS
    """The functions of scalars: floats here, arrays on devices."""
    one = 1.0
    """The number 1, as a scalar of this kind."""

    def __init__(self, foreach: bool, large: bool = True) -> None:
        self.foreach = foreach
        self.large = foreach and large
        """Whether native passes that only move tensors are worth the look at every tensor before."""

    def scalar(self, value: Tensor | float) -> float:
        """A number, or a tensor of one element, as a scalar of this kind."""
        return float(value)

    def rate(self, value: Tensor | float) -> float:
        """A learning rate as a scalar; what is given as a number stays one on devices, too."""
        return float(value)

    def read(self, vector: Any) -> list[float]:
        """The elements of a vector as scalars: of a NumPy array here, of a tensor on devices."""
        values: list[float] = vector.tolist()
        return values

    def write(self, vector: Any, values: list[Scalar]) -> None:
        """Fill such a vector in place with scalars."""
        vector[:] = values

    def choose(self, new: Scalar, old: Scalar) -> Scalar:
        """The new scalar, or the old one if the step was masked."""
        return new

    def masked(self, old: dict[str, Scalar], new: dict[str, Scalar]) -> dict[str, Scalar]:
        """The old scalars with the new ones in their place, unless the step was masked."""
        return old | new

    def decide(self, finite: Scalar, violated: Scalar) -> bool:
        """Whether the code goes on; on a device it always does, and a step that must not happen is masked."""
        return bool(finite and not violated)

    def usable(self, gradients: Tensors) -> Tensors:
        """The gradients as they may be used from here on."""
        return gradients

    def sum_sq(self, tensors: Tensors) -> Scalar:
        """Σ‖a‖², in float32 or better inside a tensor and in float64 across them."""
        return _sums.sum_sq(tensors)

    def inner(self, left: Tensors, right: Tensors) -> Scalar:
        """Σ⟨a, b⟩."""
        return _sums.inner(left, right)

    def pieces(self, *lists: Tensors) -> Iterator[list[Tensors]]:
        """The lists in parts for which what is computed stays in the cache: large tensors cut, all others together.

        Tensors at the same place in the lists must be of the same shape; where their elements lie in the same order in
        memory, a part may be written to.
        """
        small: list[tuple[Tensor, ...]] = []
        for tensors in zip(*lists, strict=True):
            if tensors[0].numel() <= _PIECE // 4:
                small.append(tensors)
                continue
            alike = len({a.stride() for a in tensors}) == 1
            vectors = [_sums.flat(a) if alike else a.reshape(-1) for a in tensors]
            for part in zip(*(torch.split(a, _PIECE) for a in vectors), strict=True):
                yield [[a] for a in part]
        if small:
            yield [list(column) for column in zip(*small, strict=True)]

    def total(self, values: Tensors) -> Scalar:
        """The sum of 0-d tensors."""
        return sum(value.item() for value in values)

    def lerp_(self, average: Tensors, new: Tensors, weight: Scalar) -> None:
        """Average += weight·(new − average)."""
        for a, b in _lists(self.foreach, average, new):
            torch._foreach_lerp_(a, b, weight)

    def lerp_squares_(self, average: Tensors, new: Tensors, weight: Scalar) -> None:
        """Average += weight·(new² − average)."""
        for a, b in _lists(self.foreach, average, new):
            torch._foreach_mul_(a, 1.0 - weight)
            torch._foreach_addcmul_(a, b, b, value=weight)

    def lerp_and_sum_sq(self, average: Tensors, new: Tensors, weight: Scalar) -> Scalar:
        """Move the average, and return its Σ‖·‖² afterwards: in one pass, where the native one serves."""
        total = native.run(Pass.LERP_SQUARES, average, new, numbers=(weight,)) if self.foreach else None
        if total is not None:
            return _sums.checked(total, average)
        self.lerp_(average, new, weight)
        return self.sum_sq(average)

    def lerp_and_add_(self, average: Tensors, new: Tensors, weight: Scalar, tensors: Tensors, scale: Scalar) -> None:
        """Move the average, then tensors += scale·average.

        In one pass: the native one, or torch's kernel for SGD with momentum, where they serve the tensors.
        """
        numbers = (weight, scale)
        if self.large and native.run(Pass.LERP_ADD, average, new, tensors, numbers=numbers) is not None:
            return
        if not self.foreach or not _alike(average, new, tensors):
            self.lerp_(average, new, weight)
            self.add_(tensors, average, scale)
            return
        # The kernel takes a momentum of 0 for none, and leaves the average as it is: a first step makes it the new one.
        past = 1.0 - weight
        kernel: dict[str, Any] = {"momentum": past or 0.5, "dampening": past, "is_first_step": not past}
        torch._fused_sgd_(tensors, new, average, lr=-scale, weight_decay=0.0, nesterov=False, maximize=False, **kernel)

    def add_(self, tensors: Tensors, directions: Tensors, scale: Scalar) -> None:
        """Tensors += scale·directions."""
        if self.large and native.run(Pass.ADD, tensors, directions, numbers=(scale,)) is not None:
            return
        for a, b in _lists(self.foreach, tensors, directions):
            torch._foreach_add_(a, b, alpha=scale)

    def mul_(self, tensors: Tensors, factor: Scalar) -> None:
        """Tensors *= factor."""
        for (a,) in _lists(self.foreach, tensors):
            torch._foreach_mul_(a, factor)

    def save(self, tensors: Tensors) -> Tensors:
        """A copy for :meth:`restore`, where that does something."""
        return []

    def restore(self, tensors: Tensors, saved: Tensors) -> None:
        """Put back what a masked step has changed."""


class Device:
    """Tensors whose values must not be read: scalars are 0-d tensors, and ``taken`` masks a step that must not be."""

    reads = False

    def __init__(self, foreach: bool, device: torch.device, dtype: torch.dtype) -> None:
        self.foreach, self.device, self.dtype = foreach, device, dtype
        self.one = torch.ones((), dtype=dtype, device=device)
        self.xp = namespace(self.one)
        self.taken: Tensor = torch.ones((), dtype=torch.bool, device=device)

    def scalar(self, value: Tensor | float) -> Tensor:
        """A 0-d tensor; a number becomes one by a fill, which needs no copy from the host."""
        if isinstance(value, Tensor):
            return value.detach().reshape(()).to(self.device, self.dtype, non_blocking=True)
        return torch.full((), value, dtype=self.dtype, device=self.device)

    def rate(self, value: Tensor | float) -> Scalar:
        return self.scalar(value) if isinstance(value, Tensor) else value

    def read(self, vector: Any) -> list[Scalar]:
        return list(vector.unbind())

    def write(self, vector: Any, values: list[Scalar]) -> None:
        torch._foreach_copy_(vector.unbind(), [self.scalar(value) for value in values])

    def choose(self, new: Scalar, old: Scalar) -> Tensor:
        return torch.where(self.taken, new, old)

    def masked(self, old: dict[str, Scalar], new: dict[str, Scalar]) -> dict[str, Scalar]:
        return {name: self.choose(new[name], value) if name in new else value for name, value in old.items()}

    def decide(self, finite: Scalar, violated: Scalar) -> bool:
        """Set the mask; the code goes on in any case."""
        self.taken = torch.logical_and(finite, torch.logical_not(violated))
        return True

    def usable(self, gradients: Tensors) -> Tensors:
        """The gradients, or zeros if the step is not taken (0·NaN would be NaN)."""
        return [torch.where(self.taken.to(a.device), a, 0.0) for a in gradients]

    def sum_sq(self, tensors: Tensors) -> Scalar:
        """Σ‖a‖²: norms in float32 or better, their squares in the scalars' dtype, where they cannot overflow."""
        if self.foreach and all(a.dtype in WIDE for a in tensors):
            norms = list(torch._foreach_norm(tensors))
        else:
            norms = [torch.linalg.vector_norm(a, dtype=None if a.dtype in WIDE else torch.float32) for a in tensors]
        return torch.stack([norm.to(self.device, self.dtype) for norm in norms]).square().sum()

    def inner(self, left: Tensors, right: Tensors) -> Scalar:
        pairs = zip(left, right, strict=True)
        return self.total([torch.sum(a.to(wide(a.dtype)) * b.to(wide(b.dtype))) for a, b in pairs])

    def pieces(self, *lists: Tensors) -> Iterator[list[Tensors]]:
        """The lists as they are: every part would be another call."""
        yield list(lists)

    def total(self, values: Tensors) -> Scalar:
        return torch.stack([value.to(self.device, self.dtype) for value in values]).sum()

    def lerp_(self, average: Tensors, new: Tensors, weight: Scalar) -> None:
        weight = self._masked(weight, 0.0)
        self._combine_(average, 1.0 - weight, new, weight)

    def lerp_squares_(self, average: Tensors, new: Tensors, weight: Scalar) -> None:
        self.lerp_(average, torch._foreach_mul(new, new), weight)

    def lerp_and_sum_sq(self, average: Tensors, new: Tensors, weight: Scalar) -> Scalar:
        self.lerp_(average, new, weight)
        return self.sum_sq(average)

    def lerp_and_add_(self, average: Tensors, new: Tensors, weight: Scalar, tensors: Tensors, scale: Scalar) -> None:
        self.lerp_(average, new, weight)
        self.add_(tensors, average, scale)

    def add_(self, tensors: Tensors, directions: Tensors, scale: Scalar) -> None:
        self._combine_(tensors, None, directions, self._masked(scale, 0.0))

    def mul_(self, tensors: Tensors, factor: Scalar) -> None:
        self._combine_(tensors, self._masked(factor, 1.0))

    def save(self, tensors: Tensors) -> Tensors:
        return [a.clone() for a in tensors]

    def restore(self, tensors: Tensors, saved: Tensors) -> None:
        for a, old in zip(tensors, saved, strict=True):
            a.copy_(torch.where(self.taken.to(a.device), a, old))

    def _masked(self, value: Scalar, otherwise: float) -> Tensor:
        """The value if the step is taken."""
        return torch.where(self.taken, self.scalar(value), otherwise)

    def _combine_(self, left: Tensors, factor: Tensor | None, right: Tensors = (), scale: Tensor | None = None) -> None:
        """left = factor·left + scale·right; parameters may live on several devices, scalars come to them."""
        alike: dict[Any, list[int]] = {}
        for i, a in enumerate(left):
            alike.setdefault((a.device, a.dtype) if self.foreach else i, []).append(i)
        for places in alike.values():
            targets = [left[i] for i in places]
            device, dtype = targets[0].device, wide(targets[0].dtype)
            if factor is not None:
                torch._foreach_mul_(targets, factor.to(device, dtype))
            if scale is not None:
                moves = torch._foreach_mul([right[i] for i in places], scale.to(device, dtype))
                torch._foreach_add_(targets, moves)


Arithmetic: TypeAlias = Host | Device
"""What the algorithm needs of lists of tensors; scalars go in and out."""


def _lists(foreach: bool, *lists: Tensors) -> list[tuple[Tensors, ...]]:
    """The lists as they are, or cut into lists of one tensor."""
    return [lists] if foreach else [tuple([a] for a in tensors) for tensors in zip(*lists, strict=True)]


def _alike(*lists: Tensors) -> bool:
    """Whether all tensors are contiguous and of one dtype, float32 or float64, as torch's fused kernels want them."""
    dtype = lists[0][0].dtype
    return dtype in WIDE and all(a.dtype is dtype and a.is_contiguous() for tensors in lists for a in tensors)
