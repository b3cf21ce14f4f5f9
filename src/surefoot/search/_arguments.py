"""Checks of a search's arguments: an error names argument, value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.runs import Floats, RunFactory
from surefoot.theory import schedules

OWN_RATES = [float(lr) for lr in np.geomspace(1e-6, 1e3, 28)]
"""The rates of a search that was given none: a factor of 2.15 apart."""


def factories_of(run_factory: Any) -> dict[str, RunFactory]:
    """The factory of each method; one without a name stands under the empty one."""
    if not isinstance(run_factory, Mapping):
        run_factory = {"": run_factory}
    if not run_factory:
        raise ValueError("run_factory must hold at least one method, got none")
    for name, factory in run_factory.items():
        if not callable(factory):
            where = f"run_factory[{name!r}]" if name else "run_factory"
            raise TypeError(f"{where} must be called as run_factory(lr, seed) and return a run, got {factory!r}")
    return {str(name): factory for name, factory in run_factory.items()}


def schedule_of(schedule: str | ArrayLike | None, factories: Mapping[str, RunFactory], horizon: int) -> Floats:
    """The factors of the rates; the argument and what the factories know must agree."""
    known = [value for factory in factories.values() if (value := _factors_of(factory, horizon)) is not None]
    if len(known) not in (0, len(factories)):
        raise ValueError("run_factory: either all methods have a schedule, or none")
    given = [value for value in (schedule, *known) if value is not None] or ["constant"]
    first, *others = (schedules.factors(value, horizon, may_rest=True)[1] for value in given)
    if not all(np.array_equal(first, other) for other in others):
        raise ValueError("schedule must be the one of the runs; those given (or of the methods) differ")
    return first


def _factors_of(factory: Any, horizon: int) -> Any:
    """The factors that a factory has, or None; those of a named schedule depend on the horizon."""
    return factory.factors(horizon) if hasattr(factory, "factors") else getattr(factory, "schedule", None)
