"""Checked settings of an optimizer: everything that is the same for all parameter groups and never changes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import torch

from surefoot.optim._averaging import Averaging, HeavyBall, Linearisations
from surefoot.optim._geometry import Diagonal, Geometry
from surefoot.optim._schedule_free import ScheduleFree
from surefoot.theory.models import Linear, Model
from surefoot.theory.training import is_square_root, is_truncated


@dataclass(frozen=True)
class Estimate:
    """A lower bound that is estimated online by MoMo's rule, starting from ``floor`` and never below it.

    ``lower_bound="estimate"`` is short for ``Estimate(floor=0.0)``.
    """

    floor: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.floor, int | float) or not math.isfinite(self.floor):
            raise ValueError(f"floor must be a finite number, got {self.floor!r}")


@dataclass(frozen=True)
class Settings:
    """What :class:`~surefoot.optim.ModelBased` was constructed with, apart from the groups' own options."""

    model: Model
    geometry: Geometry
    averaging: Averaging | None
    weight_decay_mode: Literal["decoupled", "prox"]
    lower_bound: float | Estimate
    max_grad_norm: float | None
    on_nonfinite: Literal["skip", "raise"]
    process_group: Any
    foreach: bool
    fused: bool

    @property
    def bounded(self) -> bool:
        """Whether the model knows a lower bound at all."""
        return not isinstance(self.model, Linear)

    @property
    def averages_model(self) -> bool:
        """Whether the model sees a running average of linearisations."""
        return isinstance(self.averaging, Linearisations)

    def buffer_names(self, geometry: Geometry) -> tuple[str, ...]:
        """The buffers of its size that are kept for every parameter that has this geometry."""
        return ((self.averaging.buffer_name,) if self.averaging else ()) + geometry.buffer_names


def settings(
    *,
    model: Model,
    geometry: Geometry,
    beta: float,
    averaging: Averaging | None,
    weight_decay_mode: str,
    lower_bound: float | str | Estimate,
    max_grad_norm: float | None,
    on_nonfinite: str,
    process_group: Any,
    foreach: bool | None,
    fused: bool | None,
) -> Settings:
    """Check the arguments of :class:`~surefoot.optim.ModelBased`; errors name the argument and what is allowed."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a surefoot.theory.models.Model, got {model!r}")
    if not isinstance(geometry, Geometry):
        raise TypeError(f"geometry must be a surefoot.optim.Geometry, got {geometry!r}")
    if averaging is None:
        averaging = Linearisations(beta)
    elif beta:
        raise ValueError(f"beta is part of averaging={averaging!r}; give one of the two, not beta={beta!r} as well")
    if not isinstance(averaging, Averaging):
        raise TypeError(f"averaging must be Linearisations, HeavyBall, ScheduleFree or None, got {averaging!r}")
    weight_decay_mode = _one_of("weight_decay_mode", weight_decay_mode, ("decoupled", "prox"))
    if weight_decay_mode == "prox":
        if not (isinstance(model, Linear) or is_truncated(model) or is_square_root(model)):
            raise ValueError(
                f'weight_decay_mode="prox" is known for Linear, Truncated and SquareRoot, not for {model!r}'
            )
        if isinstance(averaging, HeavyBall | ScheduleFree):
            kind = "heavy-ball momentum" if isinstance(averaging, HeavyBall) else "schedule-free averaging"
            raise ValueError(f'weight_decay_mode="prox" does not go with {kind}: use "decoupled"')
        if type(geometry).norm_sq is Geometry.norm_sq:
            raise ValueError(f'weight_decay_mode="prox" needs a geometry that defines norm_sq, not {geometry!r}')
    model, bound = _bound(model, lower_bound)
    if max_grad_norm is not None and not (_is_number(max_grad_norm) and max_grad_norm > 0):
        raise ValueError(f"max_grad_norm must be None or a positive number, got {max_grad_norm!r}")
    on_nonfinite = _one_of("on_nonfinite", on_nonfinite, ("skip", "raise"))
    if isinstance(process_group, str) and process_group != "auto":
        raise ValueError(f'process_group must be "auto", None or a process group, got {process_group!r}')
    if fused and not isinstance(geometry, Diagonal):
        raise ValueError(f"fused=True is there for the Diagonal geometry, not for {geometry!r}: leave it at None")
    if fused and foreach:
        raise ValueError("fused=True and foreach=True exclude each other")
    return Settings(
        model,
        geometry,
        averaging if averaging.beta > 0 else None,
        weight_decay_mode,  # type: ignore[arg-type]
        bound,
        None if max_grad_norm is None else float(max_grad_norm),
        on_nonfinite,  # type: ignore[arg-type]
        process_group,
        foreach is not False,
        bool(fused),
    )


def check_rate(name: str, value: Any) -> Any:
    """A learning rate or weight decay, refused if it is no finite number of at least 0; tensors only for ``lr``.

    Numbers become Python floats: NumPy's would make a checkpoint one that ``torch.load`` refuses.
    """
    number = value
    if isinstance(value, torch.Tensor) and name == "lr":
        if value.numel() != 1:
            raise ValueError(f"lr must be a number or a tensor of one element, got one of shape {tuple(value.shape)}")
        if value.device.type != "cpu":
            return value  # reading it would wait for the device
        number = value.item()
    if not _is_number(number):
        raise TypeError(f"{name} must be a number, got {number!r}")
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {number!r}")
    return value if isinstance(value, torch.Tensor) else float(value)


def check_bound(value: Any) -> float:
    """A lower bound, refused if it is no finite number."""
    if not _is_number(value) or not math.isfinite(value):
        raise ValueError(f'lower_bound must be a finite number, "estimate" or an Estimate, got {value!r}')
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return str(value)


def _bound(model: Model, lower_bound: float | str | Estimate) -> tuple[Model, float | Estimate]:
    """The model with a bound of 0, and the bound that the optimizer subtracts (f − C is all that a model sees)."""
    own = model.lower_bound
    if not _is_number(own):
        raise ValueError(
            f"lower_bound of an optimizer's model must be a number, got {own!r}; step(lower_bound=...) takes a batch's"
        )
    if isinstance(model, Linear):
        if lower_bound != 0.0:
            raise ValueError(f"the linear model (SGD) knows no lower bound, got lower_bound={lower_bound!r}")
        return model, 0.0
    if own != 0.0:
        if lower_bound != 0.0:
            raise ValueError(f"lower_bound was given twice: {own!r} in the model and {lower_bound!r} to the optimizer")
        lower_bound = own
        model = dataclasses.replace(model, lower_bound=0.0)  # type: ignore[type-var]
    if isinstance(lower_bound, Estimate):
        return model, lower_bound
    if isinstance(lower_bound, str) and lower_bound == "estimate":
        return model, Estimate()
    return model, check_bound(lower_bound)
