"""Checks of a search's arguments: an error names argument, value and what is allowed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.runs import Floats, Run, RunFactory
from surefoot.theory import schedules

OWN_RATES = [float(lr) for lr in np.geomspace(1e-6, 1e3, 28)]
"""The rates of a search that was given none: a factor of 2.15 apart."""


def factories_of(run_factory: Any, seeds: int) -> dict[str, RunFactory]:
    """The factory of each method; one without a name stands under the empty one."""
    if isinstance(run_factory, Mapping):
        if not run_factory:
            raise ValueError("run_factory must hold at least one method, got none")
        factories = {str(name): factory for name, factory in run_factory.items()}
    else:
        factories = {"": run_factory}
    for name, factory in factories.items():
        if not callable(factory):
            where = f"run_factory[{name!r}]" if name else "run_factory"
            raise TypeError(f"{where} must be called as run_factory(lr, seed) and return a run, got {factory!r}")
    return {name: _with_seed(factory, seeds) for name, factory in factories.items()}


@dataclass(frozen=True)
class OfRate:
    """A function of the rate alone as a factory, for one seed."""

    function: Callable[[float], Run]

    def __call__(self, lr: float, seed: int) -> Run:
        """The run of a rate."""
        return self.function(lr)


def _with_seed(factory: Any, seeds: int) -> RunFactory:
    """A factory, which may also be given as a function of the rate alone if there is one seed."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # a builtin without a signature
        return factory  # type: ignore[no-any-return]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) != 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return factory  # type: ignore[no-any-return]
    if seeds > 1:
        raise ValueError(f"seeds asks for {seeds} seeds, but run_factory takes the rate only, not (lr, seed)")
    return OfRate(factory)


def schedule_of(schedule: str | ArrayLike | None, factories: Mapping[str, RunFactory], horizon: int) -> Floats:
    """The factors of the rates; the argument and what the factories know must agree."""
    if isinstance(schedule, str):
        schedule = schedules.from_name(schedule, horizon)
    known = [value for factory in factories.values() if (value := _factors_of(factory, horizon)) is not None]
    arrays = [np.asarray(value, float) for value in (schedule, *known) if value is not None] or [np.ones(horizon)]
    for factors in arrays:
        if factors.shape != (horizon,):
            raise ValueError(f"schedule must have {horizon} factors, one per step of the horizon, got {factors.shape}")
        if not (np.isfinite(factors) & (factors >= 0)).all() or not factors.any():
            raise ValueError("schedule must have positive, finite factors, or 0 at steps that do not move")
        if not np.array_equal(factors, arrays[0]):
            raise ValueError("schedule must be the one of the runs; those given (or of the methods) differ")
    if len(known) not in (0, len(factories)):
        raise ValueError("run_factory: either all methods have a schedule, or none")
    return arrays[0]


def _factors_of(factory: Any, horizon: int) -> Any:
    """The factors that a factory has, or None; one with a scheduler of torch finds them for a horizon."""
    return factory.factors(horizon) if hasattr(factory, "factors") else getattr(factory, "schedule", None)
