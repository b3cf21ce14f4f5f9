"""Geometries: how long a step is, and in which direction it is steepest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from surefoot.optim import native
from surefoot.optim._arithmetic import Arithmetic, Scalar
from surefoot.optim._sums import Tensors, wide
from surefoot.optim.native import Pass

Buffers = Sequence[Tensors]
"""One list for every name in ``buffer_names``, each with one tensor a parameter."""


class Geometry(ABC):
    """A norm for the parameters, as the direction of steepest descent and the squared dual norm of a gradient.

    The step of a group is x − t·α·direction, and q = Σ α·dual_norm_sq. A geometry of your own defines the direction:

    >>> class Sign(Geometry):                       # the maximum norm, tensor by tensor
    ...     def direction(self, gradient, buffers, count):
    ...         return gradient.abs().sum() * gradient.sign()
    """

    buffer_names: ClassVar[tuple[str, ...]] = ()
    """Names of the buffers that the geometry keeps for every parameter; they have its shape and start at zero, or as
    :meth:`start` says."""
    costly: ClassVar[bool] = False
    """Whether directions are too expensive to be computed twice."""
    separable: ClassVar[bool] = False
    """Whether ‖·‖² is a sum over elements, so that a piece of a tensor has that piece of the direction. If not,
    sharded parameters are gathered, one at a time, and the methods see them whole."""
    uses_norm: ClassVar[bool] = False
    """Whether :meth:`measure` wants ``grad_sq``: it is then computed where that is cheapest."""
    holds_half: ClassVar[bool] = True
    """Whether float16 has the range for directions and buffers."""
    fusable: ClassVar[bool] = False
    """Whether ``fused=True`` goes with it."""

    def start(self, name: str, gradient: Tensor, count: Scalar) -> Tensor:
        """What a buffer starts with if its parameter's first gradient is this one, after ``count`` steps of others."""
        return torch.zeros_like(gradient)

    def observe(self, gradient: Tensor, buffers: Sequence[Tensor], count: Scalar) -> None:  # noqa: B027
        """Update the buffers in place with the gradient of step number ``count`` (from 1)."""

    @abstractmethod
    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Scalar) -> Tensor:
        """‖g‖_* times the steepest unit direction."""

    def dual_norm_sq(self, gradient: Tensor, direction: Tensor) -> Tensor:
        """‖g‖_*² = ⟨g, direction⟩, a 0-d tensor in float32 or better."""
        return inner(gradient, direction)

    def split(self, parameters: list[Tensor], group: Mapping[str, Any]) -> list[tuple[Geometry, list[Tensor]]]:
        """The parameters of a group by their geometry: all of them have this one, unless it is different for some."""
        return [(self, parameters)]

    def learn(self, ops: Arithmetic, gradients: Tensors, buffers: Buffers, count: Scalar) -> None:
        """:meth:`observe` for a list of parameters."""
        if not buffers:
            return
        for i, gradient in enumerate(gradients):
            tensors = [buffer[i] for buffer in buffers]
            saved = ops.save(tensors)
            self.observe(gradient, tensors, count)
            ops.restore(tensors, saved)

    def measure(
        self, ops: Arithmetic, gradients: Tensors, buffers: Buffers, count: Scalar, grad_sq: Scalar
    ) -> tuple[Tensors, Scalar]:
        """Directions, and the sum of the squared dual norms, for a list of parameters.

        ``grad_sq`` is the sum of their squared Euclidean norms, or None if nobody has computed it yet.
        """
        directions = [self.direction(g, [buffer[i] for buffer in buffers], count) for i, g in enumerate(gradients)]
        norms = [self.dual_norm_sq(g, u) for g, u in zip(gradients, directions, strict=True)]
        return directions, ops.total(norms)

    def measure_norm(
        self, ops: Arithmetic, gradients: Tensors, buffers: Buffers, count: Scalar, grad_sq: Scalar
    ) -> Scalar:
        """The sum of the squared dual norms alone, for gradients whose directions nobody asks for."""
        return self.measure(ops, gradients, buffers, count, grad_sq)[1]

    def measure_averaged(
        self, ops: Arithmetic, average: Tensors, gradients: Tensors, buffers: Buffers, count: Scalar, grad_sq: Scalar
    ) -> tuple[Tensors, Scalar]:
        """Directions of averaged gradients, and the sum of the squared dual norms of the batch's own gradients.

        ``grad_sq`` is the sum of the squared Euclidean norms of the batch's gradients, or None.
        """
        directions = [self.direction(d, [buffer[i] for buffer in buffers], count) for i, d in enumerate(average)]
        return directions, self.measure_norm(ops, gradients, buffers, count, grad_sq)

    def norm_sq(self, parameter: Tensor, buffers: Sequence[Tensor], count: Scalar) -> Tensor:
        """‖x‖² in this geometry: what proximal weight decay shrinks."""
        raise NotImplementedError(f"{type(self).__name__} does not define norm_sq")


def inner(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩, in float32 or better."""
    dtype = wide(a.dtype)
    return torch.sum(a.to(dtype) * b.to(dtype))


@dataclass(frozen=True)
class Euclidean(Geometry):
    """The Euclidean norm: the direction is the gradient."""

    separable: ClassVar[bool] = True
    uses_norm: ClassVar[bool] = True

    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Scalar) -> Tensor:
        return gradient

    def measure(
        self, ops: Arithmetic, gradients: Tensors, buffers: Buffers, count: Scalar, grad_sq: Scalar
    ) -> tuple[Tensors, Scalar]:
        """The gradients and Σ‖g‖²."""
        return gradients, ops.sum_sq(gradients) if grad_sq is None else grad_sq

    def measure_averaged(
        self, ops: Arithmetic, average: Tensors, gradients: Tensors, buffers: Buffers, count: Scalar, grad_sq: Scalar
    ) -> tuple[Tensors, Scalar]:
        """The averages and Σ‖g‖²."""
        return average, self.measure(ops, gradients, buffers, count, grad_sq)[1]

    def norm_sq(self, parameter: Tensor, buffers: Sequence[Tensor], count: Scalar) -> Tensor:
        return inner(parameter, parameter)


@dataclass(frozen=True)
class Diagonal(Geometry):
    """Adam's metric: ‖x‖² = Σ Dx² with D = √(v/(1 − β₂^k)) + ε, where v averages the squared gradients.

    The metric changes from step to step, so δ is a diagnostic here: no bound is known.
    """

    beta: float = 0.999
    eps: float = 1e-8
    buffer_names: ClassVar[tuple[str, ...]] = ("second_moment",)
    separable: ClassVar[bool] = True
    fusable: ClassVar[bool] = True
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

    def start(self, name: str, gradient: Tensor, count: Scalar) -> Tensor:
        """(1 − β₂^k)g², as if all gradients had been this one: the correction is the same for all parameters."""
        return torch.nan_to_num(gradient.square() * self._correction(count), 0.0, 0.0)

    def observe(self, gradient: Tensor, buffers: Sequence[Tensor], count: Scalar) -> None:
        """v ← β₂v + (1 − β₂)g²."""
        buffers[0].mul_(self.beta).addcmul_(gradient, gradient, value=1.0 - self.beta)

    def _correction(self, count: Scalar) -> Scalar:
        """Adam's correction: what an average of squares that started at zero is divided by."""
        return 1.0 - self.beta**count

    def metric(self, second_moment: Tensor, count: Scalar) -> Tensor:
        """The metric D, of the parameter's shape."""
        metric: Tensor = second_moment / self._correction(count)
        return metric.sqrt_().add_(self.eps)

    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Scalar) -> Tensor:
        return gradient / self.metric(buffers[0], count)

    def learn(self, ops: Arithmetic, gradients: Tensors, buffers: Buffers, count: Scalar) -> None:
        """v ← β₂v + (1 − β₂)g² for a list of parameters."""
        ops.lerp_squares_(buffers[0], gradients, 1.0 - self.beta)

    def measure(
        self, ops: Arithmetic, gradients: Tensors, buffers: Buffers, count: Scalar, grad_sq: Scalar
    ) -> tuple[Tensors, Scalar]:
        """g/D and Σ g²/D for a list of parameters."""
        if not ops.foreach:
            return super().measure(ops, gradients, buffers, count, grad_sq)
        directions = torch._foreach_div(gradients, self._metrics(buffers[0], count))
        return directions, ops.inner(gradients, directions)

    def measure_norm(
        self, ops: Arithmetic, gradients: Tensors, buffers: Buffers, count: Scalar, grad_sq: Scalar
    ) -> Scalar:
        """Σ g²/D, on pieces whose metric stays in the cache."""
        if not ops.foreach:
            return super().measure_norm(ops, gradients, buffers, count, grad_sq)
        pieces = ops.pieces(gradients, buffers[0])
        return sum(self._norm_in(ops, self._metrics(moments, count), grads) for grads, moments in pieces)

    def measure_averaged(
        self, ops: Arithmetic, average: Tensors, gradients: Tensors, buffers: Buffers, count: Scalar, grad_sq: Scalar
    ) -> tuple[Tensors, Scalar]:
        """d/D of the averages d, and Σ g²/D; one metric serves both."""
        if not ops.foreach:
            return super().measure_averaged(ops, average, gradients, buffers, count, grad_sq)
        metrics = self._metrics(buffers[0], count)
        directions = torch._foreach_div(average, metrics)
        pieces = ops.pieces(gradients, metrics)
        return directions, sum(self._norm_in(ops, metric, grads) for grads, metric in pieces)

    def _metrics(self, moments: Tensors, count: Scalar) -> Tensors:
        """The metric D for a list of parameters."""
        metrics = torch._foreach_div(moments, self._correction(count))
        torch._foreach_sqrt_(metrics)
        torch._foreach_add_(metrics, self.eps)
        return metrics

    def _norm_in(self, ops: Arithmetic, metrics: Tensors, gradients: Tensors) -> Scalar:
        """Σ g²/D; D is overwritten, which saves the memory of g/D."""
        torch._foreach_reciprocal_(metrics)
        torch._foreach_mul_(metrics, gradients)
        return ops.inner(gradients, metrics)

    def norm_sq(self, parameter: Tensor, buffers: Sequence[Tensor], count: Scalar) -> Tensor:
        return inner(parameter, parameter * self.metric(buffers[0], count))

    def measure_fused(
        self,
        ops: Arithmetic,
        gradients: Tensors,
        average: Tensors,
        moments: Tensors,
        out: Tensors,
        count: float,
        weight: Any,
        of_batch: bool,
    ) -> tuple[float, float]:
        """Learn and measure in one pass over CPU tensors, for ``fused=True``: the native one, or torch's own kernel.

        It brings the second moments up to date, and the average of the gradients if ``weight`` is not None, and leaves
        a multiple of the directions in ``out``. Memory traffic: seven arrays, beside the check of the gradient and the
        three that move the parameters.

        Returns the factor that makes them the directions, and Σ⟨d, direction⟩ with the d that they belong to; for an
        average also, if that is asked for, the batch's own Σ g²/D instead.
        """
        numbers = (self.beta, 1.0 - self.beta, self._correction(count) ** -0.5, self.eps)
        if weight is None:
            dual_sq = native.run(Pass.ADAM, moments, gradients, out, numbers=numbers)
        else:
            what = Pass.ADAM_OF_BATCH if of_batch else Pass.AVERAGED_ADAM
            dual_sq = native.run(what, moments, gradients, out, average, numbers=(*numbers, weight))
        if dual_sq is not None:
            return 1.0, dual_sq
        # torch's kernel: out ← (1 − lr·decay)·out − lr·(m/c₁)/(√(v/c₂) + ε). With lr = decay = 1 the old content drops
        # out. Its β₁ is 1 − weight, so that m is the average whose weights sum to one; its own correction c₁ = 1 − β₁^k
        # is then not wanted, and taken back by the factor. If nothing is averaged, m is the gradient itself, which the
        # kernel writes back unchanged. It knows no sum: it works on pieces that are still in the cache for the sum.
        beta, step = 0.0 if weight is None else 1.0 - weight, torch.tensor(count)
        options: dict[str, Any] = {"beta1": beta, "beta2": self.beta, "eps": self.eps, "lr": 1.0, "weight_decay": 1.0}
        norm_of_batch, total = of_batch and weight is not None, 0.0
        averages = gradients if weight is None else average
        for outs, grads, firsts, seconds in ops.pieces(out, gradients, averages, moments):
            steps = [step] * len(outs)
            torch._fused_adamw_(outs, grads, firsts, seconds, [], steps, amsgrad=False, maximize=False, **options)
            if norm_of_batch:
                total += self._norm_in(ops, self._metrics(seconds, count), grads)
            else:
                total += ops.inner(firsts, outs)
        factor = -(1.0 - beta**count)
        return factor, total if norm_of_batch else factor * total
