"""Statements about one step: the index of the exact model, and the smallest index of a base inequality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.pep._result import Relation, Verification, positive, verification
from surefoot.pep._solver import SMALL, attempts, solve
from surefoot.theory import models, proximal
from surefoot.theory.arguments import unknown

METHODS: Mapping[str, models.Model] = {
    "sgd": models.Linear(),
    "sps": models.Truncated(),
    "ngn": models.SquareRoot(),
}
"""Methods whose step is fixed by loss, gradient norm and rate, with C = 0."""


def spp_index(*, lr: float, lipschitz: float, gap: float = 1.0) -> Verification:
    """Λ(α), the largest index of the proximal point method on a convex loss (Sec. 4.4, ``spp-pepit-delta``).

        Λ(α) = max f(x) − env_f^α(x)   over convex f that have a minimiser, f(x) − min f ≤ F, ‖g‖ ≤ G, g ∈ ∂f(x)

    Paper: Λ ≤ min{½ αG², F}. Exact: ½ αG² as long as that is at most F/2, then F − F²/(2αG²)
    (:func:`~surefoot.theory.proximal.worst_delta`). ``instance["gap"]`` is f(x) − min f of the function found.

    >>> spp_index(lr=1.0, lipschitz=1.0).verdict
    'tight'
    """
    positive(lr=lr, lipschitz=lipschitz, gap=gap)

    def build(problem: Any) -> dict[str, Any]:
        from PEPit.functions import ConvexFunction
        from PEPit.primitive_steps import proximal_step

        loss = problem.declare_function(ConvexFunction)
        lowest = loss(loss.stationary_point())
        start = problem.set_initial_point()
        gradient, value = loss.oracle(start)
        end, _, end_value = proximal_step(start, loss, lr)
        problem.add_constraint(value - lowest <= gap)
        problem.add_constraint(gradient**2 <= lipschitz**2)
        problem.set_performance_metric(value - end_value - (end - start) ** 2 / (2 * lr))
        return {"gap": value - lowest}

    return verification(
        "spp",
        {"lr": lr, "lipschitz": lipschitz, "gap": gap},
        solve(build, attempts(SMALL)),
        theory=proximal.delta_bound(gap, lipschitz**2, lr),
        exact=proximal.worst_delta(gap, lipschitz**2, lr),
        relation="at most",
    )


def spp_index_weakly_convex(*, lr: float, lipschitz: float, weak_convexity: float, gap: float = 1.0) -> Verification:
    """The largest index of the proximal point method on an η-weakly convex loss (Lemma 4.3, ``delta-spp``).

        max f(x) − env_f^α(x)   over f with f + η/2‖·‖² convex, f ≥ 0, f(x) ≤ F, ‖g‖ ≤ G, g ∈ ∂f(x), for αη < 1

    Paper: at most min{α/(2(1 − αη)) G², F}. Exact: :func:`~surefoot.theory.proximal.worst_delta`. The infimum need not
    be attained, it is a lower bound of all values.

    >>> spp_index_weakly_convex(lr=0.5, lipschitz=1.0, weak_convexity=1.0).agrees
    True
    """
    positive(lr=lr, lipschitz=lipschitz, gap=gap, weak_convexity=weak_convexity)
    theory = proximal.delta_bound(gap, lipschitz**2, lr, weak_convexity=weak_convexity)

    def build(problem: Any) -> dict[str, Any]:
        from PEPit.primitive_steps import proximal_step

        from surefoot.pep._functions import WeaklyConvexFunction

        loss = problem.declare_function(WeaklyConvexFunction, weak_convexity=weak_convexity)
        start = problem.set_initial_point()
        gradient, value = loss.oracle(start)
        # Stationary is optimal: f + ‖· − x‖²/(2α) is strongly convex for αη < 1.
        end, _, end_value = proximal_step(start, loss, lr)
        problem.add_constraint(value <= gap)
        problem.add_constraint(gradient**2 <= lipschitz**2)
        problem.set_performance_metric(value - end_value - (end - start) ** 2 / (2 * lr))
        return {}

    return verification(
        "spp-weakly-convex",
        {"lr": lr, "lipschitz": lipschitz, "weak_convexity": weak_convexity, "gap": gap},
        solve(build, attempts(SMALL)),
        theory=theory,
        exact=proximal.worst_delta(gap, lipschitz**2, lr, weak_convexity=weak_convexity),
        relation="at most",
    )


def one_step_index(*, method: str, lr: float, loss: float = 1.0, grad_sq: float = 1.0) -> Verification:
    """The smallest δ with which one step satisfies the base inequality (Lemma 3.2) for every convex f ≥ 0.

        ‖x⁺ − u‖² ≤ ‖x − u‖² − 2α(f(x) − f(u)) + 2αδ   for all u, where f(x) and ‖g‖² are given, x⁺ = x − τg

    that is, the largest value of f(x) − f(u) + (‖x⁺ − u‖² − ‖x − u‖²)/(2α). The step τ is that of ``method``: ``sgd``,
    ``sps`` or ``ngn``, with C = 0. Paper: δ of the model. It is exact for SGD and SPS; for NGN the worst case is
    above it, because its model does not lie below every convex loss (it does where √f is convex). Exact for all three:
    :func:`~surefoot.theory.models.safe_delta`.

    >>> one_step_index(method="ngn", lr=1.0).verdict
    'above'
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    positive(lr=lr, loss=loss, grad_sq=grad_sq)
    step = METHODS[method].step(float(loss), float(grad_sq), float(lr))

    def build(problem: Any) -> dict[str, Any]:
        least_index, _ = base_inequality(problem, loss, grad_sq, lr, step.size)
        problem.set_performance_metric(least_index)
        return {}

    relation: Relation = "above" if method == "ngn" else "equal"
    return verification(
        "one-step",
        {"method": method, "lr": lr, "loss": loss, "grad_sq": grad_sq},
        solve(build, attempts(SMALL)),
        theory=step.delta,
        exact=models.safe_delta(float(loss), float(grad_sq), float(lr), step.size),
        relation=relation,
    )


def base_inequality(problem: Any, loss: float, grad_sq: float, lr: float, size: float) -> tuple[Any, Any]:
    """One step x⁺ = x − size·g on a convex f ≥ 0: f(x) − f(u) + (‖x⁺ − u‖² − ‖x − u‖²)/(2α), and f(u), for any u."""
    from PEPit import Point

    from surefoot.pep._functions import WeaklyConvexFunction

    function = problem.declare_function(WeaklyConvexFunction, weak_convexity=0.0)
    start, other = problem.set_initial_point(), Point()
    gradient, value = function.oracle(start)
    problem.add_constraint(value == loss)
    problem.add_constraint(gradient**2 == grad_sq)
    moved = (start - size * gradient - other) ** 2 - (start - other) ** 2
    reached = function(other)
    return value - reached + moved / (2 * lr), reached
