"""Statements about one step: the index of the exact model, and the smallest index of a base inequality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surefoot._base.arguments import number, one_of
from surefoot.pep._solver import Relation, WorstCase, interpolate, new_problem, positive, solve
from surefoot.theory import bounds, models

METHODS: dict[str, Callable[[float], models.Model]] = {
    "sgd": lambda lower_bound: models.Linear(),
    "sps": models.Truncated,
    "ngn": models.SquareRoot,
}
"""Methods whose step is fixed by loss, gradient norm and rate."""


def spp_index(*, lr: float, lipschitz: float, weak_convexity: float = 0.0, gap: float = 1.0) -> WorstCase:
    """Λ(α), the largest index of the proximal point method (Sec. 4.4, ``spp-pepit-delta``; Lemma 4.3, ``delta-spp``).

        Λ(α) = max f(x) − env_f^α(x)   over convex f that have a minimiser, f(x) − min f ≤ F, ‖g‖ ≤ G, g ∈ ∂f(x)

    Paper: Λ ≤ min{½ αG², F}. Exact: ½ αG² as long as that is at most F/2, then F − F²/(2αG²). With η =
    ``weak_convexity`` over f with f + η/2‖·‖² convex and f ≥ 0, whose infimum need not be attained, for αη < 1. Paper:
    at most min{α/(2(1 − αη)) G², F}. Exact in both cases: :func:`~surefoot.theory.bounds.worst_delta_spp`.

    >>> spp_index(lr=1.0, lipschitz=1.0).verdict
    'tight'
    """
    case = positive(lr=lr, lipschitz=lipschitz, gap=gap)
    number("weak_convexity", weak_convexity, least=0)
    bound = bounds.expected_delta_spp(lr, lipschitz**2, gap, 0.0, weak_convexity)
    exact = bounds.worst_delta_spp(gap, lipschitz**2, lr, weak_convexity=weak_convexity)
    with new_problem() as problem:
        from PEPit import Expression, Point

        start, gradient, end_gradient = Point(), Point(), Point()
        value, end_value = Expression(), Expression()
        end = start - lr * end_gradient  # stationary is optimal: f + ‖· − x‖²/(2α) is strongly convex for αη < 1
        points = [(start, gradient, value), (end, end_gradient, end_value)]
        interpolate(problem, points, weak_convexity=weak_convexity, lowest=0.0)
        if not weak_convexity:  # a minimiser exists
            minimiser = Point()
            interpolate(problem, [(minimiser, 0 * minimiser, 0 * value), *points])
        problem.add_constraint(value <= gap)
        problem.add_constraint(gradient**2 <= lipschitz**2)
        problem.set_performance_metric(value - end_value - (end - start) ** 2 / (2 * lr))
        name = "spp-weakly-convex" if weak_convexity else "spp"
        return solve(problem, name, {**case, "weak_convexity": weak_convexity}, bound, "at most", exact=exact)


def one_step_index(
    *, method: str, lr: float, loss: float = 1.0, grad_sq: float = 1.0, level: float | None = None
) -> WorstCase:
    """The smallest δ with which one step satisfies the base inequality (Lemma 3.2) for every convex f ≥ 0.

        ‖x⁺ − u‖² ≤ ‖x − u‖² − 2α(f(x) − f(u)) + 2αδ   for all u, where f(x) and ‖g‖² are given, x⁺ = x − τg

    that is, the largest value of f(x) − f(u) + (‖x⁺ − u‖² − ‖x − u‖²)/(2α). The step τ is that of ``method``: ``sgd``,
    ``sps`` or ``ngn``, with C = 0. Paper: δ of the model. It is exact for SGD and SPS; for NGN the worst case is
    above it, because its model does not lie below every convex loss (it does where √f is convex). Exact for all three:
    :func:`~surefoot.theory.models.safe_delta`.

    With a ``level`` C the step of SPS or NGN is taken at f(x) − C, and max{f(u), C} stands in place of f(u). Theory:
    δ_safe at f(x) − C. It is exact for a level at or above 0, the infimum of the class; below it f(u) cannot reach C,
    and δ_safe at f(x) − 0 is exact.

    >>> one_step_index(method="ngn", lr=1.0).verdict, one_step_index(method="ngn", lr=10.0, level=0.5).verdict
    ('above', 'tight')
    """
    one_of("method", method, METHODS if level is None else ("sps", "ngn"))
    case: dict[str, Any] = {"method": method, **positive(lr=lr, loss=loss, grad_sq=grad_sq)}
    lower = 0.0 if level is None else number("level", level)
    if lower >= loss:
        raise ValueError(f"level must be below the loss, {loss:g}, got {level!r}")
    point = float(loss), float(grad_sq), float(lr)
    step = METHODS[method](lower).step(*point)
    theory, exact = (models.safe_delta(*point, step.size, lower_bound=C) for C in (lower, max(lower, 0.0)))
    with new_problem() as problem:
        from PEPit import Expression, Point

        start, gradient, comparator, slope = Point(), Point(), Point(), Point()
        value, comparator_value = Expression(), Expression()
        interpolate(problem, [(start, gradient, value), (comparator, slope, comparator_value)], lowest=0.0)
        problem.add_constraint(value == loss)
        problem.add_constraint(gradient**2 == grad_sq)
        farther = (start - step.size * gradient - comparator) ** 2 - (start - comparator) ** 2
        least_index = value - comparator_value + farther / (2 * lr)
        if level is None:
            problem.set_performance_metric(least_index)
            relation: Relation = "above" if method == "ngn" else "equal"
            return solve(problem, "one-step", case, step.delta, relation, exact=exact)
        problem.set_performance_metric(least_index - excess(problem, lower, comparator_value))
        relation = "equal" if lower >= 0 else "at most"
        return solve(problem, "one-step-level", case | {"level": lower}, theory, relation, exact=exact)


def excess(problem: Any, level: float, value: Any) -> Any:
    """(C − f)₊ as a variable that is at least both; what is maximised has it with a minus."""
    from PEPit import Expression

    more = Expression()
    problem.add_constraint(more >= 0)
    problem.add_constraint(more >= level - value)
    return more
