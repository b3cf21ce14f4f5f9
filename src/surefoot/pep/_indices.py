"""Statements about one step: the index of the exact model, and the smallest index of a base inequality."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from surefoot._base.arguments import one_of
from surefoot.pep._statement import Worst, grid, positive, statement
from surefoot.theory import bounds, models

METHODS: dict[str, models.Model] = {name: models.NAMED[name]() for name in ("sgd", "sps", "ngn")}
"""Methods whose step is fixed by loss, gradient norm and rate, with C = 0."""
LIPSCHITZ = (0.5, 1.0, 2.0)
"""Values of G in the figure of Λ."""
RATES = tuple(float(rate) for rate in np.logspace(-2, 2, 25))
"""Values of α in the figure of Λ."""


@statement(
    "spp",
    "index of the proximal point on convex losses: at most min{½αG², f − inf f}, exactly Λ(α)",
    grid(lipschitz=LIPSCHITZ, lr=RATES),
)
def spp_index(*, lr: float, lipschitz: float, gap: float = 1.0) -> Worst:
    """Λ(α), the largest index of the proximal point method on a convex loss (Sec. 4.4, ``spp-pepit-delta``).

        Λ(α) = max f(x) − env_f^α(x)   over convex f that have a minimiser, f(x) − min f ≤ F, ‖g‖ ≤ G, g ∈ ∂f(x)

    Paper: Λ ≤ min{½ αG², F}. Exact: ½ αG² as long as that is at most F/2, then F − F²/(2αG²)
    (:func:`~surefoot.theory.bounds.worst_delta_spp`). ``instance["gap"]`` is f(x) − min f of the function found.

    >>> spp_index(lr=1.0, lipschitz=1.0).verdict
    'tight'
    """
    positive(lr=lr, lipschitz=lipschitz, gap=gap)

    def build(problem: Any) -> dict[str, Any]:
        from PEPit.functions import ConvexFunction

        loss = problem.declare_function(ConvexFunction)
        return {"gap": _proximal_index(problem, loss, loss(loss.stationary_point()), gap, lipschitz, lr)}

    bound = bounds.expected_delta_spp(lr, lipschitz**2, gap, interpolation_constant=0.0)
    return Worst(build, bound, "at most", exact=bounds.worst_delta_spp(gap, lipschitz**2, lr))


@statement(
    "spp-weakly-convex",
    "the same on η-weakly convex losses: at most min{½αG²/(1 − αη), f − inf f}, and an exact formula",
    [
        {"lipschitz": lipschitz, "weak_convexity": eta, "lr": product / eta}
        for lipschitz, eta, product in itertools.product(LIPSCHITZ, (0.1, 1.0, 10.0), (0.01, 0.1, 0.5, 0.9))
    ],
)
def spp_index_weakly_convex(*, lr: float, lipschitz: float, weak_convexity: float, gap: float = 1.0) -> Worst:
    """The largest index of the proximal point method on an η-weakly convex loss (Lemma 4.3, ``delta-spp``).

        max f(x) − env_f^α(x)   over f with f + η/2‖·‖² convex, f ≥ 0, f(x) ≤ F, ‖g‖ ≤ G, g ∈ ∂f(x), for αη < 1

    Paper: at most min{α/(2(1 − αη)) G², F}. Exact: :func:`~surefoot.theory.bounds.worst_delta_spp`. The infimum need
    not be attained, it is a lower bound of all values.

    >>> spp_index_weakly_convex(lr=0.5, lipschitz=1.0, weak_convexity=1.0).agrees
    True
    """
    positive(lr=lr, lipschitz=lipschitz, gap=gap, weak_convexity=weak_convexity)
    theory = bounds.expected_delta_spp(lr, lipschitz**2, gap, 0.0, weak_convexity)

    def build(problem: Any) -> dict[str, Any]:
        from surefoot.pep._functions import WeaklyConvexFunction

        loss = problem.declare_function(WeaklyConvexFunction, weak_convexity=weak_convexity)
        _proximal_index(problem, loss, 0.0, gap, lipschitz, lr)
        return {}

    exact = bounds.worst_delta_spp(gap, lipschitz**2, lr, weak_convexity=weak_convexity)
    return Worst(build, theory, "at most", exact=exact)


def _proximal_index(problem: Any, loss: Any, lowest: Any, gap: float, lipschitz: float, lr: float) -> Any:
    """Ask for the largest f(x) − env(x) where f(x) − ``lowest`` ≤ F and ‖g‖ ≤ G, and return f(x) − ``lowest``."""
    from PEPit.primitive_steps import proximal_step

    start = problem.set_initial_point()
    gradient, value = loss.oracle(start)
    # Stationary is optimal: f + ‖· − x‖²/(2α) is strongly convex for αη < 1.
    end, _, end_value = proximal_step(start, loss, lr)
    problem.add_constraint(value - lowest <= gap)
    problem.add_constraint(gradient**2 <= lipschitz**2)
    problem.set_performance_metric(value - end_value - (end - start) ** 2 / (2 * lr))
    return value - lowest


@statement(
    "one-step",
    "smallest index of the base inequality: δ for SGD and SPS, above δ for NGN, δ_safe for all",
    grid(method=METHODS, lr=(0.1, 1.0, 10.0, 100.0))
    + grid(method=METHODS, lr=(0.01, 1.0), loss=(0.5,), grad_sq=(4.0,)),
)
def one_step_index(*, method: str, lr: float, loss: float = 1.0, grad_sq: float = 1.0) -> Worst:
    """The smallest δ with which one step satisfies the base inequality (Lemma 3.2) for every convex f ≥ 0.

        ‖x⁺ − u‖² ≤ ‖x − u‖² − 2α(f(x) − f(u)) + 2αδ   for all u, where f(x) and ‖g‖² are given, x⁺ = x − τg

    that is, the largest value of f(x) − f(u) + (‖x⁺ − u‖² − ‖x − u‖²)/(2α). The step τ is that of ``method``: ``sgd``,
    ``sps`` or ``ngn``, with C = 0. Paper: δ of the model. It is exact for SGD and SPS; for NGN the worst case is
    above it, because its model does not lie below every convex loss (it does where √f is convex). Exact for all three:
    :func:`~surefoot.theory.models.safe_delta`.

    >>> one_step_index(method="ngn", lr=1.0).verdict
    'above'
    """
    one_of("method", method, METHODS)
    positive(lr=lr, loss=loss, grad_sq=grad_sq)
    step = METHODS[method].step(float(loss), float(grad_sq), float(lr))

    def build(problem: Any) -> dict[str, Any]:
        least_index, _ = base_inequality(problem, loss, grad_sq, lr, step.size)
        problem.set_performance_metric(least_index)
        return {}

    exact = models.safe_delta(float(loss), float(grad_sq), float(lr), step.size)
    return Worst(build, step.delta, "above" if method == "ngn" else "equal", exact=exact)


def base_inequality(problem: Any, loss: float, grad_sq: float, lr: float, size: float) -> tuple[Any, Any]:
    """One step x⁺ = x − size·g on a convex f ≥ 0: f(x) − f(u) + (‖x⁺ − u‖² − ‖x − u‖²)/(2α), and f(u), for any u."""
    from PEPit import Point

    from surefoot.pep._functions import WeaklyConvexFunction

    function = problem.declare_function(WeaklyConvexFunction, weak_convexity=0.0)
    start, comparator = problem.set_initial_point(), Point()
    gradient, value = function.oracle(start)
    problem.add_constraint(value == loss)
    problem.add_constraint(gradient**2 == grad_sq)
    farther = (start - size * gradient - comparator) ** 2 - (start - comparator) ** 2
    comparator_value = function(comparator)
    return value - comparator_value + farther / (2 * lr), comparator_value
