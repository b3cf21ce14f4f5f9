"""The named optimizers: each is one choice of model, geometry and momentum."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch

from surefoot.optim._geometry import Diagonal
from surefoot.optim._model_based import ModelBased, Options
from surefoot.optim._momentum import HeavyBall, Linearisations
from surefoot.optim._spectral import Spectral, SpectralBall
from surefoot.theory.models import Exponential, Linear, Model, SquareRoot, Truncated

Rate = float | torch.Tensor


def _own(options: Options, momentum: Linearisations | HeavyBall, beta: float) -> Options:
    """The options with the optimizer's own momentum, whose β is this one by default, unless they bring another."""
    if options.get("momentum") is None:
        return {**options, "momentum": momentum}
    if momentum.beta not in (0.0, beta):
        raise ValueError(f"beta={momentum.beta!r} is the β of the momentum that momentum= replaces; leave it out")
    return options


class _Plain(ModelBased):
    """A model in the Euclidean norm; ``beta`` averages linearisations."""

    _model_of_loss: ClassVar[Model]

    def __init__(self, params: Any, lr: Rate = 1.0, *, beta: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, model=self._model_of_loss, **_own(options, Linearisations(beta), 0.0))


class _Adam(ModelBased):
    """A model in Adam's metric D = √v̂ + ε, with Adam's two β."""

    _model_of_loss: ClassVar[Model]
    _heavy_ball: ClassVar[bool] = False

    def __init__(
        self,
        params: Any,
        lr: Rate = 1e-2,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ValueError(f"betas must be two numbers in [0, 1), got {betas!r}")
        momentum = HeavyBall(betas[0]) if self._heavy_ball else Linearisations(betas[0], bias_correction=True)
        own = _own(options, momentum, 0.9)
        super().__init__(params, lr, model=self._model_of_loss, geometry=Diagonal(betas[1], eps), **own)


class SGD(ModelBased):
    """Stochastic gradient descent, the linear model: size = α, δ = ½α‖g‖² (Sec. 4.1).

    Without ``beta`` and weight decay it moves exactly as ``torch.optim.SGD``; ``beta`` averages the gradients with
    weights that sum to one. It needs the loss as well, to see whether it is finite and for the averaged δ.
    """

    def __init__(self, params: Any, lr: Rate = 0.1, *, beta: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, model=Linear(), **_own(options, Linearisations(beta), 0.0))


class SPS(_Plain):
    """The stochastic Polyak step size, the truncated model: size = min{α, (f − C)/‖g‖²} (Lemma 4.1).

    α is a cap, not a scale: a rate ten times too large costs little while C is right.
    """

    _model_of_loss = Truncated()


class NGN(_Plain):
    """Non-negative Gauss–Newton, the square root model: size = α/(1 + α‖g‖²/(2(f − C))) (Lemma 4.2).

    It bends smoothly from SGD (small α) to twice Polyak's step (large α).

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = NGN([x], lr=1.0)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> x.item(), opt.last_step.delta.item()
    (1.0, 1.0)
    """

    _model_of_loss = SquareRoot()


class LogNGN(_Plain):
    """The exponential model, with the Lambert-W step: size = α·e^(−w), w = W₀(α‖g‖²/(f − C)) (App. D).

    Its steps grow without limit in α: on x²/2 it diverges for α > 2e⁴, so it is not safe at any rate.
    """

    _model_of_loss = Exponential()


class MoMo(ModelBased):
    """SPS on the running average of past linearisations (Schaipp et al., 2024).

        size = min{α, (f̃ − C)₊/‖d‖²},    δ = δ̃ + f − f̃

    d averages the gradients and f̃ the linearisations at the current point; ``bias_correction`` starts both at zero
    instead of at the first batch.
    """

    def __init__(
        self,
        params: Any,
        lr: Rate = 1.0,
        *,
        beta: float = 0.9,
        bias_correction: bool = False,
        **options: Unpack[Options],
    ) -> None:
        own = _own(options, Linearisations(beta, bias_correction), 0.9)
        super().__init__(params, lr, model=Truncated(), **own)


class NGNMomentum(ModelBased):
    """NGN with heavy-ball momentum, NGN-M: x⁺ = x − (1 − β)·size·g + β(x − x⁻) (Islamov et al., 2025).

    ``last_step`` is NGN's own step and δ on this batch: a diagnostic, since momentum moves on top of it.
    """

    def __init__(self, params: Any, lr: Rate = 1.0, *, beta: float = 0.9, **options: Unpack[Options]) -> None:
        super().__init__(params, lr, model=SquareRoot(), **_own(options, HeavyBall(beta), 0.9))


class NGNAdam(_Adam):
    """NGN in Adam's metric, on the running average of past linearisations (bias-corrected, as Adam's).

    size = α/(1 + α Σ(d²/D)/(2(f̃ − C))),    x⁺ = x − size·d/D
    """

    _model_of_loss = SquareRoot()


class MoMoAdam(_Adam):
    """MoMo in Adam's metric (Schaipp et al., 2024); the averages are bias-corrected, as Adam's.

    size = min{α, (f̃ − C)₊/Σ(d²/D)},    x⁺ = x − size·d/D
    """

    _model_of_loss = Truncated()


class NGNMomentumAdam(_Adam):
    """NGN in Adam's metric with heavy-ball momentum, NGN-MD in its first version (Islamov et al., 2025).

        size = α/(1 + α Σ(g²/D)/(2(f − C))),    x⁺ = x − (1 − β)·size·g/D + β(x − x⁻)

    The size comes from the batch's own gradient, so that it keeps its protection, unlike that of :class:`NGNAdam`. The
    step that is under way goes on through a spike.
    """

    _model_of_loss, _heavy_ball = SquareRoot(), True


class Muon(ModelBased):
    """Muon, the linear model in the ball-constrained spectral geometry (Jordan et al., 2024): x⁺ = x − α·c·O(d).

    d averages the gradients of past batches, O is Newton–Schulz with five of Jordan's steps, and c = √max(1,
    rows/columns). On matrices it moves as ``torch.optim.Muon(nesterov=False, weight_decay=0)``; everything else has
    Adam's geometry at the same rate, unless its group has a rate of its own. α is the length of a layer's step, not a
    rate: see :class:`SpectralBall`. δ = ½α·Σ c⟨d, O⟩ + f − f̃ is a diagnostic.
    """

    def __init__(
        self,
        params: Any,
        lr: Rate = 0.02,
        *,
        beta: float = 0.95,
        geometry: Spectral | None = None,
        **options: Unpack[Options],
    ) -> None:
        geometry = _spectral(geometry, SpectralBall(scale="original", polish=0))
        own = _own(options, Linearisations(beta, bias_correction=True), 0.95)
        super().__init__(params, lr, model=Linear(), geometry=geometry, **own)


class SPSMuon(ModelBased):
    """The Polyak step in the regularised spectral geometry, on the running average of past linearisations.

        q = Σ_l ‖d_l‖²_*,    size = min{α, (f̃ − C)₊/q},    x⁺ = x − size·‖d‖_*·UVᵀ

    ‖·‖_* is a layer's nuclear norm, UVᵀ its orthogonal factor by Newton–Schulz; see :class:`Spectral` for what is not a
    matrix. With ``geometry=SpectralBall(scale="original", polish=0)`` it is the ball-constrained :class:`Muon` at
    Muon's own rates, shortened where the model reaches C earlier: size = min{α, (f̃ − C)₊/Σ_l c⟨d, O⟩}.
    """

    def __init__(
        self,
        params: Any,
        lr: Rate = 0.03,
        *,
        beta: float = 0.9,
        geometry: Spectral | None = None,
        **options: Unpack[Options],
    ) -> None:
        own = _own(options, Linearisations(beta, bias_correction=True), 0.9)
        super().__init__(params, lr, model=Truncated(), geometry=_spectral(geometry, Spectral()), **own)


def _spectral(geometry: Spectral | None, own: Spectral) -> Spectral:
    """The geometry that was given, or the optimizer's own."""
    if not isinstance(geometry, Spectral | None):
        raise TypeError(f"geometry must be a surefoot.optim.Spectral or SpectralBall, got {geometry!r}")
    return own if geometry is None else geometry


TABLE: dict[str, type[ModelBased]] = {
    kind.__name__: kind
    for kind in (SGD, SPS, NGN, LogNGN, MoMo, MoMoAdam, NGNMomentum, NGNAdam, NGNMomentumAdam, Muon, SPSMuon)
}
"""The named optimizers by their names."""
