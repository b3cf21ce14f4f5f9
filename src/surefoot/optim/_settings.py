"""Checked settings of an optimizer: everything that is the same for all parameter groups."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypedDict

import torch

from surefoot.optim._averaging import Averaging, Momentum, Unaveraged
from surefoot.optim._geometry import Diagonal, Euclidean, Geometry
from surefoot.optim._height import Estimate, Fixed, Height, Unbounded
from surefoot.optim._level import Level
from surefoot.theory.models import Linear, Model
from surefoot.theory.training import is_square_root, is_truncated

COMMON_OPTIONS = frozenset(
    (
        *("model", "geometry", "averaging", "beta", "betas", "eps", "momentum", "bias_correction", "p"),
        *("weight_decay_mode", "lower_bound", "max_grad_norm", "on_nonfinite", "process_group"),
        *("foreach", "fused", "listen", "maximize"),
    )
)
"""Arguments of the constructors that are no option of a single parameter group, unless the settings say so."""


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


HEIGHTS: dict[str, type[Height]] = {"estimate": Estimate, "level": Level}
"""What ``lower_bound`` may be in one word."""


@dataclass(frozen=True)
class Settings:
    """What :class:`~surefoot.optim.ModelBased` was constructed with, apart from the groups' own options.

    Errors name the argument and what is allowed.
    """

    model: Model
    """The model with a lower bound of 0: the optimizer's bound is the height."""
    geometry: Geometry
    given: Averaging
    """The averaging as it was given."""
    height: Height
    """The argument ``lower_bound``, which may be a number or a word."""
    weight_decay_mode: str
    max_grad_norm: float | None
    on_nonfinite: str
    process_group: Any
    foreach: bool
    fused: bool
    listen: bool
    maximize: bool
    averaging: Averaging = field(init=False)
    """The averaging that is done: none, if the given one does nothing."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise TypeError(f"model must be a surefoot.theory.models.Model, got {self.model!r}")
        if not isinstance(self.geometry, Geometry):
            raise TypeError(f"geometry must be a surefoot.optim.Geometry, got {self.geometry!r}")
        if not isinstance(self.given, Averaging):
            raise TypeError(f"averaging must be a surefoot.optim.Averaging or None, got {self.given!r}")
        check_choice("weight_decay_mode", self.weight_decay_mode, ("decoupled", "prox"))
        if self.weight_decay_mode == "prox":
            self._check_proximal()
        check_choice("on_nonfinite", self.on_nonfinite, ("skip", "raise"))
        check_process_group(self.process_group)
        clip = self.max_grad_norm
        if clip is not None and not (_is_number(clip) and clip > 0):
            raise ValueError(f"max_grad_norm must be None or a positive number, got {clip!r}")
        if self.fused and not self.geometry.fusable:
            raise ValueError(
                f"fused=True is there for the Diagonal geometry, not for {self.geometry!r}: leave it at None"
            )
        model, height = _model_and_height(self.model, self.height)
        checked = {
            "model": model,
            "height": height,
            "averaging": Unaveraged() if self.given.plain else self.given,
            "max_grad_norm": None if clip is None else float(clip),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _check_proximal(self) -> None:
        prox, model = 'weight_decay_mode="prox"', self.model
        if not (isinstance(model, Linear) or is_truncated(model) or is_square_root(model)):
            raise ValueError(f"{prox} is known for Linear, Truncated and SquareRoot, not for {model!r}")
        if not self.given.proximal:
            raise ValueError(f'{prox} does not go with {self.given.label}: use "decoupled"')
        if type(self.geometry).norm_sq is Geometry.norm_sq:
            raise ValueError(f"{prox} needs a geometry that defines norm_sq, not {self.geometry!r}")

    @property
    def momentum(self) -> Momentum | None:
        """The averaging whose β stands in the groups, where schedulers change it; None if there is no such thing."""
        return self.given if isinstance(self.given, Momentum) else None

    @property
    def group_options(self) -> dict[str, Any]:
        """What the groups hold of these settings, under torch's names."""
        if self.momentum is None:
            return {}
        if isinstance(self.geometry, Diagonal):
            return {"betas": (self.momentum.beta, self.geometry.beta), "eps": self.geometry.eps}
        return {"momentum": self.momentum.beta}

    def with_beta(self, beta: Any) -> Settings:
        """These settings with another β of the averaging."""
        assert self.momentum is not None
        return dataclasses.replace(self, given=dataclasses.replace(self.momentum, beta=beta))

    def resumed(self, group: Mapping[str, Any], states: Iterable[Mapping[str, Any]]) -> Settings:
        """These settings with β of a group whose averages are in the state: they go on, and do not start anew."""
        name = next(iter(self.group_options), None)
        if name is None or name not in group:
            return self
        changed = self.with_beta(group[name][0] if name == "betas" else group[name])
        return changed if any(changed.averaging.buffer_name in state for state in states) else self

    @property
    def described(self) -> dict[str, str | float | None]:
        """What a checkpoint says of these settings, beside the groups' options."""
        return {
            "model": _in_words(self.model),
            "geometry": type(self.geometry).__name__ if "betas" in self.group_options else _in_words(self.geometry),
            "averaging": type(self.momentum or self.averaging).__name__,
            "lower_bound": self.height.value if isinstance(self.height, Fixed) else _in_words(self.height),
            "weight_decay_mode": self.weight_decay_mode,
            "max_grad_norm": self.max_grad_norm,
        }

    def as_described(self, known: dict[str, Any]) -> Settings:
        """These settings with what a checkpoint says of numbers and modes."""
        changes: dict[str, Any] = {
            name: known[name] for name in ("weight_decay_mode", "max_grad_norm") if name in known
        }
        if isinstance(self.height, Fixed) and isinstance(known.get("lower_bound"), float):
            changes["height"] = Fixed(known["lower_bound"])
        return dataclasses.replace(self, **changes)

    def differences(self, loaded: Settings, known: dict[str, Any], options: dict[str, Any]) -> str:
        """What is different after a checkpoint was loaded; ``options`` are those of its first group."""
        before = self.described | {name: self.group_options[name] for name in options}
        now = loaded.described | options
        taken = [f"{name}={now[name]!r} in place of {before[name]!r}" for name in before if now[name] != before[name]]
        left = [f"it was saved with {name}={known[name]!r}" for name in loaded.described if known[name] != now[name]]
        return "; ".join(taken + left)

    @property
    def certifies(self) -> bool:
        """Whether δ may stand in a bound: Euclidean steps without averaging and clipping, the height permitting."""
        plain = isinstance(self.averaging, Unaveraged) and isinstance(self.geometry, Euclidean)
        return plain and self.max_grad_norm is None and self.height.certifies

    def buffer_names(self, geometry: Geometry) -> tuple[str, ...]:
        """The buffers of its size that are kept for every parameter that has this geometry."""
        average = () if self.averaging.buffer_name is None else (self.averaging.buffer_name,)
        direction = ("direction",) if self.averaging.compares and geometry.costly else ()
        return average + direction + geometry.buffer_names


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
        words = ", ".join(f'"{word}"' for word in HEIGHTS)
        raise ValueError(f"lower_bound must be a finite number, {words} or a surefoot.optim.Height, got {value!r}")
    return float(value)


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse what is not one of the words."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def check_process_group(group: Any) -> None:
    """Refuse words that name no process group."""
    if isinstance(group, str) and group != "auto":
        raise ValueError(f'process_group must be "auto", None or a process group, got {group!r}')


def _in_words(part: Any) -> str:
    """A part of the optimizer in words that stay the same from one process to the next."""
    return type(part).__name__ if repr(part) == object.__repr__(part) else repr(part)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _model_and_height(model: Model, lower_bound: Any) -> tuple[Model, Height]:
    """The model with a bound of 0, and the height that the optimizer gives to it (f − C is all that a model sees)."""
    model_bound = model.lower_bound
    if not _is_number(model_bound):
        raise ValueError(
            f"lower_bound of an optimizer's model must be a number, got {model_bound!r}; "
            "step(lower_bound=...) takes a batch's"
        )
    if isinstance(model, Linear):
        if lower_bound not in (0.0, Unbounded()):
            raise ValueError(f"the linear model (SGD) knows no lower bound, got lower_bound={lower_bound!r}")
        return model, Unbounded()
    if model_bound != 0.0:
        if lower_bound != 0.0:
            raise ValueError(
                f"lower_bound was given twice: {model_bound!r} in the model and {lower_bound!r} to the optimizer"
            )
        lower_bound = model_bound
        model = dataclasses.replace(model, lower_bound=0.0)  # type: ignore[type-var]
    if isinstance(lower_bound, str) and lower_bound in HEIGHTS:
        return model, HEIGHTS[lower_bound]()
    return model, lower_bound if isinstance(lower_bound, Height) else Fixed(check_bound(lower_bound))
