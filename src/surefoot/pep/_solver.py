"""The only way to a number: build a problem, solve it, and believe the solver only if it says ``optimal``."""

from __future__ import annotations

import contextlib
import io
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from surefoot._base.missing import missing

PACKAGES = ("PEPit", "cvxpy", "clarabel", "scs")
"""What the extra ``surefoot[pep]`` installs."""

SMALL = 1e-10
"""Accuracy asked of the first solver for problems of a few points."""
LARGE = 1e-8
"""Accuracy asked of the first solver for whole runs, where a smaller one is often not reached."""
LARGEST_GAP = 1e-6
"""Primal and dual value of an ``optimal`` problem may differ by this much, times the larger of 1 and the value."""

Build = Callable[[Any], Mapping[str, Any]]
"""Sets up points, constraints and the performance metric of a ``PEPit.PEP``, and returns expressions whose values in
the worst case are of interest."""
Attempt = tuple[str, Mapping[str, Any]]
"""A solver's name in cvxpy, and its options."""

# PEPit counts points and expressions in class attributes, which a new PEP resets: one problem at a time a process.
_ONE_AT_A_TIME = threading.Lock()


class SolverError(RuntimeError):
    """No solver solved the problem; the message has the status of each."""


@dataclass(frozen=True)
class Solution:
    """The dual and the primal value of a solved problem, and how they were found."""

    worst_case: float
    """The dual value: what the multipliers prove that no function exceeds."""
    attained: float
    """The primal value: what the function that the solver found attains."""
    solver: str
    status: str
    failures: tuple[str, ...] = ()
    """Solvers that were tried before, with their status."""
    instance: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the worst-case function that the solver found."""


def attempts(accuracy: float) -> tuple[Attempt, ...]:
    """Clarabel (interior point) first, then SCS (first order, another method with other weaknesses)."""
    return (
        ("CLARABEL", {"tol_gap_abs": accuracy, "tol_gap_rel": accuracy, "tol_feas": accuracy}),
        ("SCS", {"eps": 1e-9, "max_iters": 100_000}),
    )


def solve(build: Build, tries: Sequence[Attempt]) -> Solution:
    """Solve the problem with the first solver that manages to.

    A status other than ``optimal`` (infeasible, unbounded, inaccurate, a limit reached), an exception of the solver or
    a duality gap above ``LARGEST_GAP`` counts as failure.

    Raises:
        SolverError: All of them failed.
        ImportError: The extra ``surefoot[pep]`` is not installed.
    """
    failures: list[str] = []
    for solver, options in tries:
        with _ONE_AT_A_TIME:
            outcome = _attempt(build, solver, options)
        if isinstance(outcome, Solution):
            return replace(outcome, failures=tuple(failures))
        failures.append(f"{solver}: {outcome}")
    raise SolverError("no trustworthy solution: " + "; ".join(failures))


def _attempt(build: Build, solver: str, options: Mapping[str, Any]) -> Solution | str:
    """The solution of one solver, or in words what went wrong."""
    from numpy.linalg import LinAlgError

    try:
        import cvxpy
        from PEPit import PEP
    except ImportError as error:
        raise missing("worst-case verification", error, "pep") from error
    problem = PEP()
    expressions = build(problem)
    # PEPit prints about large gaps, cvxpy warns of inaccurate solutions: here both are failures with a reason.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dual = problem.solve(wrapper="cvxpy", solver=solver, verbose=0, **options)
        except (cvxpy.error.SolverError, LinAlgError, AssertionError) as error:  # PEPit asserts that values are numbers
            return f"{type(error).__name__} {error}".splitlines()[0].strip()
    ran = str(problem.wrapper.solver_name)
    if ran != solver:  # PEPit replaces a solver that it does not find, and says nothing
        return f"not available ({ran} ran in its place)"
    status = str(problem.wrapper.prob.status)
    if status != "optimal" or dual is None:
        return status
    primal, dual = float(problem.objective.eval()), float(dual)
    if not abs(primal - dual) <= LARGEST_GAP * max(1.0, abs(primal)):
        return f"optimal, but with a duality gap of {abs(primal - dual):.1e}"
    instance = {name: float(expression.eval()) for name, expression in expressions.items()}
    return Solution(dual, primal, solver, status, instance=instance)


def versions() -> dict[str, str]:
    """Versions of the modelling packages and the solvers.

    Raises:
        ImportError: One of them is missing.
    """
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise missing("worst-case verification", f"{package} is not installed", "pep") from error
    return installed
