"""Schedule-free averaging: gradients at one point, steps of another, results at their average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from surefoot.optim._arithmetic import Arithmetic, Scalar, Tensors
from surefoot.optim._averaging import Averaging
from surefoot.optim._shards import local

if TYPE_CHECKING:
    from surefoot.optim._algorithm import Share


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

    buffer_name: ClassVar[str] = "z"
    starts_at_parameters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.beta > 0:
            raise ValueError(f"beta of ScheduleFree must be a number in (0, 1), got {self.beta!r}")
        if not isinstance(self.power, int | float) or not 0 <= self.power < float("inf"):
            raise ValueError(f"power must be a finite number of at least 0, got {self.power!r}")

    def weigh(self, total: Scalar, lr: Scalar) -> tuple[Scalar, Scalar]:
        """Σα^power with the new rate, and c."""
        new = lr**self.power
        total = total + new
        if isinstance(total, Tensor):
            return total, torch.where(total > 0, new / total, 0.0)
        return total, new / total if total > 0 else 0.0


def value_at_z(ops: Arithmetic, shares: Sequence[Share], loss: Scalar) -> Scalar:
    """f(y) + ⟨g, z − y⟩, what the model takes for the loss."""
    value = loss
    for share in shares:
        value = value + share.total(ops.inner(share.grads, torch._foreach_sub(share.average, share.params)))
    return value


def move(ops: Arithmetic, averaging: ScheduleFree, share: Share, directions: Tensors, size: Scalar) -> Scalar:
    """Move y and z by a step of z; returns the new Σα^power.

    With z⁺ = z − d the new y is y + c(z − y) − (1 − β(1 − c))·d: x need not be kept.
    """
    y, z = share.params, share.average
    total, weight = averaging.weigh(share.memory, share.lr)
    part = 1.0 - averaging.beta * (1.0 - weight)
    ops.lerp_(y, z, weight)
    if share.weight_decay:
        decay = share.lr * share.weight_decay
        ops.add_(y, z, -part * decay)
        ops.mul_(z, 1.0 - decay)
    ops.add_(y, directions, -part * size)
    ops.add_(z, directions, -size)
    return total


def switch(averaging: ScheduleFree, groups: list[dict[str, Any]], state: Mapping[Tensor, Any], *, train: bool) -> None:
    """Put y (for training) or x (for evaluation) into the parameters, where the other one is."""
    weight = 1.0 - averaging.beta if train else 1.0 - 1.0 / averaging.beta
    for group in groups:
        if group["train_mode"] is train:
            continue
        group["train_mode"] = train
        for p in group["params"]:
            if averaging.buffer_name in state.get(p, ()):
                local(p.detach()).lerp_(local(state[p][averaging.buffer_name]), weight)
