"""Torch optimizers as methods of a study on networks: by name, or any of yours."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot._base.arguments import unknown
from surefoot.runs._levels import parse_level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from surefoot.runs._methods import Method
    from surefoot.theory.level import Rule

NAMED = {
    "momo": "surefoot.optim:MoMo",
    "ngn-momentum": "surefoot.optim:NGNMomentum",
    "ngn-adam": "surefoot.optim:NGNAdam",
    "momo-adam": "surefoot.optim:MoMoAdam",
    "ngn-momentum-adam": "surefoot.optim:NGNMomentumAdam",
    "muon": "surefoot.optim:Muon",
    "sps-muon": "surefoot.optim:SPSMuon",
    "surefoot": "surefoot.optim:Surefoot",
    "sgd-momentum": "torch.optim:SGD",
    "adam": "torch.optim:Adam",
    "adamw": "torch.optim:AdamW",
}
"""Names of optimizers beyond the models, and where they are; torch is imported when one of them is used."""

LEVELLED = {"surefoot"}
"""Optimizers that have a level of their own, unless they are given a lower bound."""

_DEFAULTS: dict[str, dict[str, Any]] = {"sgd-momentum": {"momentum": 0.9}}


@dataclass(frozen=True)
class NamedOptimizer:
    """An optimizer by its name, with options; it can be sent to other processes."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, parameters: Iterable[Tensor], lr: float) -> Optimizer:
        """The optimizer for some parameters."""
        options = {**_DEFAULTS.get(self.name, {}), **dict(self.options)}
        if str(options.get("lower_bound")).startswith("level"):
            options["lower_bound"] = _level(parse_level(options["lower_bound"]))
        optimizer: Optimizer = _class(self.name)(parameters, lr=lr, **options)
        return optimizer

    @property
    def lower_bound(self) -> float | None:
        """C, or None if the optimizer knows none."""
        if "lower_bound" not in _options(self.name):
            return None
        bound = dict(self.options).get("lower_bound", None if self.name in LEVELLED else 0.0)
        return float(bound) if isinstance(bound, int | float) else None


def named(name: str, options: dict[str, Any], lower_bound: float | None) -> NamedOptimizer:
    """A named optimizer; options that it does not have, or does not take, are refused before any work starts."""
    import torch

    allowed = _options(name)
    for key in options:
        if key not in allowed:
            raise unknown(f"parameter of method {name!r}", key, sorted(allowed))
    if lower_bound is not None and "lower_bound" in allowed and name not in LEVELLED:
        options = {"lower_bound": lower_bound, **options}
    optimizer = NamedOptimizer(name, tuple(options.items()))
    try:
        optimizer([torch.nn.Parameter(torch.zeros(1))], 1e-3)
    except (TypeError, ValueError) as error:
        raise ValueError(f"method {name!r}: {error}") from None
    return optimizer


def build(method: Method, parameters: list[Tensor], lr: float, model: Module | None = None) -> Optimizer:
    """The torch optimizer of a method; ``model`` is for functions that want it in place of its parameters."""
    from surefoot.optim import ModelBased

    if method.model is not None:
        bound = 0.0 if method.level is None else _level(method.level)
        return ModelBased(parameters, lr, model=method.model, lower_bound=bound)
    if method.optimizer is None:
        raise ValueError(f"the method {method.name!r} cannot train a network: it needs a prox")
    return optimizer_from(method.optimizer, parameters, lr, model, f"optimizer of the method {method.name!r}")


def optimizer_from(factory: Any, parameters: list[Tensor], lr: float, model: Module | None, name: str) -> Optimizer:
    """What ``factory(parameters, lr)`` gives, or ``factory(model, lr)`` if that is what its first argument is called.

    A scheduler that it attaches is refused: its place is not part of a run's state.
    """
    import torch

    optimizer: Optimizer = factory(model if model is not None and _wants_model(factory) else parameters, lr)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"{name} must give a torch.optim.Optimizer for (parameters, lr), got {optimizer!r}")
    if any("initial_lr" in group for group in optimizer.param_groups):
        raise ValueError(
            f"{name} must not attach a learning-rate scheduler, whose place is not kept when a run is put aside: give "
            "the factors as schedule=, or TorchRun a function of the optimizer as scheduler="
        )
    return optimizer


def _wants_model(factory: Any) -> bool:
    try:
        names = list(inspect.signature(factory).parameters)
    except (TypeError, ValueError):  # a function in C has no signature
        return False
    return bool(names) and names[0] in ("model", "module", "net", "network")


def _level(rule: Rule) -> Any:
    from surefoot.optim import Level

    return Level(rule.share, rule.first, rule.smoothing)


def _class(name: str) -> Any:
    module, _, attribute = NAMED[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _options(name: str) -> set[str]:
    """What an optimizer takes beside the parameters and the rate."""
    from surefoot.optim import Options

    parameters = inspect.signature(_class(name)).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        names |= set(Options.__annotations__)
    return names - {"params", "lr", "process_group"}
