"""Averaging: what a step remembers of the steps before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from surefoot.optim._arithmetic import Arithmetic, Scalar
from surefoot.optim._sums import Tensors
from surefoot.theory.training import average_weight, heavy_ball_weight, part_of

if TYPE_CHECKING:
    from surefoot.optim._groups import Share


class Averaging:
    """A way to average, with the plain step x⁺ = (1 − decay)·x − size·direction for everything that it leaves open.

    It may keep one buffer of the parameters' size, some scalars for the optimizer (``names``) and one for every group
    (``memory_name``); all of them are in the checkpoints under these names. Scalars are Python floats on the CPU and
    0-d tensors on devices, whose values must not be read. An averaging of your own overrides what differs: this one
    keeps an exponential average of the parameters, and :meth:`ModelBased.eval` puts it into them.

    >>> import surefoot.optim as sfo
    >>> class Tail(sfo.Averaging):
    ...     buffer_name = "tail"
    ...     starts_at_parameters = True
    ...     evaluates_elsewhere = True
    ...     def move(self, ops, share, directions, size, decay):
    ...         memory = super().move(ops, share, directions, size, decay)
    ...         ops.lerp_(share.average, share.params, 0.1)
    ...         return memory
    ...     def switch(self, parameter, buffer, train):
    ...         kept = parameter.clone()
    ...         parameter.copy_(buffer)
    ...         buffer.copy_(kept)
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = sfo.NGN([x], lr=1.0, averaging=Tail())
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> opt.eval()
    >>> round(x.item(), 6)                                     # a tenth of the way from 2 to 1
    1.9
    """

    label: ClassVar[str] = "this averaging"
    """What messages call it."""
    buffer_name: ClassVar[str | None] = "average"
    """What the buffer is called in the optimizer's state; None if there is none."""
    starts_at_parameters: ClassVar[bool] = False
    """Whether the buffer starts as a copy of the parameters; otherwise it starts at zero."""
    names: ClassVar[tuple[str, ...]] = ()
    """Scalars that are kept for the optimizer; they start at 0, and :meth:`after` gives their new values."""
    memory_name: ClassVar[str | None] = None
    """A scalar that is kept for every group: ``share.memory``; it starts at 0, and :meth:`move` returns the new one."""
    sees_average: ClassVar[bool] = False
    """Whether the model sees the average of the gradients, if :meth:`weight` asks for one, or the batch's gradient."""
    only_scales: ClassVar[bool] = False
    """Whether :meth:`move` uses the directions only in the product size·direction."""
    compares: ClassVar[bool] = False
    """Whether every batch is compared with the direction of the last step: see :meth:`pace`."""
    proximal: ClassVar[bool] = False
    """Whether weight decay may be part of the proximal problem."""
    evaluates_elsewhere: ClassVar[bool] = False
    """Whether networks are evaluated at another point than gradients are taken at: then :meth:`switch` changes them."""

    @property
    def plain(self) -> bool:
        """Whether it does nothing, with these arguments."""
        return False

    @property
    def follows(self) -> bool:
        """Whether :meth:`after` wants to know how far the linear model has fallen."""
        return type(self).after is not Averaging.after

    def weight(self, count: Scalar) -> Scalar | None:
        """Weight of the newest gradient in ``share.average``; None if that is no average of gradients.

        The direction is that of the average then.
        """
        return None

    def value(
        self, ops: Arithmetic, shares: Sequence[Share], loss: Scalar, past: Mapping[str, Scalar], count: Scalar
    ) -> Scalar:
        """What the model takes for the loss; ``count`` is the number of the step since averaging began (from 1)."""
        return loss

    def index(self, delta: Scalar, loss: Scalar, value: Scalar) -> Scalar:
        """The step's δ, from that of the model at ``value``."""
        return delta

    def pace(
        self, overlap: Scalar, slope: Scalar, decrease: Scalar, past: Mapping[str, Scalar]
    ) -> tuple[Scalar, Scalar, dict[str, Scalar]]:
        """Two factors of the step, and new values of the scalars in ``names``; asked if the averaging ``compares``.

        ``overlap`` is Σα⟨g, u⟩ with the direction u of the last step, ``slope`` Σα⟨d, direction(d)⟩ of the average and
        ``decrease`` the batch's own Σα‖g‖_*². A schedule takes the place of the first factor by and by
        (:func:`surefoot.theory.level.annealed`). A new phase (:meth:`ModelBased.reset_level`) starts with zeros again.
        """
        return 1.0, 1.0, {}

    def move(self, ops: Arithmetic, share: Share, directions: Tensors, size: Scalar, decay: Scalar | None) -> Scalar:
        """Move the parameters of a share; ``decay`` is None without weight decay. Returns the new ``share.memory``."""
        if decay is not None:
            ops.mul_(share.params, 1.0 - decay)
        ops.add_(share.params, directions, -size)
        return share.memory

    def after(self, value: Scalar, fall: Scalar) -> dict[str, Scalar]:
        """The scalars in ``names`` after a step in which the linear model has fallen by ``fall`` from ``value``."""
        return {}

    def switch(self, parameter: Tensor, buffer: Tensor, train: bool) -> None:
        """Put the point for training or the one for evaluation into the parameter, where the other one is."""


@dataclass(frozen=True)
class Unaveraged(Averaging):
    """No averaging: the model sees loss and gradient of the batch, and nothing is kept."""

    label: ClassVar[str] = "no averaging"
    buffer_name: ClassVar[str | None] = None
    only_scales: ClassVar[bool] = True
    proximal: ClassVar[bool] = True


@dataclass(frozen=True)
class Momentum(Averaging):
    """Averaging with a share β of the past; β = 0 is none."""

    beta: float
    """Share of the past in the average, in [0, 1)."""

    def __post_init__(self) -> None:
        if not isinstance(self.beta, int | float) or not 0 <= self.beta < 1:
            raise ValueError(f"beta must be a number in [0, 1), got {self.beta!r}")

    @property
    def plain(self) -> bool:
        return self.beta == 0


@dataclass(frozen=True)
class Linearisations(Momentum):
    """The running average of past linearisations of the loss (MoMo's model), whatever the model on top of it.

        d ← d + w(g − d),    f̃ ← f̃ + w(f − f̃),    f̃ at the next point: f̃ + ⟨d, x⁺ − x⟩

    with w = 1 − β (1 in the first step), or with ``bias_correction`` (1 − β)/(1 − β^k). The model then sees f̃ and d in
    place of f and g. The value at the next point follows from what the step itself has computed, so no inner products
    with the parameters are needed; it assumes that the parameters are moved by this optimizer alone.

    Schaipp, Ohana, Eickenberg, Defazio, Gower: MoMo: Momentum Models for Adaptive Learning Rates, 2024.
    """

    bias_correction: bool = False

    label: ClassVar[str] = "averaged linearisations"
    names: ClassVar[tuple[str, ...]] = ("value", "since")
    sees_average: ClassVar[bool] = True
    only_scales: ClassVar[bool] = True
    proximal: ClassVar[bool] = True

    def weight(self, count: Scalar) -> Scalar:
        return average_weight(self.beta, count, bias_correction=self.bias_correction)

    def value(
        self, ops: Arithmetic, shares: Sequence[Share], loss: Scalar, past: Mapping[str, Scalar], count: Scalar
    ) -> Scalar:
        """f̃ + w(f − f̃)."""
        return past["value"] + self.weight(count) * (loss - past["value"])

    def index(self, delta: Scalar, loss: Scalar, value: Scalar) -> Scalar:
        """δ̃ + f − f̃."""
        return delta + (loss - value)

    def after(self, value: Scalar, fall: Scalar) -> dict[str, Scalar]:
        """f̃ at the next point."""
        return {"value": value - fall}


@dataclass(frozen=True)
class HeavyBall(Momentum):
    """Heavy-ball momentum on top of the model's step: x⁺ = x − (1 − β)·size·g + β(x − x⁻).

    The model sees the batch loss and gradient, so its step and δ are those without momentum: δ is a diagnostic here,
    no bound is known. With NGN this is NGN-M. Steps that are under way are not shortened by a later batch; see
    :class:`AveragedDirection` for that.

    Islamov, Ajroldi, Orvieto, Lucchi: Enhancing Optimizer Stability: Momentum Adaptation of the NGN Step-size, 2025.
    """

    label: ClassVar[str] = "heavy-ball momentum"
    memory_name: ClassVar[str | None] = "momentum_scale"

    def move(self, ops: Arithmetic, share: Share, directions: Tensors, size: Scalar, decay: Scalar | None) -> Scalar:
        """m ← βm + (1 − β)·size·direction and x ← x − m, with m as a mean of directions times one scale.

        A rate of 0 stops the group at once, whatever is under way.
        """
        scale, weight = heavy_ball_weight(share.memory, size, self.beta)
        if decay is not None:
            ops.mul_(share.params, 1.0 - decay)
        ops.lerp_and_add_(share.average, directions, weight, share.params, -scale * (share.lr > 0))
        return scale


@dataclass(frozen=True)
class AveragedDirection(Momentum):
    """Momentum with one scale for the whole step: x⁺ = x − t·α·direction(d), d the running average of the gradients.

        d ← d + w(g − d),    w = (1 − β)/(1 − β^k)

    t is the model's at loss and gradient of the *batch*, q = α‖g‖_*²: a bad batch shortens all of the step, the part
    that comes from earlier batches too. In Adam's metric the direction is Adam's own, m̂/(√v̂ + ε); in a spectral one it
    is the orthogonal factor of the average. δ is that of the batch's own step: a diagnostic, no bound is known. In a
    spectral geometry a step costs an orthogonalisation and singular values, on devices two orthogonalisations.

    Without ``bias_correction`` w is 1 − β, and 1 in the first step.

    >>> import surefoot.optim as sfo
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = sfo.SPS([x], lr=100.0, averaging=AveragedDirection(0.9))
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> x.item()
    1.0
    """

    bias_correction: bool = True

    label: ClassVar[str] = "an averaged direction"
    names: ClassVar[tuple[str, ...]] = ("since",)
    only_scales: ClassVar[bool] = True

    def weight(self, count: Scalar) -> Scalar:
        return average_weight(self.beta, count, bias_correction=self.bias_correction)


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

    >>> import surefoot.optim as sfo
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = sfo.NGN([x], lr=1.0, averaging=ScheduleFree())
    >>> for _ in range(50):
    ...     opt.zero_grad()
    ...     (0.5 * x**2).backward()
    ...     _ = opt.step()
    >>> opt.eval()
    >>> abs(x.item()) < 0.2
    True
    """

    beta: float = 0.9
    """Share of x in y, in (0, 1)."""
    power: float = 2.0
    """Power of the rate in the weights of the average."""

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
        weight = part_of(new, total)
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
