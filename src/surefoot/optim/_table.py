"""The table of named optimizers, model × geometry × averaging, and how a row becomes a class."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, Unpack

from torch import Tensor

from surefoot.optim._averaging import Averaging, HeavyBall, Linearisations, Momentum
from surefoot.optim._base import ModelBased
from surefoot.optim._geometry import Diagonal, Euclidean, Geometry
from surefoot.optim._height import Height
from surefoot.optim._spectral import Spectral, SpectralBall
from surefoot.theory.models import Exponential, Linear, Model, Power, SquareRoot, Truncated


@dataclass(frozen=True)
class Row:
    """What a named optimizer is, and the values that its arguments have if they are not given."""

    model: Model
    lr: float
    geometry: Geometry = dataclasses.field(default_factory=Euclidean)
    averaging: Momentum = dataclasses.field(default_factory=lambda: Linearisations(0.0))

    @property
    def defaults(self) -> dict[str, Any]:
        """Arguments of the constructors by name."""
        own = {
            "lr": self.lr,
            "geometry": self.geometry,
            "beta": self.averaging.beta,
            "p": getattr(self.model, "p", None),
        }
        if isinstance(self.geometry, Diagonal):
            own |= {"betas": (self.averaging.beta, self.geometry.beta), "eps": self.geometry.eps}
        return own


ROWS: dict[str, Row] = {
    "SGD": Row(Linear(), 0.1),
    "SPS": Row(Truncated(), 1.0),
    "NGN": Row(SquareRoot(), 1.0),
    "LogNGN": Row(Exponential(), 1.0),
    "PowerStep": Row(Power(0.75), 1.0),
    "MoMo": Row(Truncated(), 1.0, averaging=Linearisations(0.9)),
    "NGNMomentum": Row(SquareRoot(), 1.0, averaging=HeavyBall(0.9)),
    "SPSAdam": Row(Truncated(), 1e-2, Diagonal(), Linearisations(0.0, bias_correction=True)),
    "NGNAdam": Row(SquareRoot(), 1e-2, Diagonal(), Linearisations(0.9, bias_correction=True)),
    "MoMoAdam": Row(Truncated(), 1e-2, Diagonal(), Linearisations(0.9, bias_correction=True)),
    "NGNMomentumAdam": Row(SquareRoot(), 1e-2, Diagonal(), HeavyBall(0.9)),
    "Muon": Row(Linear(), 0.02, SpectralBall(scale="original", polish=0), Linearisations(0.95, bias_correction=True)),
    "SPSMuon": Row(Truncated(), 0.03, Spectral(), Linearisations(0.9, bias_correction=True)),
    "NGNMuon": Row(SquareRoot(), 0.03, Spectral(), Linearisations(0.9, bias_correction=True)),
    "NGNMomentumMuon": Row(SquareRoot(), 0.03, SpectralBall(), HeavyBall(0.9)),
}
"""The table of named optimizers."""


class Options(TypedDict, total=False):
    """What every optimizer takes beside its own arguments; explained at :class:`ModelBased`."""

    weight_decay: float
    weight_decay_mode: str
    lower_bound: float | str | Height
    max_grad_norm: float | None
    on_nonfinite: str
    process_group: Any
    foreach: bool | None
    fused: bool | None
    listen: bool
    maximize: bool
    averaging: Averaging | None
    """In place of the optimizer's own averaging."""


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

    def _row(
        self, params: Any, lr: float | Tensor | None, options: Options, beta: float | None = None, **others: Any
    ) -> None:
        """Construct the row with other arguments of its averaging, or with another model or geometry."""
        given = {name: value for name, value in others.items() if value is not None}
        parts = {name: given.pop(name, getattr(self.row, name)) for name in ("model", "geometry")}
        lr = self.row.lr if lr is None else lr
        if options.get("averaging") is None:
            given |= {} if beta is None else {"beta": beta}
            options, beta = {**options, "averaging": dataclasses.replace(self.row.averaging, **given)}, None
        ModelBased.__init__(self, params, lr, beta=beta or 0.0, **parts, **options)


class AveragedRow(NamedRow):
    """A row with one β."""

    def __init__(
        self, params: Any, lr: float | Tensor | None = None, *, beta: float | None = None, **options: Unpack[Options]
    ) -> None:
        self._row(params, lr, options, beta)


class AdamRow(NamedRow):
    """A row in Adam's metric, with its two β."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor | None = None,
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
        lr: float | Tensor | None = None,
        *,
        beta: float | None = None,
        geometry: Spectral | None = None,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(geometry, Spectral | None):
            raise TypeError(f"geometry must be a surefoot.optim.Spectral or SpectralBall, got {geometry!r}")
        self._row(params, lr, options, beta, geometry=geometry)
