"""The statements by name, each with the cases that ``surefoot pep`` verifies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.pep import _indices, _iterates, _levels
from surefoot.pep._result import Value, Verification

Case = Mapping[str, Value]

LIPSCHITZ = (0.5, 1.0, 2.0)
"""Values of G in the figure of Λ."""
RATES = tuple(float(rate) for rate in np.logspace(-2, 2, 25))
"""Values of α in the figure of Λ."""
HORIZONS = (2, 4, 8)
SCHEDULES = ("constant", "inverse_sqrt", "linear")
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Rates of the whole runs, as multiples of D/(G√T)."""


@dataclass(frozen=True)
class Statement:
    """A function of this room, and the cases it is run on by default."""

    name: str
    description: str
    function: Callable[..., Verification]
    cases: tuple[Case, ...]


def _grid(**values: tuple[Value, ...]) -> tuple[Case, ...]:
    return tuple(dict(zip(values, row, strict=True)) for row in itertools.product(*values.values()))


def _runs(horizons: tuple[int, ...], factors: tuple[float, ...]) -> tuple[Case, ...]:
    return tuple(
        {"lr": factor / steps**0.5, "steps": steps, "schedule": schedule}
        for steps, schedule, factor in itertools.product(horizons, SCHEDULES, factors)
    )


_ALL = (
    Statement(
        "spp",
        "index of the proximal point on convex losses: at most min{½αG², f − inf f}, exactly Λ(α)",
        _indices.spp_index,
        _grid(lipschitz=LIPSCHITZ, lr=RATES),
    ),
    Statement(
        "spp-weakly-convex",
        "the same on η-weakly convex losses: at most min{½αG²/(1 − αη), f − inf f}, and an exact formula",
        _indices.spp_index_weakly_convex,
        tuple(
            {"lipschitz": lipschitz, "weak_convexity": eta, "lr": product / eta}
            for lipschitz, eta, product in itertools.product(LIPSCHITZ, (0.1, 1.0, 10.0), (0.01, 0.1, 0.5, 0.9))
        ),
    ),
    Statement(
        "one-step",
        "smallest index of the base inequality: δ for SGD and SPS, above δ for NGN, δ_safe for all",
        _indices.one_step_index,
        _grid(method=tuple(_indices.METHODS), lr=(0.1, 1.0, 10.0, 100.0))
        + _grid(method=tuple(_indices.METHODS), lr=(0.01, 1.0), loss=(0.5,), grad_sq=(4.0,)),
    ),
    Statement(
        "last-iterate",
        "subgradient descent: f(x_T) − f⋆ is at most Ω_last",
        _iterates.last_iterate,
        _runs(HORIZONS, FACTORS),
    ),
    Statement(
        "average-iterate",
        "subgradient descent: f at the average is at most Ω_avg, exactly so for constant α ≥ D/(G√T)",
        _iterates.average_iterate,
        _runs(HORIZONS, FACTORS),
    ),
    Statement(
        "stochastic-last-iterate",
        "two losses, all paths: E f(x_T) − f⋆ is at most Ω_last",
        _iterates.stochastic_last_iterate,
        _runs((2, 3), (0.5, 1.0, 2.0)),
    ),
    Statement(
        "stochastic-average-iterate",
        "two losses, all paths: E f at the average is at most Ω_avg",
        _iterates.stochastic_average_iterate,
        _runs((2, 3), (0.5, 1.0, 2.0)),
    ),
    Statement(
        "one-step-level",
        "smallest index of the base inequality with a level C: δ_safe at f − C, on both sides of the infimum",
        _levels.one_step_level,
        _grid(method=tuple(_levels.METHODS), lr=(0.1, 1.0, 10.0), level=(-2.0, 0.0, 0.3, 0.9)),
    ),
    Statement(
        "last-iterate-level",
        "two steps with a level: Ω_last holds if earlier iterates pay for the level, and fails if they do not",
        _levels.last_iterate_level,
        _grid(lr=(1.0, 10.0), level=(2.0,), scale=(0.02, 0.3), price=_levels.PRICES),
    ),
)

STATEMENTS: Mapping[str, Statement] = {statement.name: statement for statement in _ALL}
NAMES: Mapping[str, str] = {statement.name: statement.description for statement in _ALL}
"""Name of each statement, with its description in one line."""
