"""The optimizer that needs no learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from torch import Tensor, nn

from surefoot.optim._arithmetic import Scalar
from surefoot.optim._averaging import AveragedDirection
from surefoot.optim._geometry import Diagonal
from surefoot.optim._level import Level
from surefoot.optim._rows import NamedRow, Row
from surefoot.optim._settings import Options
from surefoot.optim._spectral import Spectral, SpectralBall
from surefoot.theory import level
from surefoot.theory.models import Truncated


@dataclass(frozen=True)
class AgreedDirection(AveragedDirection):
    """An averaged direction whose step is as long as new batches agree with it.

        a = 1 − p + p·clip(⟨g, u⟩/‖d‖_*, 0, 1)^power,    x⁺ = x − t·α·a^η·η^(1 − η)·min{1, q/q̄}·direction(d)

    ⟨g, u⟩ is the slope that a new batch sees along the direction u of the *last* step, in which it has had no part, and
    ‖d‖_* the slope that the average of the batches promises along its own; a uses running averages of both. It is 1
    where new batches keep that promise, and small where the average holds little but their noise: the run anneals
    itself. (‖g‖_* in the place of ‖d‖_* would shorten the steps of small batches, whose single gradients are long, also
    where their average is good.) p is how far the run has left its start, in [0, 1]: a :class:`Level` says what has
    been gained over what the first steps ask for, other heights 1. Before that batches of a plateau agree on nothing,
    and short steps would stay there. η ≤ 1 is what a schedule has made of the rate. A schedule anneals the run, too,
    and takes that over from a as it falls: a^η·η^(1 − η) lies between the two, is a without a schedule (η = 1) and η at
    its end. q̄ is the running average of q = α‖g‖_*: a batch that is fitted already moves little.

    The averages look back over 1/(1 − memory) steps, and in long runs over a share of the run (``span``); the exponent
    rises from ``power`` to 1 there (:func:`surefoot.theory.level.look_back`). The first 100 steps are not concerned.

    In a spectral geometry a step costs an orthogonalisation, of d, as Muon does, and the singular values of g for its
    norm; on devices that is a second orthogonalisation. (Those of d in their place would cost nothing, but the norm is
    then several times too large for small batches, whose gradients have low rank.)
    """

    beta: float = 0.9
    power: float = 0.6
    memory: float = 0.95
    """Share of the past in the running averages."""
    span: float = 0.2
    """Share of the run that the averages look back over, where that is longer."""

    label: ClassVar[str] = "an agreed direction"
    names: ClassVar[tuple[str, ...]] = ("overlap", "slope", "promise", "compared")
    compares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.power, int | float) or not 0 <= self.power <= 1:
            raise ValueError(f"power must be a number in [0, 1], got {self.power!r}")
        if not isinstance(self.memory, int | float) or not 0 <= self.memory < 1:
            raise ValueError(f"memory must be a number in [0, 1), got {self.memory!r}")
        if not isinstance(self.span, int | float) or not 0 <= self.span <= 1:
            raise ValueError(f"span must be a number in [0, 1], got {self.span!r}")

    @property
    def plain(self) -> bool:
        """False: it compares batches even if it averages nothing."""
        return False

    def pace(
        self, overlap: Scalar, slope: Scalar, decrease: Scalar, past: Mapping[str, Scalar]
    ) -> tuple[Scalar, Scalar, dict[str, Scalar]]:
        """The factors a and min{1, q/q̄}, and the new running averages."""
        count = past["compared"] + 1.0
        weight, power = level.look_back(count, self.memory, self.span, self.power)
        begun = 1.0 * (count > 1.0)  # nothing to compare the first batch with
        overlap = past["overlap"] + weight * (begun * overlap + (1.0 - begun) * slope - past["overlap"])
        slope = past["slope"] + weight * (slope - past["slope"])
        promise = past["promise"] + weight * (decrease - past["promise"])
        kept = {"overlap": overlap, "slope": slope, "promise": promise, "compared": count}
        return level.agreement(overlap, slope, power), level.agreement(decrease, promise, 1.0), kept


class Surefoot(NamedRow):
    """Needs no learning rate: it asks for a share of what it has gained, along directions that batches agree on.

        d ← running average of the gradients,    u = direction(d),    q = α‖g‖_*
        F = (f − b)₊ + G,    G = share·(f₁ − b), at least |f₁|/10, at most b
        x⁺ = x − min{1, F/max{q, q̄}}·α·a^η·η^(1 − η)·min{1, q/q̄}·u

    f is the loss of the batch, f₁ the first one and b the best smoothed one: see :class:`Level`. a is how far new
    batches agree with the last direction, once something has been gained: see :class:`AgreedDirection`. Matrices and
    kernels move along the orthogonal factor of d, as with Muon, and everything else in Adam's metric, at one common
    rate. Any unit of the parameters and of the loss gives the same run, as long as the cap does not bind.

    Nothing of this is proved for networks. For convex losses the base inequality holds with δ (``last_step.delta``) and
    the level in place of a lower bound, without momentum: see docs/theory.md.

    Args:
        params: ``model.parameters()``, ``model.named_parameters()`` or groups. Groups with ``"spectral": False`` have
            Adam's metric throughout; :func:`split` makes such groups of embeddings and the last layer.
        lr: a cap, not a rate: no element of a matrix moves by more than about 0.2·lr in a step. Schedulers of torch
            work: η is the group's rate now over that at the beginning, at most 1.
        beta: share of the past in d.
        share: of what has been gained, in (0, 1).
        **options: as for every optimizer, see :class:`ModelBased`; ``weight_decay`` is in proportion to the step.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    >>> opt = Surefoot(net.parameters())
    >>> for _ in range(100):
    ...     opt.zero_grad()
    ...     inputs = torch.randn(32, 4)
    ...     loss = (net(inputs).squeeze(-1) - inputs.prod(-1).tanh()).square().mean()
    ...     loss.backward()
    ...     _ = opt.step()
    """

    row = Row(
        Truncated(),
        10.0,
        SpectralBall(rest=Diagonal(0.99, 1e-12), scale="match_rms_adamw", polish=0),
        AgreedDirection(),
    )

    def __init__(
        self,
        params: Any,
        lr: float | Tensor | None = None,
        *,
        beta: float | None = None,
        share: float = 0.9,
        geometry: Spectral | None = None,
        **options: Unpack[Options],
    ) -> None:
        options.setdefault("lower_bound", Level(share))
        self._row(params, lr, options, beta, geometry=geometry)


def split(model: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups of a network: matrices inside it, and embeddings, the last layer and vectors in Adam's metric.

    For :class:`Surefoot` and the spectral optimizers, where ``model.parameters()`` puts every matrix into the spectral
    metric.

    >>> groups = split(nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10)))
    >>> [len(group["params"]) for group in groups], groups[1]["spectral"]
    ([1, 4], False)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    layers = [layer for layer in model.modules() if any(True for _ in layer.parameters(recurse=False))]
    matrices = [layer for layer in layers if any(p.ndim >= 2 for p in layer.parameters(recurse=False))]
    outer = {id(p) for layer in layers if isinstance(layer, nn.Embedding | nn.EmbeddingBag) for p in layer.parameters()}
    outer |= {id(p) for layer in matrices[-1:] for p in layer.parameters(recurse=False)}
    inside = [p for p in model.parameters() if p.ndim >= 2 and id(p) not in outer]
    inside_ids = {id(p) for p in inside}
    rest = [p for p in model.parameters() if id(p) not in inside_ids]
    groups: list[dict[str, Any]] = [{"params": inside}, {"params": rest, "spectral": False}]
    return [group for group in groups if group["params"]]
