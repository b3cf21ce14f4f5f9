"""Statements about whole runs: the worst last and averaged iterate against Ω_last and Ω_avg, a level, and rates."""

from __future__ import annotations

import math
from functools import reduce
from operator import sub
from typing import Any

import numpy as np

from surefoot._base.arguments import number, one_of, whole
from surefoot.pep._one_step import excess
from surefoot.pep._solver import LARGE, WorstCase, interpolate, new_problem, positive, solve
from surefoot.theory import bounds, models, rates, schedules

LONGEST_TREE = 3
"""Steps of the stochastic statements: every further one doubles the number of points."""
PRICES = ("paid", "left out")


def last_iterate(
    *,
    lr: float,
    steps: int,
    schedule: str = "constant",
    lipschitz: float = 1.0,
    distance: float = 1.0,
    losses: int = 1,
) -> WorstCase:
    """The worst E f(x_T) − f⋆ of subgradient descent x_{t+1} = x_t − α_t g_t, against Ω_last (Theorem 3.4).

    Over convex, G-Lipschitz f with a minimiser within distance D of x_1; α_t = lr·η_t for a ``schedule`` of T =
    ``steps`` factors, given by name. Ω_last has δ_t = ½ α_t G². It is an upper bound, and in general not a tight one.
    With ``losses=2`` f = ½(f_1 + f_2), and one of the two is drawn in every step: all paths of up to three steps are
    written out as a tree. f_1 = f_2 is the case of one loss, which cannot be worse.

    >>> last_iterate(lr=1.0, steps=1).verdict
    'tight'
    """
    return _descent("last-iterate", lr, steps, schedule, lipschitz, distance, losses)


def average_iterate(
    *,
    lr: float,
    steps: int,
    schedule: str = "constant",
    lipschitz: float = 1.0,
    distance: float = 1.0,
    losses: int = 1,
) -> WorstCase:
    """The worst E f(x̄) − f⋆ at the α-weighted average x̄ of x_1 … x_T, against Ω_avg (Theorem 3.3).

    The setting is that of :func:`last_iterate`. For constant rates of at least D/(G√T) and T > 1 the bound is exact.

    >>> average_iterate(lr=1.0, steps=2).verdict
    'tight'
    """
    return _descent("average-iterate", lr, steps, schedule, lipschitz, distance, losses)


def _descent(
    name: str, lr: float, steps: int, schedule: str, lipschitz: float, distance: float, count: int
) -> WorstCase:
    """All paths of stochastic subgradient descent on the mean of the losses; with one loss there is one path."""
    case: dict[str, Any] = positive(lr=lr, lipschitz=lipschitz, distance=distance)
    case |= {"steps": whole("steps", steps, 1), "schedule": schedule}
    last = name == "last-iterate"
    if whole("losses", count, 1) > 1:
        name = f"stochastic-{name}"
        if steps > LONGEST_TREE:
            raise ValueError(f"steps must be at most {LONGEST_TREE}: the tree doubles with every step, got {steps!r}")
    factors = schedules.from_name(schedule, steps)
    rates = (lr * factors).tolist()
    deltas = models.Linear().step(np.zeros(steps), lipschitz**2, np.array(rates)).delta
    bound = (bounds.last_iterate if last else bounds.average_iterate)(rates, deltas, distance).total
    steep = lr * lipschitz * math.sqrt(steps) >= distance * (1 - 1e-12)
    exact = not last and steps > 1 and steep and bool((factors == 1).all())
    with new_problem() as problem:
        losses = _Losses(problem, count, distance)
        paths = [(losses.start, rates[0] * losses.start)]  # a path is its end x_t and its sum Σ α_k x_k
        values: list[Any] = []
        for step, rate in enumerate(rates):
            following, values = [], []
            for point, total in paths:
                gradients, value = losses.evaluate(point)
                values.append(value)
                for gradient in gradients if step + 1 < steps else ():
                    moved = point - rate * gradient
                    following.append((moved, total + rates[step + 1] * moved))
            paths = following or paths
        if not last:
            values = [losses.evaluate(total / sum(rates))[1] for _, total in paths]
        problem.set_performance_metric(sum(values) / len(values) - losses.lowest)
        for points in losses.points:
            interpolate(problem, points, lipschitz=lipschitz)
        return solve(problem, name, case, bound, "equal" if exact else "at most", accuracy=LARGE)


class _Losses:
    """Losses that are drawn with equal probability, by the points at which they were evaluated.

    The first point is a minimiser of their mean; ``start`` is within ``distance`` of it.
    """

    def __init__(self, problem: Any, count: int, distance: float) -> None:
        from PEPit import Expression, Point

        self._point, self._value = Point, Expression
        self.points: list[list[tuple[Any, Any, Any]]] = [[] for _ in range(count)]
        solution = Point()
        (*others, _), self.lowest = self.evaluate(solution)
        balance = reduce(sub, others, 0 * solution)  # the subgradients add up to zero
        self.points[-1][0] = (solution, balance, self.points[-1][0][2])
        self.start = Point()
        problem.add_constraint((self.start - solution) ** 2 <= distance**2)

    def evaluate(self, x: Any) -> tuple[list[Any], Any]:
        """The subgradients of all losses at a point, and their mean."""
        for points in self.points:
            points.append((x, self._point(), self._value()))
        last = [points[-1] for points in self.points]
        return [g for _, g, _ in last], sum(f for _, _, f in last) / len(last)


def last_iterate_level(
    *, lr: float, level: float, price: str = "paid", scale: float = 0.02, distance: float = 1.0
) -> WorstCase:
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
    case: dict[str, Any] = positive(lr=lr, level=level, distance=distance)
    case |= {"price": one_of("price", price, PRICES), "scale": number("scale", scale, least=0, most=1)}
    rates = np.array([lr, lr])
    weights = [float(bounds.last_iterate(rates, unit, 0.0).total) for unit in np.eye(2)]
    bias = float(bounds.last_iterate(rates, np.zeros(2), distance).total)
    with new_problem() as problem:
        losses = _Losses(problem, 2, distance)
        gradients, _ = losses.evaluate(losses.start)
        metric = -losses.lowest
        for gradient, points in zip(gradients, losses.points, strict=True):
            (_, _, at_solution), (_, _, at_start) = points[:2]
            metric = metric - weights[0] / 2 * (lr / 2 * gradient**2) - excess(problem, level, at_solution) / 4
            if price == "paid":
                metric = metric - (weights[1] - 0.5) / 2 * excess(problem, level, at_start)
            slopes, _ = losses.evaluate(losses.start - lr * gradient)
            for slope, drawn in zip(slopes, losses.points, strict=True):
                value = drawn[-1][2]
                problem.add_constraint(value >= level)
                index = (1 - scale) * (value - level) + scale**2 * lr / 2 * slope**2
                metric = metric + value / 4 - weights[1] / 4 * index
        problem.set_performance_metric(metric)
        for points in losses.points:
            interpolate(problem, points, lowest=0.0)
        fails = price == "left out" and level / 2 * (1 - 2 * scale) > bias
        return solve(problem, "last-iterate-level", case, bias, "above" if fails else "at most", accuracy=LARGE)


def average_rate(
    *, method: str, lr: float, first: float, second: float, smoothness: float = 1.0, distance: float = 1.0
) -> WorstCase:
    """The worst mean of E f(x_t) − f⋆ over two steps of SPS or NGN, less its noise, against the rate's bias (ours).

    f = ½(f_1 + f_2) with L-smooth convex losses ≥ 0, C = 0, so that s̄ = σ² + ε_lb = f⋆; one of them is drawn in each
    step. The first step has the scale t = ``first`` if f_1 is drawn and ``second`` if f_2 is; a scale of SPS or NGN
    fixes α‖g‖²/f, which is linear in what the program knows. Theory: :mod:`surefoot.theory.rates`.

    >>> average_rate(method="sps", lr=2.0, first=0.5, second=1.0).agrees
    True
    """
    one_of("method", method, ("sps", "ngn"))
    case: dict[str, Any] = {"method": method, **positive(lr=lr, smoothness=smoothness, distance=distance)}
    scales = {"first": number("first", first, least=0, most=1), "second": number("second", second, least=0, most=1)}
    rate = (rates.sps if method == "sps" else rates.ngn)(smoothness, distance, 2, lr, 1.0)
    with new_problem() as problem:
        losses = _Losses(problem, 2, distance)
        gradients, mean = losses.evaluate(losses.start)
        values = [2 * mean]  # f(x_1), and f(x_2) on two paths
        for scale, gradient, points in zip(scales.values(), gradients, losses.points, strict=True):
            _scaled(problem, method, lr, scale, gradient, points[1][2])
            values.append(losses.evaluate(losses.start - scale * lr * gradient)[1])
        problem.set_performance_metric(sum(values) / 4 - (1 + float(rate.noise)) * losses.lowest)
        for points in losses.points:
            interpolate(problem, points, smoothness=smoothness, lowest=0.0)
        return solve(problem, "average-rate", case | scales, float(rate.bias), "at most", accuracy=LARGE)


def interpolation_rate(*, lr: float, steps: int, smoothness: float = 1.0, distance: float = 1.0) -> WorstCase:
    """The worst mean of f_t(x_t) over T = ``steps`` steps of SPS on L-smooth convex losses f_t ≥ 0, all 0 at one x⋆.

    All steps have the smallest scale t = 1/(2αL). For α ≥ 3/(4L) that is the worst one, and the sharpest constant is
    (2/3)(1 − 4⁻ᵀ)LD²/T: the quadratic ½Lx² attains it, because Polyak's step halves x. Theory: 2LD²/T
    (:func:`surefoot.theory.rates.sps`), three times as much.

    >>> round(interpolation_rate(lr=2.0, steps=2).worst_case, 4)
    0.3125
    """
    case: dict[str, Any] = positive(lr=lr, smoothness=smoothness, distance=distance)
    case |= {"steps": whole("steps", steps, 1)}
    scale = 0.5 / (lr * smoothness)
    exact = 2 / 3 * (1 - 4.0**-steps) * smoothness * distance**2 / steps if scale <= 2 / 3 else None
    with new_problem() as problem:
        from PEPit import Expression, Point

        solution, x = Point(), Point()
        problem.add_constraint((x - solution) ** 2 <= distance**2)
        values = []
        for step in range(steps):
            gradient, value = Point(), Expression()
            points = [(solution, 0 * solution, 0 * value), (x, gradient, value)]
            interpolate(problem, points, smoothness=smoothness, lowest=0.0)
            values.append(value)
            if step + 1 < steps:
                _scaled(problem, "sps", lr, scale, gradient, value)
                x = x - scale * lr * gradient
        problem.set_performance_metric(sum(values) / steps)
        theory = float(rates.sps(smoothness, distance, steps, lr).total)
        return solve(problem, "interpolation-rate", case, theory, "at most", exact=exact, accuracy=LARGE)


def _scaled(problem: Any, method: str, lr: float, scale: float, gradient: Any, value: Any) -> None:
    """Constrain α‖g‖² and f (C = 0) so that the step of SPS or NGN has this scale t."""
    if method == "ngn":  # t = 1/(1 + z/2)
        problem.add_constraint(scale * lr * gradient**2 == 2 * (1 - scale) * value)
    elif scale < 1:  # t = 1/z
        problem.add_constraint(scale * lr * gradient**2 == value)
    else:
        problem.add_constraint(lr * gradient**2 <= value)
