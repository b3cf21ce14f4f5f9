"""The table of named optimizers, model × geometry × averaging, and a documented class for every row of it."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import torch

from surefoot.optim._averaging import AveragedDirection, HeavyBall, Linearisations, Momentum
from surefoot.optim._base import ModelBased
from surefoot.optim._geometry import Diagonal, Euclidean, Geometry
from surefoot.optim._level import Level
from surefoot.optim._settings import Options
from surefoot.optim._spectral import Spectral, SpectralBall
from surefoot.theory.models import Exponential, Linear, Model, Power, SquareRoot, Truncated


@dataclass(frozen=True)
class Row:
    """What a named optimizer is, and the values that its arguments have if they are not given."""

    model: Model
    lr: float
    geometry: Geometry = dataclasses.field(default_factory=Euclidean)
    averaging: Momentum = dataclasses.field(default_factory=lambda: Linearisations(0.0))
    at_level: type[Momentum] | None = None
    """The averaging at a level, where the row's own would take the level's protection away."""

    def averaged(self, lower_bound: Any, changed: dict[str, Any]) -> Momentum:
        """The row's averaging for this lower bound, with the arguments that were changed."""
        if self.at_level is not None and (lower_bound == "level" or isinstance(lower_bound, Level)):
            return self.at_level(**{"beta": self.averaging.beta} | changed)
        return dataclasses.replace(self.averaging, **changed)

    @property
    def defaults(self) -> dict[str, Any]:
        """The values that arguments of the constructors have if they are not given, by name."""
        values = {"lr": self.lr, "geometry": self.geometry, "beta": self.averaging.beta}
        if isinstance(self.model, Power):
            values["p"] = self.model.p
        if isinstance(self.geometry, Diagonal):
            values |= {"betas": (self.averaging.beta, self.geometry.beta), "eps": self.geometry.eps}
        return values


ROWS: dict[str, Row] = {
    "SGD": Row(Linear(), 0.1),
    "SPS": Row(Truncated(), 1.0),
    "NGN": Row(SquareRoot(), 1.0),
    "LogNGN": Row(Exponential(), 1.0),
    "PowerStep": Row(Power(0.75), 1.0),
    "MoMo": Row(Truncated(), 1.0, averaging=Linearisations(0.9)),
    "NGNMomentum": Row(SquareRoot(), 1.0, averaging=HeavyBall(0.9)),
    "SPSAdam": Row(Truncated(), 1e-2, Diagonal(), Linearisations(0.0, bias_correction=True)),
    "NGNAdam": Row(SquareRoot(), 1e-2, Diagonal(), Linearisations(0.9, bias_correction=True), AveragedDirection),
    "MoMoAdam": Row(Truncated(), 1e-2, Diagonal(), Linearisations(0.9, bias_correction=True)),
    "NGNMomentumAdam": Row(SquareRoot(), 1e-2, Diagonal(), HeavyBall(0.9)),
    "Muon": Row(Linear(), 0.02, SpectralBall(scale="original", polish=0), Linearisations(0.95, bias_correction=True)),
    "SPSMuon": Row(Truncated(), 0.03, Spectral(), Linearisations(0.9, bias_correction=True), AveragedDirection),
    "NGNMuon": Row(SquareRoot(), 0.03, Spectral(), Linearisations(0.9, bias_correction=True), AveragedDirection),
    "NGNMomentumMuon": Row(SquareRoot(), 0.03, SpectralBall(), HeavyBall(0.9)),
}

Rate = float | torch.Tensor | None


class NamedRow(ModelBased):
    """A row of the table by its name; what is left at None has the row's value, which the signature shows."""

    row: ClassVar[Row]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__name__ in ROWS:
            cls.row = ROWS[cls.__name__]
            _, *parameters = inspect.signature(cls.__init__).parameters.values()
            shown = [p.replace(default=cls.row.defaults[p.name]) if p.default is None else p for p in parameters]
            cls.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]

    def _row(self, params: Any, lr: Rate, options: Options, beta: float | None = None, **others: Any) -> None:
        """Construct the row with other arguments of its averaging, or with another model or geometry."""
        changed = {name: value for name, value in others.items() if value is not None}
        parts = {name: changed.pop(name, getattr(self.row, name)) for name in ("model", "geometry")}
        if options.get("averaging") is None:
            changed |= {} if beta is None else {"beta": beta}
            averaging = self.row.averaged(options.get("lower_bound"), changed)
            options, beta = {**options, "averaging": averaging}, None
        elif twice := [f"{name}={value!r}" for name, value in changed.items() if value]:
            raise ValueError(f"{', '.join(twice)} is part of averaging={options['averaging']!r}; give one of the two")
        ModelBased.__init__(self, params, self.row.lr if lr is None else lr, beta=beta or 0.0, **parts, **options)


class AveragedRow(NamedRow):
    """A row with one β."""

    def __init__(self, params: Any, lr: Rate = None, *, beta: float | None = None, **options: Unpack[Options]) -> None:
        self._row(params, lr, options, beta)


class AdamRow(NamedRow):
    """A row in Adam's metric, with its two β."""

    def __init__(
        self,
        params: Any,
        lr: Rate = None,
        *,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        **options: Unpack[Options],
    ) -> None:
        betas = self.row.defaults["betas"] if betas is None else betas
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ValueError(f"betas must be two numbers in [0, 1), got {betas!r}")
        geometry = Diagonal(betas[1], self.row.defaults["eps"] if eps is None else eps)
        self._row(params, lr, options, None if options.get("averaging") else betas[0], geometry=geometry)


class MuonRow(NamedRow):
    """A row in a spectral geometry."""

    def __init__(
        self,
        params: Any,
        lr: Rate = None,
        *,
        beta: float | None = None,
        geometry: Spectral | None = None,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(geometry, Spectral | None):
            raise TypeError(f"geometry must be a surefoot.optim.Spectral or SpectralBall, got {geometry!r}")
        self._row(params, lr, options, beta, geometry=geometry)


class SGD(AveragedRow):
    """Stochastic gradient descent, the linear model: size = α, δ = ½α‖g‖² (Sec. 4.1).

    Without ``beta`` and weight decay it moves exactly as ``torch.optim.SGD``; ``beta`` averages the gradients with
    weights that sum to one. It needs the loss as well, to see whether it is finite and for the averaged δ.

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = SGD([x], lr=0.5)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> opt.last_step.delta.item()
    1.0
    """


class SPS(AveragedRow):
    """The stochastic Polyak step size, the truncated model: size = min{α, (f − C)/‖g‖²} (Lemma 4.1).

    α is a cap, not a scale: a rate ten times too large costs little while C is right.

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = SPS([x], lr=100.0)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> x.item()
    1.0
    """


class NGN(AveragedRow):
    """Non-negative Gauss–Newton, the square root model: size = α/(1 + α‖g‖²/(2(f − C))) (Lemma 4.2).

    It bends smoothly from SGD (small α) to twice Polyak's step (large α).

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = NGN([x], lr=1.0)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> x.item()
    1.0
    """


class LogNGN(AveragedRow):
    """The Lambert-W step, the exponential model: size = ((f − C)/‖g‖²)·W₀(α‖g‖²/(f − C)) (App. D).

    Its index is the smallest of the named ones, but its step grows without limit in α: it is not safe at any rate.

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = LogNGN([x], lr=1.0)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> round(opt.last_step.size.item(), 6)
    0.426303
    """


class PowerStep(NamedRow):
    """The power family: p = 1 is SPS, ½ NGN, 0 the Lambert-W step; only p ≥ ½ stays within twice Polyak's step.

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = PowerStep([x], lr=1.0, p=0.5)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> x.item()
    1.0
    """

    def __init__(
        self,
        params: Any,
        lr: Rate = None,
        *,
        p: float | None = None,
        beta: float | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._row(params, lr, options, beta, model=None if p is None else Power(p))


class MoMo(NamedRow):
    """SPS on the running average of past linearisations (Schaipp et al., 2024).

        size = min{α, (f̃ − C)₊/‖d‖²},    δ = δ̃ + f − f̃

    d averages the gradients and f̃ the linearisations at the current point; ``bias_correction`` starts both at zero
    instead of at the first batch. Weight decay as in the authors' code is ``weight_decay_mode="prox"``.

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = MoMo([x], lr=100.0)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> x.item()
    1.0
    """

    def __init__(
        self,
        params: Any,
        lr: Rate = None,
        *,
        beta: float | None = None,
        bias_correction: bool = False,
        **options: Unpack[Options],
    ) -> None:
        self._row(params, lr, options, beta, bias_correction=bias_correction)


class NGNMomentum(AveragedRow):
    """NGN with heavy-ball momentum, NGN-M: x⁺ = x − (1 − β)·size·g + β(x − x⁻) (Islamov et al., 2025).

    ``last_step`` is NGN's own step and δ on this batch: a diagnostic, since momentum moves on top of it.

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = NGNMomentum([x], lr=1.0, beta=0.5)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> x.item()
    1.5
    """


class SPSAdam(AdamRow):
    """SPS in Adam's metric, without momentum by default; with β₁ > 0 it is :class:`MoMoAdam`.

        D = √v̂ + ε,    size = min{α, (f − C)/Σ(g²/D)},    x⁺ = x − size·g/D

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = SPSAdam([x], lr=0.1)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> round(x.item(), 6)
    1.9
    """


class NGNAdam(AdamRow):
    """NGN in Adam's metric, on the running average of past linearisations (bias-corrected, as Adam's).

        D = √v̂ + ε,    size = α/(1 + α Σ(d²/D)/(2(f̃ − C))),    x⁺ = x − size·d/D

    At a :class:`Level` it has an :class:`AveragedDirection` instead: averages promise too little to be protected.

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = NGNAdam([x], lr=0.1)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> round(x.item(), 6)
    1.904762
    """


class MoMoAdam(AdamRow):
    """MoMo in Adam's metric (Schaipp et al., 2024); the averages are bias-corrected, as Adam's.

        D = √v̂ + ε,    size = min{α, (f̃ − C)₊/Σ(d²/D)},    x⁺ = x − size·d/D

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = MoMoAdam([x], lr=0.1)
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> round(x.item(), 6)
    1.9
    """


class NGNMomentumAdam(AdamRow):
    """NGN in Adam's metric with heavy-ball momentum, NGN-MD in its first version (Islamov et al., 2025).

        D = √v̂ + ε,    size = α/(1 + α Σ(g²/D)/(2(f − C))),    x⁺ = x − (1 − β)·size·g/D + β(x − x⁻)

    The size comes from the batch's own gradient, so that it keeps its protection, unlike that of :class:`NGNAdam`. The
    step that is under way goes on through a spike; ``averaging=AveragedDirection(0.9)`` shortens that, too.

    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = NGNMomentumAdam([x], lr=0.1, betas=(0.5, 0.999))
    >>> (0.5 * x**2).backward()
    >>> _ = opt.step()
    >>> round(x.item(), 6)
    1.952381
    """


class Muon(MuonRow):
    """Muon, the linear model in the ball-constrained spectral geometry (Jordan et al., 2024): x⁺ = x − α·c·O(d).

    d averages the gradients of past batches, O is Newton–Schulz with five of Jordan's steps, and c = √max(1,
    rows/columns). On matrices it moves as ``torch.optim.Muon(nesterov=False, weight_decay=0)``; everything else has
    Adam's geometry at the same rate, unless its group has a rate of its own. α is the length of a layer's step, not a
    rate: see :class:`SpectralBall`. δ = ½α·Σ c⟨d, O⟩ + f − f̃ is a diagnostic.

    >>> net = torch.nn.Linear(2, 2)
    >>> opt = Muon(net.parameters(), lr=0.02)
    >>> net(torch.ones(1, 2)).square().mean().backward()
    >>> _ = opt.step()
    """


class SPSMuon(MuonRow):
    """The Polyak step in the regularised spectral geometry, on the running average of past linearisations.

        q = Σ_l ‖d_l‖²_*,    size = min{α, (f̃ − C)₊/q},    x⁺ = x − size·‖d‖_*·UVᵀ

    ‖·‖_* is a layer's nuclear norm, UVᵀ its orthogonal factor by Newton–Schulz; see :class:`Spectral` for what is not a
    matrix. With ``geometry=SpectralBall(scale="original", polish=0)`` it is the ball-constrained :class:`Muon` at
    Muon's own rates, shortened where the model reaches C earlier: size = min{α, (f̃ − C)₊/Σ_l c⟨d, O⟩}. At a
    :class:`Level` it has an :class:`AveragedDirection` instead, as :class:`NGNAdam`.

    >>> W = torch.nn.Parameter(torch.eye(2))
    >>> opt = SPSMuon([W], lr=100.0)
    >>> (0.5 * W.square().sum()).backward()
    >>> _ = opt.step()                                # q = 2², f = 1: half of the way
    >>> W.detach().round(decimals=2)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """


class NGNMuon(MuonRow):
    """The NGN step in the regularised spectral geometry, on the running average of past linearisations.

        q = Σ_l ‖d_l‖²_*,    size = α/(1 + αq/(2(f̃ − C))),    x⁺ = x − size·‖d‖_*·UVᵀ

    The geometry is that of :class:`SPSMuon`, and so are its ball-constrained form and its average at a level.

    >>> W = torch.nn.Parameter(torch.eye(2))
    >>> opt = NGNMuon([W], lr=0.5)
    >>> (0.5 * W.square().sum()).backward()
    >>> _ = opt.step()
    >>> round(opt.last_step.size.item(), 3)
    0.25
    """


class NGNMomentumMuon(MuonRow):
    """The NGN step in the ball-constrained spectral geometry, with heavy-ball momentum.

        size = α/(1 + α Σ_l c⟨g, O⟩/(2(f − C))),    x⁺ = x − (1 − β)·size·c·O(g) + β(x − x⁻)

    As in :class:`NGNMomentumAdam` the size comes from the batch's own gradient. The average is one of orthogonal
    factors, and not the factor of an average as in :class:`Muon`.

    >>> W = torch.nn.Parameter(torch.eye(2))
    >>> opt = NGNMomentumMuon([W], lr=1.0)
    >>> (0.5 * W.square().sum()).backward()
    >>> _ = opt.step()
    >>> round(opt.last_step.size.item(), 3)
    0.5
    """


TABLE: dict[str, type[ModelBased]] = {name: globals()[name] for name in ROWS}
"""Every named optimizer by its name."""
