"""The steps that other methods would have taken at the same point, from loss, ‖g‖² and rate alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from surefoot._base.arguments import one_of, parse_call
from surefoot.rules import Floats
from surefoot.theory.models import NAMED, Model, Step


def parse_models(models: Any, lower_bound: float) -> dict[str, Model]:
    """Models by the names under which a trace shows them.

    ``lower_bound`` is C of those that are given by a name without one of their own.

    >>> parse_models(["sgd", "sps"], lower_bound=-2.0)
    {'sgd': Linear(), 'sps': Truncated(lower_bound=-2.0)}
    """
    if isinstance(models, str | Model) or not isinstance(models, Iterable):
        raise TypeError(f"models must be a sequence of names or models, got {models!r}")
    parsed: dict[str, Model] = {}
    for spec in models:
        name, model = _parse(spec, lower_bound)
        if name in parsed:
            raise ValueError(f"models must be distinct, got {name!r} twice")
        parsed[name] = model
    return parsed


def counterfactual(model: Model, loss: Floats, decrease: Floats, rate: Floats) -> Step:
    """Size and δ of a model's step where the linear model promises the decrease q = Σ_g α_g‖g_g‖² (= α‖g‖²).

    The size is that of the first parameter group, whose rate is ``rate``. What was not measured stays NaN.

    >>> counterfactual(NAMED["ngn"](), np.array([1.0]), np.array([2.0]), np.array([3.0]))
    Step(size=array([1.5]), delta=array([0.5]))
    """
    missing = np.isnan(loss) | np.isnan(decrease) | np.isnan(rate)
    step = model.step(np.where(missing, 1.0, loss), np.where(missing, 1.0, decrease), np.ones_like(rate))
    return Step(np.where(missing, np.nan, step.size * rate), np.where(missing, np.nan, step.delta))


def _parse(spec: Any, lower_bound: float) -> tuple[str, Model]:
    if isinstance(spec, Model):
        names = [name for name, kind in NAMED.items() if type(spec) is kind]
        return (names[0] if names else type(spec).__name__.lower()), spec
    if not isinstance(spec, str):
        raise TypeError(f"models must hold names or models, got {spec!r}")
    name, options = parse_call(spec)
    one_of("model", name, NAMED)
    if name != "sgd":
        options.setdefault("lower_bound", lower_bound)
    try:
        return spec, NAMED[name](**options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"model {spec!r}: {error}") from None
