"""The named optimizers of the spectral geometry."""

from __future__ import annotations

from typing import Any, Unpack

from torch import Tensor

from surefoot.optim._averaging import Linearisations
from surefoot.optim._base import ModelBased
from surefoot.optim._rows import Options, averaged
from surefoot.optim._spectral import Spectral, SpectralBall
from surefoot.theory.models import Linear, Model, SquareRoot, Truncated


class _Spectral(ModelBased):
    """What the three share: a spectral geometry, and linearisations averaged with bias correction."""

    def __init__(
        self, params: Any, lr: float | Tensor, model: Model, geometry: Spectral, beta: float, options: Options
    ) -> None:
        if not isinstance(geometry, Spectral):
            raise TypeError(f"geometry must be a surefoot.optim.Spectral or SpectralBall, got {geometry!r}")
        own = Linearisations(beta, bias_correction=True)
        super().__init__(params, lr, model=model, geometry=geometry, **averaged(options, own))


class Muon(_Spectral):
    """Muon, the linear model in the ball-constrained spectral geometry (Jordan et al., 2024): x⁺ = x − α·c·O(d).

    d averages the gradients of past batches, O is Newton–Schulz with five of Jordan's steps, and c = √max(1,
    rows/columns). On matrices it moves as ``torch.optim.Muon(nesterov=False, weight_decay=0)``; everything else has
    Adam's geometry at the same rate, unless its group has a rate of its own. α is the length of a layer's step, not a
    rate: see :class:`SpectralBall`. δ = ½α·Σ c⟨d, O⟩ + f − f̃ is a diagnostic.

    >>> import torch
    >>> net = torch.nn.Linear(2, 2)
    >>> opt = Muon(net.parameters(), lr=0.02)
    >>> loss = net(torch.ones(1, 2)).square().mean()
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 0.02,
        *,
        beta: float = 0.95,
        geometry: Spectral | None = None,
        **options: Unpack[Options],
    ) -> None:
        geometry = geometry or SpectralBall(scale="original", polish=0)
        super().__init__(params, lr, Linear(), geometry, beta, options)


class SPSMuon(_Spectral):
    """The Polyak step in the regularised spectral geometry, on the running average of past linearisations.

        q = Σ_l ‖d_l‖²_*,    size = min{α, (f̃ − C)₊/q},    x⁺ = x − size·‖d‖_*·UVᵀ

    ‖·‖_* is a layer's nuclear norm, UVᵀ its orthogonal factor by Newton–Schulz; see :class:`Spectral` for what is not a
    matrix. With ``geometry=SpectralBall(scale="original", polish=0)`` it is the ball-constrained :class:`Muon` at
    Muon's own rates, shortened where the model reaches C earlier: size = min{α, (f̃ − C)₊/Σ_l c⟨d, O⟩}.

    >>> import torch
    >>> W = torch.nn.Parameter(torch.eye(2))
    >>> opt = SPSMuon([W], lr=100.0)
    >>> loss = 0.5 * W.square().sum()
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)                                # q = 2², f = 1: half of the way
    >>> W.detach().round(decimals=2)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 0.03,
        *,
        beta: float = 0.9,
        geometry: Spectral | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, Truncated(), geometry or Spectral(), beta, options)


class NGNMuon(_Spectral):
    """The NGN step in the regularised spectral geometry, on the running average of past linearisations.

        q = Σ_l ‖d_l‖²_*,    size = α/(1 + αq/(2(f̃ − C))),    x⁺ = x − size·‖d‖_*·UVᵀ

    The geometry is that of :class:`SPSMuon`, and so is its ball-constrained form.

    >>> import torch
    >>> W = torch.nn.Parameter(torch.eye(2))
    >>> opt = NGNMuon([W], lr=0.5)
    >>> loss = 0.5 * W.square().sum()
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> round(opt.last_step.size.item(), 3)
    0.25
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 0.03,
        *,
        beta: float = 0.9,
        geometry: Spectral | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, SquareRoot(), geometry or Spectral(), beta, options)
