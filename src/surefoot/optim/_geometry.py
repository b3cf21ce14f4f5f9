"""Geometries: how long a step is, and in which direction it is steepest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from surefoot.optim._tensors import Tensors, inner, is_fusable, lerp_, sum_sq, total, wide


class Geometry(ABC):
    """A norm for the parameters, as the direction of steepest descent and the squared dual norm of a gradient.

    The step of a group is x − t·α·direction, and q = Σ α·dual_norm_sq. A geometry of your own defines the direction,
    and buffers for every parameter if it needs some:

    >>> class Sign(Geometry):                       # the maximum norm, tensor by tensor
    ...     def direction(self, gradient, buffers, count):
    ...         return gradient.abs().sum() * gradient.sign()
    """

    buffer_names: ClassVar[tuple[str, ...]] = ()
    """Names of the buffers that the geometry keeps for every parameter; they have its shape and start at zero."""
    separable: ClassVar[bool] = False
    """Whether ‖·‖² is a sum over elements, so that a piece of a tensor has that piece of the direction. If not,
    sharded parameters are gathered, one at a time, and the methods see them whole."""
    holds_half: ClassVar[bool] = True
    """Whether float16 has the range for directions and buffers."""

    def observe(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> None:  # noqa: B027
        """Update the buffers in place with the gradient of step number ``count`` (from 1)."""

    @abstractmethod
    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> Tensor:
        """‖g‖_* times the steepest unit direction."""

    def split(self, parameters: list[Tensor], group: Mapping[str, Any]) -> list[tuple[Geometry, list[Tensor]]]:
        """The parameters of a group by their geometry: all of them have this one, unless it is different for some."""
        return [(self, parameters)]

    def learn(self, gradients: Tensors, buffers: Sequence[Tensors], count: Tensor, skip: Tensor) -> None:
        """:meth:`observe` for a list of parameters, unless the step is skipped."""
        for gradient, *held in zip(gradients, *buffers, strict=True) if buffers else ():
            before = [buffer.clone() for buffer in held]
            self.observe(gradient, held, count)
            for buffer, old in zip(held, before, strict=True):
                buffer.copy_(torch.where(skip.to(buffer.device), old, buffer))

    def measure(
        self, gradients: Tensors, buffers: Sequence[Tensors], count: Tensor, like: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Directions, and the sum of the squared dual norms ⟨g, direction⟩, for a list of parameters.

        Sums are scalars like ``like``.
        """
        held = zip(*buffers, strict=True) if buffers else [()] * len(gradients)
        directions = [self.direction(g, b, count) for g, b in zip(gradients, held, strict=True)]
        norms = [
            torch.sum(g.to(wide(g.dtype)) * u.to(wide(g.dtype))) for g, u in zip(gradients, directions, strict=True)
        ]
        return directions, total(norms, like)


@dataclass(frozen=True)
class Euclidean(Geometry):
    """The Euclidean norm: the direction is the gradient."""

    separable: ClassVar[bool] = True

    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> Tensor:
        return gradient

    def measure(
        self, gradients: Tensors, buffers: Sequence[Tensors], count: Tensor, like: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """The gradients and Σ‖g‖²."""
        return list(gradients), sum_sq(gradients, like)


@dataclass(frozen=True)
class Diagonal(Geometry):
    """Adam's metric: ‖x‖² = Σ Dx² with D = √(v/(1 − β₂^k)) + ε, where v averages the squared gradients.

    The metric changes from step to step, so δ is a diagnostic here: no bound is known.
    """

    beta: float = 0.999
    eps: float = 1e-8
    buffer_names: ClassVar[tuple[str, ...]] = ("second_moment",)
    separable: ClassVar[bool] = True
    holds_half: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.beta, int | float) or not 0 <= self.beta < 1:
            raise ValueError(f"beta of the second moment must be a number in [0, 1), got {self.beta!r}")
        if not isinstance(self.eps, int | float) or not 0 < self.eps < float("inf"):
            raise ValueError(f"eps must be a positive number, got {self.eps!r}")

    def split(self, parameters: list[Tensor], group: Mapping[str, Any]) -> list[tuple[Geometry, list[Tensor]]]:
        """The group's own ``betas`` and ``eps``, if it has some."""
        betas, eps = group.get("betas"), group.get("eps", self.eps)
        if betas is None or (betas[1] == self.beta and eps == self.eps):
            return [(self, parameters)]
        return [(replace(self, beta=betas[1], eps=eps), parameters)]

    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> Tensor:
        """g/D."""
        (second_moment,) = buffers
        metric = second_moment / self._correction(count, second_moment)
        return gradient / metric.sqrt_().add_(self.eps)

    def _correction(self, count: Tensor, like: Tensor) -> Tensor:
        """Adam's correction: what an average of squares that started at zero is divided by."""
        correction: Tensor = 1.0 - self.beta**count
        return correction.to(like.device, wide(like.dtype))

    def learn(self, gradients: Tensors, buffers: Sequence[Tensors], count: Tensor, skip: Tensor) -> None:
        """v ← β₂v + (1 − β₂)g² for a list of parameters."""
        weight = torch.full_like(count, 1.0 - self.beta)
        lerp_(buffers[0], torch._foreach_mul(list(gradients), list(gradients)), weight, skip)

    def measure(
        self, gradients: Tensors, buffers: Sequence[Tensors], count: Tensor, like: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """g/D and Σ g²/D for a list of parameters."""
        (moments,) = buffers
        corrections = {a.device: self._correction(count, a) for a in moments}
        if len(corrections) > 1 or len({a.dtype for a in moments}) > 1:
            directions = [self.direction(g, [v], count) for g, v in zip(gradients, moments, strict=True)]
        else:
            metrics = torch._foreach_div(list(moments), next(iter(corrections.values())))
            torch._foreach_sqrt_(metrics)
            torch._foreach_add_(metrics, self.eps)
            directions = list(torch._foreach_div(list(gradients), metrics))
        return directions, inner(gradients, directions, like)

    def learn_and_measure(
        self, gradients: Tensors, average: Tensors, moments: Tensors, beta: float, count: Tensor, skip: Tensor
    ) -> list[Tensor] | None:
        """Learn, average and find the directions in one pass of torch's fused Adam kernel, where that serves.

            m ← βm + (1 − β)g,    v ← β₂v + (1 − β₂)g²,    directions (m/(1 − β^k))/D

        m starts at zero, so that the corrected average is m/(1 − β^k). None where the kernel does not serve.
        """
        directions = [torch.zeros_like(g) for g in gradients]
        served = all(is_fusable(gradients, others) for others in (average, moments, directions))
        if not served:
            return None
        steps = [count.to(gradients[0].device, torch.float32)] * len(gradients)
        # With zeros in the place of parameters and a rate of -1, torch's kernel leaves the directions there.
        options: dict[str, Any] = {"beta1": beta, "beta2": self.beta, "eps": self.eps, "lr": -1.0, "weight_decay": 0.0}
        lists: Any = (directions, list(gradients), list(average), list(moments), [], steps)
        found = skip.to(gradients[0].device, torch.float32)
        torch._fused_adamw_(*lists, amsgrad=False, maximize=False, found_inf=found, **options)
        return directions
