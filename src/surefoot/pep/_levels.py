"""Statements about a level in place of a lower bound: one step, and what becomes of the last-iterate bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot._base.arguments import number, one_of
from surefoot.pep._indices import base_inequality
from surefoot.pep._solver import LARGE
from surefoot.pep._statement import Worst, grid, positive, statement
from surefoot.theory import bounds, models

METHODS = {"sps": models.Truncated, "ngn": models.SquareRoot}
"""Methods that know a lower bound."""
PRICES = ("paid", "left out")


@statement(
    "one-step-level",
    "smallest index of the base inequality with a level C: δ_safe at f − C, on both sides of the infimum",
    grid(method=METHODS, lr=(0.1, 1.0, 10.0), level=(-2.0, 0.0, 0.3, 0.9)),
)
def one_step_level(*, method: str, lr: float, level: float, loss: float = 1.0, grad_sq: float = 1.0) -> Worst:
    """The smallest δ with which one step satisfies the base inequality with a level C, for every convex f ≥ 0.

        α(f(x) − max{f(u), C} − δ) ≤ ½‖x − u‖² − ½‖x⁺ − u‖²   for all u, where f(x) and ‖g‖² are given, x⁺ = x − τg

    The step τ is that of ``method``, ``sps`` or ``ngn``, at f(x) − C. Theory: δ_safe at f(x) − C
    (:func:`~surefoot.theory.models.safe_delta`). It is exact for a level at or above 0, the infimum of the class; below
    it f(u) cannot reach C, and δ_safe at f(x) − 0 is exact.

    >>> one_step_level(method="ngn", lr=10.0, level=0.5).verdict
    'tight'
    """
    one_of("method", method, METHODS)
    positive(lr=lr, loss=loss, grad_sq=grad_sq)
    if not number("level", level) < loss:
        raise ValueError(f"level must be below the loss, {loss:g}, got {level!r}")
    size = METHODS[method](lower_bound=float(level)).step(float(loss), float(grad_sq), float(lr)).size

    def build(problem: Any) -> dict[str, Any]:
        least_index, comparator_value = base_inequality(problem, loss, grad_sq, lr, size)
        problem.set_performance_metric(least_index - _excess(problem, level, comparator_value))
        return {}

    def index(bound: float) -> float:
        return float(models.safe_delta(float(loss), float(grad_sq), float(lr), size, lower_bound=bound))

    exact = index(max(float(level), 0.0))
    return Worst(build, index(float(level)), "equal" if level >= 0 else "at most", exact=exact)


@statement(
    "last-iterate-level",
    "two steps with a level: Ω_last holds if earlier iterates pay for the level, and fails if they do not",
    grid(lr=(1.0, 10.0), level=(2.0,), scale=(0.02, 0.3), price=PRICES),
)
def last_iterate_level(
    *, lr: float, level: float, price: str = "paid", scale: float = 0.02, distance: float = 1.0
) -> Worst:
    """The worst E f(x_2) − f⋆ of two steps, less noise and prices, against the bias D²/(4α) of Ω_last.

    f = ½(f_1 + f_2) with convex losses ≥ 0, one of which is drawn in each step. The first step is a full one at the
    level 0, the second one has t = ``scale`` at the level C = ``level``, which no loss drawn there is below. Noise is
    δ_1 + δ_2, with δ_safe at the two levels, and the price in the comparator x⋆ is ½E(C − f(x⋆, s_2))₊. In the
    last-iterate bound x_1 is a comparator, too: a loss may have been below C there. With ``price="paid"``
    ½E(C − f(x_1, s_2))₊ is taken off as well, and the bound holds. With ``price="left out"`` it fails where
    ½C(1 − 2t) is above the bias: partial sums of δ are no certificates with a level.

    >>> last_iterate_level(lr=1.0, level=2.0, price="left out").verdict
    'above'
    """
    positive(lr=lr, level=level, distance=distance)
    one_of("price", price, PRICES)
    number("scale", scale, least=0, most=1)
    rates = np.array([lr, lr])
    weights = [float(bounds.last_iterate(rates, unit, 0.0).total) for unit in np.eye(2)]
    bias = float(bounds.last_iterate(rates, np.zeros(2), distance).total)

    def build(problem: Any) -> dict[str, Any]:
        from surefoot.pep._functions import WeaklyConvexFunction

        parts = [problem.declare_function(WeaklyConvexFunction, weak_convexity=0.0) for _ in range(2)]
        mean = (parts[0] + parts[1]) / 2
        solution, start = mean.stationary_point(), problem.set_initial_point()
        problem.add_constraint((start - solution) ** 2 <= distance**2)
        metric = -mean(solution)
        for part in parts:
            gradient, value = part.oracle(start)
            metric = metric - weights[0] / 2 * (lr / 2 * gradient**2)
            metric = metric - _excess(problem, level, part(solution)) / 4
            if price == "paid":
                metric = metric - (weights[1] - 0.5) / 2 * _excess(problem, level, value)
            end = start - lr * gradient
            for drawn in parts:
                slope, height = drawn.oracle(end)
                problem.add_constraint(height >= level)
                index = (1 - scale) * (height - level) + scale**2 * lr / 2 * slope**2
                metric = metric + height / 4 - weights[1] / 4 * index
        problem.set_performance_metric(metric)
        return {}

    fails = price == "left out" and level / 2 * (1 - 2 * scale) > bias
    return Worst(build, bias, "above" if fails else "at most", accuracy=LARGE)


def _excess(problem: Any, level: float, value: Any) -> Any:
    """(C − f)₊ as a variable that is at least both; what is maximised has it with a minus."""
    from PEPit import Expression

    excess = Expression()
    problem.add_constraint(excess >= 0)
    problem.add_constraint(excess >= level - value)
    return excess
