"""The named optimizers: rows of one table, model × geometry × averaging."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from torch import Tensor

from surefoot.optim._averaging import Averaging, HeavyBall, Linearisations
from surefoot.optim._base import ModelBased
from surefoot.optim._geometry import Diagonal
from surefoot.optim._settings import Estimate
from surefoot.theory.models import Exponential, Linear, Power, SquareRoot, Truncated


class Options(TypedDict, total=False):
    """What every optimizer takes beside its own arguments; explained at :class:`ModelBased`."""

    weight_decay: float
    weight_decay_mode: str
    lower_bound: float | str | Estimate
    max_grad_norm: float | None
    on_nonfinite: str
    process_group: Any
    foreach: bool | None
    fused: bool | None
    averaging: Averaging | None
    """In place of the optimizer's own averaging."""


class SGD(ModelBased):
    """Stochastic gradient descent, the linear model: size = α, δ = ½α‖g‖² (Sec. 4.1).

    Without ``beta`` and weight decay it moves exactly as ``torch.optim.SGD``; ``beta`` averages the gradients with
    weights that sum to one. It needs the loss as well, to see whether it is finite and for the averaged δ.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = SGD([x], lr=0.5)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> opt.last_step.delta.item()
    1.0
    """

    def __init__(self, params: Any, lr: float | Tensor = 0.1, *, beta: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, model=Linear(), beta=beta, **options)


class SPS(ModelBased):
    """The stochastic Polyak step size, the truncated model: size = min{α, (f − C)/‖g‖²} (Lemma 4.1).

    α is a cap, not a scale: a rate ten times too large costs little while C is right.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = SPS([x], lr=100.0)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> x.item()
    1.0
    """

    def __init__(self, params: Any, lr: float | Tensor = 1.0, *, beta: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, model=Truncated(), beta=beta, **options)


class NGN(ModelBased):
    """Non-negative Gauss–Newton, the square root model: size = α/(1 + α‖g‖²/(2(f − C))) (Lemma 4.2).

    It bends smoothly from SGD (small α) to twice Polyak's step (large α).

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = NGN([x], lr=1.0)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> x.item()
    1.0
    """

    def __init__(self, params: Any, lr: float | Tensor = 1.0, *, beta: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, model=SquareRoot(), beta=beta, **options)


class LogNGN(ModelBased):
    """The Lambert-W step, the exponential model: size = ((f − C)/‖g‖²)·W₀(α‖g‖²/(f − C)) (App. D).

    Its index is the smallest of the named ones, but its step grows without limit in α: it is not safe at any rate.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = LogNGN([x], lr=1.0)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> round(opt.last_step.size.item(), 6)
    0.426303
    """

    def __init__(self, params: Any, lr: float | Tensor = 1.0, *, beta: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, model=Exponential(), beta=beta, **options)


class PowerStep(ModelBased):
    """The power family: p = 1 is SPS, ½ NGN, 0 the Lambert-W step; only p ≥ ½ stays within twice Polyak's step.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = PowerStep([x], lr=1.0, p=0.5)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> x.item()
    1.0
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        *,
        p: float = 0.75,
        beta: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, model=Power(p), beta=beta, **options)


class MoMo(ModelBased):
    """SPS on the running average of past linearisations (Schaipp et al., 2024).

        size = min{α, (f̃ − C)₊/‖d‖²},    δ = δ̃ + f − f̃

    d averages the gradients and f̃ the linearisations at the current point; ``bias_correction`` starts both at zero
    instead of at the first batch. Weight decay as in the authors' code is ``weight_decay_mode="prox"``.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = MoMo([x], lr=100.0)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> x.item()
    1.0
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        *,
        beta: float = 0.9,
        bias_correction: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, model=Truncated(), **averaged(options, Linearisations(beta, bias_correction)))


class NGNMomentum(ModelBased):
    """NGN with heavy-ball momentum, NGN-M: x⁺ = x − (1 − β)·size·g + β(x − x⁻) (Islamov et al., 2025).

    ``last_step`` is NGN's own step and δ on this batch: a diagnostic, since momentum moves on top of it.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = NGNMomentum([x], lr=1.0, beta=0.5)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> x.item()
    1.5
    """

    def __init__(self, params: Any, lr: float | Tensor = 1.0, *, beta: float = 0.9, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, model=SquareRoot(), **averaged(options, HeavyBall(beta)))


class SPSAdam(ModelBased):
    """SPS in Adam's metric, without momentum by default; with β₁ > 0 it is :class:`MoMoAdam`.

        D = √v̂ + ε,    size = min{α, (f − C)/Σ(g²/D)},    x⁺ = x − size·g/D

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = SPSAdam([x], lr=0.1)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> round(x.item(), 6)
    1.9
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        *,
        betas: tuple[float, float] = (0.0, 0.999),
        eps: float = 1e-8,
        **options: Unpack[Options],
    ) -> None:
        averaging, geometry = _adam(betas, eps)
        super().__init__(params, lr, model=Truncated(), geometry=geometry, **averaged(options, averaging))


class NGNAdam(ModelBased):
    """NGN in Adam's metric, on the running average of past linearisations (bias-corrected, as Adam's).

        D = √v̂ + ε,    size = α/(1 + α Σ(d²/D)/(2(f̃ − C))),    x⁺ = x − size·d/D

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = NGNAdam([x], lr=0.1)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> round(x.item(), 6)
    1.904762
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        **options: Unpack[Options],
    ) -> None:
        averaging, geometry = _adam(betas, eps)
        super().__init__(params, lr, model=SquareRoot(), geometry=geometry, **averaged(options, averaging))


class MoMoAdam(ModelBased):
    """MoMo in Adam's metric (Schaipp et al., 2024); the averages are bias-corrected, as Adam's.

        D = √v̂ + ε,    size = min{α, (f̃ − C)₊/Σ(d²/D)},    x⁺ = x − size·d/D

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = MoMoAdam([x], lr=0.1)
    >>> loss = 0.5 * x**2
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> round(x.item(), 6)
    1.9
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        **options: Unpack[Options],
    ) -> None:
        averaging, geometry = _adam(betas, eps)
        super().__init__(params, lr, model=Truncated(), geometry=geometry, **averaged(options, averaging))


def averaged(options: Options, own: Averaging) -> Options:
    """The options with an optimizer's own averaging, unless another one was asked for."""
    return options if options.get("averaging") else {**options, "averaging": own}


def _adam(betas: tuple[float, float], eps: float) -> tuple[Linearisations, Diagonal]:
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ValueError(f"betas must be two numbers in [0, 1), got {betas!r}")
    return Linearisations(betas[0], bias_correction=True), Diagonal(betas[1], eps)
