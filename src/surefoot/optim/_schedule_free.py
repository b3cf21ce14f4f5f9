"""Schedule-free averaging: gradients at one point, steps of another, results at their average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from surefoot.optim._arithmetic import Arithmetic, Scalar
from surefoot.optim._averaging import Averaging
from surefoot.optim._sums import Tensors

if TYPE_CHECKING:
    from surefoot.optim._share import Share


@dataclass(frozen=True)
class ScheduleFree(Averaging):
    """Schedule-free averaging of any row, in place of its momentum (Defazio et al., 2024).

        y = (1 − β)z + βx,    z⁺ = z − size·direction(g),    x⁺ = x + c(z⁺ − x)

    g and the loss f belong to y, where the parameters are during training. The model is asked at z, the point that
    moves: in the place of f it sees the linearisation's value there, f(y) + ⟨g, z − y⟩, and δ is its index with that
    value. x is the average of all z with weights α^power (c = α_t^power/Σα^power), and what should be evaluated and
    saved.

    ``optimizer.eval()`` puts x into the parameters, ``optimizer.train()`` brings y back: call them where you call
    ``model.eval()`` and ``model.train()``. No schedule other than a warmup is needed. Batch norm's statistics belong to
    y: before an evaluation at x they want a few forward passes. Weight decay is decoupled, and shrinks z.

    >>> import torch, surefoot.optim as sfo
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = sfo.NGN([x], lr=1.0, averaging=ScheduleFree())
    >>> for _ in range(50):
    ...     opt.zero_grad()
    ...     loss = 0.5 * x**2
    ...     loss.backward()
    ...     _ = opt.step(loss=loss)
    >>> opt.eval()
    >>> abs(x.item()) < 0.2
    True
    """

    beta: float = 0.9
    """Share of x in y, in (0, 1)."""
    power: float = 2.0
    """Of the rate, in the weights of the average."""

    label: ClassVar[str] = "schedule-free averaging"
    buffer_name: ClassVar[str | None] = "z"
    starts_at_parameters: ClassVar[bool] = True
    memory_name: ClassVar[str | None] = "weight_sum"
    only_scales: ClassVar[bool] = True
    evaluates_elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.beta, int | float) or not 0 < self.beta < 1:
            raise ValueError(f"beta of ScheduleFree must be a number in (0, 1), got {self.beta!r}")
        if not isinstance(self.power, int | float) or not 0 <= self.power < float("inf"):
            raise ValueError(f"power must be a finite number of at least 0, got {self.power!r}")

    def value(
        self, ops: Arithmetic, shares: Sequence[Share], loss: Scalar, past: Mapping[str, Scalar], count: Scalar
    ) -> Scalar:
        """f(y) + ⟨g, z − y⟩."""
        value = loss
        for share in shares:
            value = value + share.total(ops.inner(share.grads, torch._foreach_sub(share.average, share.params)))
        return value

    def move(self, ops: Arithmetic, share: Share, directions: Tensors, size: Scalar, decay: Scalar | None) -> Scalar:
        """Move y and z by a step of z; returns the new Σα^power.

        With z⁺ = z − d the new y is y + c(z − y) − (1 − β(1 − c))·d: x need not be kept.
        """
        y, z = share.params, share.average
        new = share.lr**self.power
        total = share.memory + new
        weight = ops.ratio(new, total)
        part = 1.0 - self.beta * (1.0 - weight)
        ops.lerp_(y, z, weight)
        if decay is not None:
            ops.add_(y, z, -part * decay)
            ops.mul_(z, 1.0 - decay)
        ops.add_(y, directions, -part * size)
        ops.add_(z, directions, -size)
        return total

    def switch(self, parameter: Tensor, buffer: Tensor, train: bool) -> None:
        """Put y (for training) or x (for evaluation) into the parameter, where the other one is."""
        parameter.lerp_(buffer, 1.0 - self.beta if train else 1.0 - 1.0 / self.beta)
