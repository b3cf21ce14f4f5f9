"""Methods by name, ``sps(lower_bound=-2)``, as model objects, or (for networks) as any torch optimizer."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from surefoot._base.arguments import number, parse_call, unknown
from surefoot._identity import Identity, identify
from surefoot.theory.level import Rule
from surefoot.theory.models import NAMED, Model

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

EXACT = "spp"
"""The exact model: no formula, the problem's prox instead."""

OPTIMIZERS = {
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

KNOWN = (*NAMED, EXACT, *OPTIMIZERS)
"""All names of methods."""

_HAS_LEVEL = "surefoot"
"""The optimizer with a level of its own, unless it is given a lower bound."""
_NAMES = {model: name for name, model in NAMED.items()}


@dataclass(frozen=True)
class Method:
    """A method of a sweep: a model of the loss, the exact one (``model=None``, which needs the problem's prox), or an
    optimizer of torch."""

    name: str
    """How it was asked for, in its shortest form: ``sps``, ``sps(lower_bound=-2)``, ``power(p=0.25)``, ``spp``."""
    model: Model | None = None
    optimizer: str | Callable[[Any, float], Any] | None = None
    """For networks, in place of a model: a name of OPTIMIZERS, or a function ``optimizer(parameters, lr)``."""
    level: Rule | None = None
    """In place of the model's lower bound, ``sps(lower_bound=level)``."""
    options: tuple[tuple[str, Any], ...] = ()
    """Of a named optimizer."""

    @property
    def is_exact(self) -> bool:
        """Whether the method is SPP."""
        return self.model is None and self.optimizer is None

    @property
    def lower_bound(self) -> float | None:
        """C, or None if the method knows none (SGD, SPP, most of torch) or has a level."""
        if isinstance(self.optimizer, str) and "lower_bound" in _parameters(self.optimizer):
            bound = dict(self.options).get("lower_bound", None if self.optimizer == _HAS_LEVEL else 0.0)
        else:
            bound = None if self.model is None or self.level is not None else self.model.lower_bound
        return float(bound) if isinstance(bound, int | float) and bound > float("-inf") else None

    @property
    def identity(self) -> str:
        """What the numbers depend on, as text: the shortest name, and for code from elsewhere also what it does.

        Runs are remembered under this text, so that a model of your own that was edited since is computed anew.

        >>> from surefoot.theory import models
        >>> Method("my favourite", models.Truncated(lower_bound=-2)).identity
        'sps(lower_bound=-2)'
        """
        if self.is_exact:
            return EXACT
        if isinstance(self.optimizer, str):
            return f"{self.optimizer}{dict(sorted(self.options))}"
        name = self.name if self.model is None else _model_name(self.model, self.level)
        return name if type(self.model) in _NAMES else f"{name}#{self.code.digest}"

    @property
    def code(self) -> Identity:
        """The identity of the user's code in the method: a model or an optimizer from elsewhere."""
        source = self.optimizer if self.model is None else self.model
        is_ours = source is None or type(source) in _NAMES or isinstance(source, str)
        return identify() if is_ours else identify(source)


def parse_method(spec: str | Model | Method, *, lower_bound: float | None = None) -> Method:
    """The method that a name, a model object or a ``Method`` stands for, with its shortest name.

    Args:
        spec: A name with parameters, or a model (of your own, too).
        lower_bound: C of the methods that are given by a name without one of their own; SGD and SPP know none.

    >>> parse_method("sps( lower_bound = 0.0 )").name
    'sps'
    >>> from surefoot.theory import models
    >>> parse_method(models.Power(0.25, lower_bound=-2)).name
    'power(p=0.25, lower_bound=-2)'
    >>> parse_method("sps(lower_bound=level(share=0.3))").level
    Rule(share=0.3, first=0.1, smoothing=0.9)
    """
    if isinstance(spec, Method):
        return spec
    if isinstance(spec, Model):
        return Method(_model_name(spec), spec)
    if not isinstance(spec, str):
        raise TypeError(f"methods must be names, models or Method objects, got {spec!r}")
    name, options = parse_call(spec)
    name = name.lower().replace("_", "-")
    if name in OPTIMIZERS:
        return _named_optimizer(name, options, lower_bound)
    if name not in NAMED and name != EXACT:
        raise unknown("method", name, KNOWN)
    allowed = [] if name == EXACT else [field.name for field in _fields(NAMED[name])]
    _check(f"parameter of method {name!r}", options, allowed)
    if name == EXACT:
        return Method(EXACT)
    rule: Rule | None = None
    try:
        if isinstance(options.get("lower_bound"), str):
            rule = parse_level(options.pop("lower_bound"))
        for key, value in options.items():
            number(key, value)
        if lower_bound is not None and "lower_bound" in allowed and rule is None:
            options.setdefault("lower_bound", lower_bound)
        if "p" in allowed and "p" not in options:
            raise ValueError("it needs its exponent, as in 'power(p=0.25)'")
        model = NAMED[name](**options)
    except ValueError as error:
        raise ValueError(f"method {spec!r}: {error}") from None
    return Method(_model_name(model, rule), model, level=rule)


def parse_methods(
    specs: str | Model | Method | Iterable[str | Model | Method], *, lower_bound: float | None = None
) -> tuple[Method, ...]:
    """The methods of a study: at least one, no two of them with the same name.

    >>> [method.name for method in parse_methods(["sgd", "sps"], lower_bound=-2)]
    ['sgd', 'sps(lower_bound=-2)']
    """
    items: Any = [specs] if isinstance(specs, str | Model | Method) else specs
    if not isinstance(items, Iterable):
        raise TypeError(f"methods must be a list of names or models, got {specs!r}")
    methods = tuple(parse_method(spec, lower_bound=lower_bound) for spec in items)
    if not methods:
        raise ValueError(f"methods must name at least one method, got {specs!r}; known: {', '.join(KNOWN)}")
    for position, method in enumerate(methods):
        if any(method.name == other.name or method.identity == other.identity for other in methods[:position]):
            raise ValueError(f"methods must be distinct, got {method.name!r} twice")
    return methods


def parse_level(text: str) -> Rule:
    """The level that ``level`` or ``level(share=0.3)`` stands for.

    >>> parse_level("level(share=0.3)")
    Rule(share=0.3, first=0.1, smoothing=0.9)
    """
    name, options = parse_call(text)
    if name != "level":
        raise ValueError(f"lower_bound must be a number, level or level(share=...), got {text!r}")
    _check("parameter of 'level'", options, [field.name for field in fields(Rule)])
    return Rule(**options)


def _check(kind: str, options: dict[str, Any], allowed: Iterable[str]) -> None:
    for key in options:
        if key not in allowed:
            raise unknown(kind, key, sorted(allowed) or ["none"])


def has_level(identity: str) -> bool:
    """Whether a method, given by its identity, has a level: its index is the safe one already.

    >>> has_level("ngn(lower_bound=level)"), has_level("momo{'lower_bound': 'level'}"), has_level("ngn")
    (True, True, False)
    """
    is_given = "lower_bound=level" in identity or "'lower_bound': 'level" in identity
    return is_given or (identity.partition("{")[0] == _HAS_LEVEL and "'lower_bound'" not in identity)


def build(method: Method, parameters: list[Tensor], lr: float, model: Module | None = None) -> Optimizer:
    """The torch optimizer of a method; ``model`` is for functions that want it in place of its parameters."""
    from surefoot.optim import Level, ModelBased

    def level_of(rule: Rule) -> Level:
        return Level(rule.share, rule.first, rule.smoothing)

    if method.model is not None:
        bound = 0.0 if method.level is None else level_of(method.level)
        return ModelBased(parameters, lr, model=method.model, lower_bound=bound)
    if method.optimizer is None:
        raise ValueError(f"the method {method.name!r} cannot train a network: it needs a prox")
    if not isinstance(method.optimizer, str):
        return optimizer_from(method.optimizer, parameters, lr, model, f"optimizer of the method {method.name!r}")
    options = dict(method.options)
    if method.optimizer == "sgd-momentum":
        options.setdefault("momentum", 0.9)
    if str(options.get("lower_bound")).startswith("level"):
        options["lower_bound"] = level_of(parse_level(options["lower_bound"]))
    optimizer: Optimizer = _class(method.optimizer)(parameters, lr=lr, **options)
    return optimizer


def optimizer_from(factory: Any, parameters: list[Tensor], lr: float, model: Module | None, name: str) -> Optimizer:
    """What ``factory(parameters, lr)`` gives, or ``factory(model, lr)`` if that is what its first argument is called.

    A scheduler that it attaches is refused: its place is not part of a run's state.
    """
    import torch

    try:
        first = next(iter(inspect.signature(factory).parameters), "")
    except (TypeError, ValueError):  # a function in C has no signature
        first = ""
    wants_model = model is not None and first in ("model", "module", "net", "network")
    optimizer: Optimizer = factory(model if wants_model else parameters, lr)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"{name} must give a torch.optim.Optimizer for (parameters, lr), got {optimizer!r}")
    if any("initial_lr" in group for group in optimizer.param_groups):
        raise ValueError(
            f"{name} must not attach a learning-rate scheduler, whose place is not kept when a run is put aside: give "
            "the factors as schedule="
        )
    return optimizer


def _named_optimizer(name: str, options: dict[str, Any], lower_bound: float | None) -> Method:
    """A named optimizer; options that it does not have, or does not take, are refused before any work starts."""
    import torch

    allowed = _parameters(name)
    _check(f"parameter of method {name!r}", options, allowed)
    if lower_bound is not None and "lower_bound" in allowed and name != _HAS_LEVEL:
        options = {"lower_bound": lower_bound, **options}
    text = ", ".join(f"{key}={value!r}" for key, value in options.items())
    method = Method(f"{name}({text})" if text else name, optimizer=name, options=tuple(options.items()))
    try:
        build(method, [torch.nn.Parameter(torch.zeros(1))], 1e-3)
    except (TypeError, ValueError) as error:
        raise ValueError(f"method {name!r}: {error}") from None
    return method


def _class(name: str) -> Any:
    module, _, attribute = OPTIMIZERS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _parameters(name: str) -> set[str]:
    """What an optimizer takes beside the parameters and the rate."""
    from surefoot.optim import Options

    parameters = inspect.signature(_class(name)).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        names |= set(Options.__annotations__)
    return names - {"params", "lr", "process_group"}


def _fields(model: Any) -> list[Field[Any]]:
    """The parameters of a model or of its class; one that is no dataclass has none that could be known."""
    return [field for field in fields(model) if field.init] if is_dataclass(model) else []


def _model_name(model: Model, rule: Rule | None = None) -> str:
    """``name(parameter=value)`` with the parameters that differ from their defaults."""
    bound: object = model.lower_bound
    if not isinstance(bound, int | float):
        raise TypeError(f"lower_bound of a method in a study must be one number, got {bound!r} of {model!r}")
    parts = _changed(model)
    if rule is not None:
        level = _changed(rule)
        parts.append(f"lower_bound=level({', '.join(level)})" if level else "lower_bound=level")
    name = _NAMES.get(type(model), type(model).__name__)
    return f"{name}({', '.join(parts)})" if parts else name


def _changed(value: Any) -> list[str]:
    """The parameters that differ from their defaults, each as ``name=value``."""
    parts = []
    for field in _fields(value):
        own = getattr(value, field.name)
        try:
            if bool(own == field.default):
                continue
        except ValueError:  # an array, of which no default is made
            pass
        if isinstance(own, float):
            text = f"{own:g}" if float(f"{own:g}") == own else repr(own)
        else:
            text = str(getattr(own, "__name__", None) or repr(own))
        parts.append(f"{field.name}={text}")
    return parts
