"""Geometries: how long a step is, and in which direction it is steepest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from surefoot.optim._momentum import Now
from surefoot.optim._tensors import Tensors, blocks, inner, is_fusable, lerp_, times, total


class Geometry(ABC):
    """A norm for the parameters, as the direction of steepest descent and the squared dual norm of a gradient.

    The step of a group is x − t·α·direction, and q = Σ α⟨g, direction⟩. A geometry of your own defines the direction,
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

    def observe(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> None:  # noqa: B027
        """Update the buffers in place with the gradient of step number ``count`` (from 1)."""

    @abstractmethod
    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> Tensor:
        """‖g‖_* times the steepest unit direction."""

    def split(self, parameters: list[Tensor], group: Mapping[str, Any]) -> list[tuple[Geometry, list[Tensor]]]:
        """The parameters of a group by their geometry: all of them have this one, unless it is different for some."""
        return [(self, parameters)]


@dataclass(frozen=True)
class Euclidean(Geometry):
    """The Euclidean norm: the direction is the gradient."""

    separable: ClassVar[bool] = True

    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> Tensor:
        return gradient


@dataclass(frozen=True)
class Diagonal(Geometry):
    """Adam's metric: ‖x‖² = Σ Dx² with D = √(v/(1 − β₂^k)) + ε, where v averages the squared gradients.

    The metric changes from step to step, so δ is a diagnostic here: no bound is known.
    """

    beta: float = 0.999
    eps: float = 1e-8
    buffer_names: ClassVar[tuple[str, ...]] = ("second_moment",)
    separable: ClassVar[bool] = True

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
        return self._over_metric([gradient], buffers, count)[0]

    def advance_(
        self, directions: list[Tensor], gradients: Tensors, averages: Tensors, moments: Tensors, now: Now
    ) -> Tensor:
        """Directions d/D at the averages m after this step's gradients g; gives Σ⟨m, d/D⟩.

            m ← m + weight·(g − m),    d = factor·m,    v ← v + (1 − β₂)(g² − v)

        ``averages`` may be the gradients. Where d is Adam's or g, torch's fused kernel does all of it block by block,
        and the slope is taken while a block is in the cache.
        """
        plain, slopes = averages is gradients, []
        if (plain or now.is_adams) and is_fusable(gradients, averages) and is_fusable(averages, moments):
            device = gradients[0].device
            step, found = now.step.to(device, torch.float32), now.skip.to(device, torch.float32)
            options: dict[str, Any] = {"beta1": 0.0 if plain else now.beta, "beta2": self.beta, "eps": self.eps}
            # In the place of parameters, at a rate of -1 and with a decay of -1, which forgets the last directions,
            # Adam's step leaves the directions.
            options |= {"weight_decay": -1.0, "amsgrad": False, "maximize": False, "found_inf": found}
            for block in blocks(directions, gradients, averages, moments):
                lists: Any = (*block, [], [step] * len(block[0]))
                torch._fused_adamw_(*lists, lr=-1.0, **options)
                slopes.append(inner(block[2], block[0], now.step))
            return total(slopes, now.step)
        squares = torch._foreach_mul(gradients, gradients)
        lerp_(moments, squares, torch.full_like(now.step, 1.0 - self.beta), now.skip)
        if not plain:
            lerp_(averages, gradients, now.weight, now.skip)
        directions[:] = times(self._over_metric(averages, moments, now.step), now.factor)
        return inner(averages, directions, now.step)

    def _over_metric(self, tensors: Tensors, moments: Sequence[Tensor], count: Tensor) -> list[Tensor]:
        """The tensors over D."""
        metrics = times(moments, 1.0 / (1.0 - self.beta**count))
        torch._foreach_sqrt_(metrics)
        torch._foreach_add_(metrics, self.eps)
        return list(torch._foreach_div(list(tensors), metrics))
