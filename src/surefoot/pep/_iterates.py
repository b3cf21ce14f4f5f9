"""Statements about whole runs: the worst last and averaged iterate of subgradient descent against Ω_last and Ω_avg."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from surefoot.pep._result import Relation, Verification, positive, verification
from surefoot.pep._solver import LARGE, attempts, solve
from surefoot.theory import bounds, models, schedules
from surefoot.theory.arguments import whole

FUNCTIONS = 2
"""Losses of the stochastic statements, drawn with equal probability."""
LONGEST_TREE = 3
"""Steps of the stochastic statements: every further one doubles the number of points."""


def last_iterate(
    *, lr: float, steps: int, schedule: str = "constant", lipschitz: float = 1.0, distance: float = 1.0
) -> Verification:
    """The worst f(x_T) − f⋆ of subgradient descent x_{t+1} = x_t − α_t g_t, against Ω_last (Theorem 3.4).

    Over convex, G-Lipschitz f with a minimiser within distance D of x_1; α_t = lr·η_t for a ``schedule`` of T =
    ``steps`` factors, given by name. Ω_last has δ_t = ½ α_t G². It is an upper bound, and in general not a tight one.

    >>> last_iterate(lr=1.0, steps=1).verdict
    'tight'
    """
    return _verify("last-iterate", lr, steps, schedule, lipschitz, distance, functions=1, last=True)


def average_iterate(
    *, lr: float, steps: int, schedule: str = "constant", lipschitz: float = 1.0, distance: float = 1.0
) -> Verification:
    """The worst f(x̄) − f⋆ at the α-weighted average x̄ of x_1 … x_T, against Ω_avg (Theorem 3.3).

    The setting is that of :func:`last_iterate`. For constant rates of at least D/(G√T) and T > 1 the bound is exact.

    >>> average_iterate(lr=1.0, steps=2).verdict
    'tight'
    """
    return _verify("average-iterate", lr, steps, schedule, lipschitz, distance, functions=1, last=False)


def stochastic_last_iterate(
    *, lr: float, steps: int, schedule: str = "constant", lipschitz: float = 1.0, distance: float = 1.0
) -> Verification:
    """The worst E f(x_T) − f⋆ of stochastic subgradient descent on f = ½(f_1 + f_2), against Ω_last (Theorem 3.4).

    Both losses are convex and G-Lipschitz, and drawn independently in every step; all paths of up to three steps are
    written out as a tree. f_1 = f_2 is the case of :func:`last_iterate`, which cannot be worse.

    >>> stochastic_last_iterate(lr=1.0, steps=2).agrees
    True
    """
    return _verify("stochastic-last-iterate", lr, steps, schedule, lipschitz, distance, functions=FUNCTIONS, last=True)


def stochastic_average_iterate(
    *, lr: float, steps: int, schedule: str = "constant", lipschitz: float = 1.0, distance: float = 1.0
) -> Verification:
    """The worst E f(x̄) − f⋆ in the setting of :func:`stochastic_last_iterate`, against Ω_avg (Theorem 3.3).

    >>> stochastic_average_iterate(lr=1.0, steps=2).verdict
    'tight'
    """
    return _verify(
        "stochastic-average-iterate", lr, steps, schedule, lipschitz, distance, functions=FUNCTIONS, last=False
    )


def _verify(
    statement: str, lr: float, steps: int, schedule: str, lipschitz: float, distance: float, functions: int, last: bool
) -> Verification:
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
    relation: Relation = "equal" if exact else "at most"
    return verification(
        statement,
        {"lr": lr, "steps": steps, "schedule": schedule, "lipschitz": lipschitz, "distance": distance},
        solve(build, attempts(LARGE)),
        theory=bound,
        relation=relation,
    )


def _descent(
    problem: Any, rates: list[float], lipschitz: float, distance: float, functions: int, last: bool
) -> dict[str, Any]:
    """All paths of stochastic subgradient descent on the mean of the functions; with one function there is one path."""
    from PEPit.functions import ConvexLipschitzFunction

    parts = [problem.declare_function(ConvexLipschitzFunction, M=lipschitz) for _ in range(functions)]
    mean = _sum(parts) / functions
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
            values.append(_sum([value for _, value in answers]) / functions)
            for gradient, _ in answers if step + 1 < len(rates) else ():
                moved = point - rate * gradient
                following.append((moved, total + rates[step + 1] * moved))
        paths = following or paths
    if not last:
        values = [mean(total / sum(rates)) for _, total in paths]
    problem.set_performance_metric(_sum(values) / len(values) - mean(solution))
    return {}


def _sum(terms: list[Any]) -> Any:
    """PEPit's objects do not add to the integer 0."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
