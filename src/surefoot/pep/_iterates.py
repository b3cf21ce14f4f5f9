"""Statements about whole runs: the worst last and averaged iterate of subgradient descent against Ω_last and Ω_avg."""

from __future__ import annotations

import itertools
import math
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from surefoot._base.arguments import whole
from surefoot.pep._solver import LARGE
from surefoot.pep._statement import Case, Worst, positive, statement
from surefoot.theory import bounds, models, schedules

FUNCTIONS = 2
"""Losses of the stochastic statements, drawn with equal probability."""
LONGEST_TREE = 3
"""Steps of the stochastic statements: every further one doubles the number of points."""


def _runs(horizons: tuple[int, ...], factors: tuple[float, ...]) -> list[Case]:
    """Cases with rates that are multiples of D/(G√T)."""
    return [
        {"lr": factor / steps**0.5, "steps": steps, "schedule": schedule}
        for steps, schedule, factor in itertools.product(horizons, ("constant", "inverse_sqrt", "linear"), factors)
    ]


WHOLE = _runs((2, 4, 8), (0.25, 0.5, 1.0, 2.0, 4.0))
TREES = _runs((2, 3), (0.5, 1.0, 2.0))


@statement("last-iterate", "subgradient descent: f(x_T) − f⋆ is at most Ω_last", WHOLE)
def last_iterate(
    *, lr: float, steps: int, schedule: str = "constant", lipschitz: float = 1.0, distance: float = 1.0
) -> Worst:
    """The worst f(x_T) − f⋆ of subgradient descent x_{t+1} = x_t − α_t g_t, against Ω_last (Theorem 3.4).

    Over convex, G-Lipschitz f with a minimiser within distance D of x_1; α_t = lr·η_t for a ``schedule`` of T =
    ``steps`` factors, given by name. Ω_last has δ_t = ½ α_t G². It is an upper bound, and in general not a tight one.

    >>> last_iterate(lr=1.0, steps=1).verdict
    'tight'
    """
    return _worst(lr, steps, schedule, lipschitz, distance, functions=1, last=True)


@statement(
    "average-iterate",
    "subgradient descent: f at the average is at most Ω_avg, exactly so for constant α ≥ D/(G√T)",
    WHOLE,
)
def average_iterate(
    *, lr: float, steps: int, schedule: str = "constant", lipschitz: float = 1.0, distance: float = 1.0
) -> Worst:
    """The worst f(x̄) − f⋆ at the α-weighted average x̄ of x_1 … x_T, against Ω_avg (Theorem 3.3).

    The setting is that of :func:`last_iterate`. For constant rates of at least D/(G√T) and T > 1 the bound is exact.

    >>> average_iterate(lr=1.0, steps=2).verdict
    'tight'
    """
    return _worst(lr, steps, schedule, lipschitz, distance, functions=1, last=False)


@statement("stochastic-last-iterate", "two losses, all paths: E f(x_T) − f⋆ is at most Ω_last", TREES)
def stochastic_last_iterate(
    *, lr: float, steps: int, schedule: str = "constant", lipschitz: float = 1.0, distance: float = 1.0
) -> Worst:
    """The worst E f(x_T) − f⋆ of stochastic subgradient descent on f = ½(f_1 + f_2), against Ω_last (Theorem 3.4).

    Both losses are convex and G-Lipschitz, and drawn independently in every step; all paths of up to three steps are
    written out as a tree. f_1 = f_2 is the case of :func:`last_iterate`, which cannot be worse.

    >>> stochastic_last_iterate(lr=1.0, steps=2).agrees
    True
    """
    return _worst(lr, steps, schedule, lipschitz, distance, functions=FUNCTIONS, last=True)


@statement("stochastic-average-iterate", "two losses, all paths: E f at the average is at most Ω_avg", TREES)
def stochastic_average_iterate(
    *, lr: float, steps: int, schedule: str = "constant", lipschitz: float = 1.0, distance: float = 1.0
) -> Worst:
    """The worst E f(x̄) − f⋆ in the setting of :func:`stochastic_last_iterate`, against Ω_avg (Theorem 3.3).

    >>> stochastic_average_iterate(lr=1.0, steps=2).verdict
    'tight'
    """
    return _worst(lr, steps, schedule, lipschitz, distance, functions=FUNCTIONS, last=False)


def _worst(
    lr: float, steps: int, schedule: str, lipschitz: float, distance: float, *, functions: int, last: bool
) -> Worst:
    positive(lr=lr, lipschitz=lipschitz, distance=distance)
    whole("steps", steps, 1)
    if functions > 1 and steps > LONGEST_TREE:
        raise ValueError(f"steps must be at most {LONGEST_TREE}: the tree doubles with every step, got {steps!r}")
    factors = schedules.from_name(schedule, steps)
    rates = lr * factors
    deltas = models.Linear().step(np.zeros(steps), lipschitz**2, rates).delta
    bound = (bounds.last_iterate if last else bounds.average_iterate)(rates, deltas, distance).total

    def build(problem: Any) -> dict[str, Any]:
        return _descent(problem, [float(rate) for rate in rates], lipschitz, distance, functions, last)

    steep = lr * lipschitz * math.sqrt(steps) >= distance * (1 - 1e-12)
    exact = not last and steps > 1 and steep and bool((factors == 1).all())
    return Worst(build, bound, "equal" if exact else "at most", accuracy=LARGE)


def _descent(
    problem: Any, rates: list[float], lipschitz: float, distance: float, functions: int, last: bool
) -> dict[str, Any]:
    """All paths of stochastic subgradient descent on the mean of the functions; with one function there is one path."""
    from PEPit.functions import ConvexLipschitzFunction

    parts = [problem.declare_function(ConvexLipschitzFunction, M=lipschitz) for _ in range(functions)]
    mean = reduce(add, parts) / functions  # sum() starts with 0, to which PEPit's objects do not add
    solution = mean.stationary_point()
    start = problem.set_initial_point()
    problem.add_constraint((start - solution) ** 2 <= distance**2)

    # A path is its end x_t and its sum Σ α_k x_k.
    paths = [(start, rates[0] * start)]
    values: list[Any] = []
    for step, rate in enumerate(rates):
        following = []
        values = []
        for point, total in paths:
            answers = [part.oracle(point) for part in parts]
            values.append(reduce(add, [value for _, value in answers]) / functions)
            for gradient, _ in answers if step + 1 < len(rates) else ():
                moved = point - rate * gradient
                following.append((moved, total + rates[step + 1] * moved))
        paths = following or paths
    if not last:
        values = [mean(total / sum(rates)) for _, total in paths]
    problem.set_performance_metric(reduce(add, values) / len(values) - mean(solution))
    return {}
