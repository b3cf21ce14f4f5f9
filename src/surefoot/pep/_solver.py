"""From a problem to a number: solve it, and believe the solver only if it says ``optimal``."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from surefoot._base.arguments import number
from surefoot._base.missing import missing

PACKAGES = ("PEPit", "cvxpy", "clarabel", "scs")
"""What the extra ``surefoot[pep]`` installs."""
SMALL, LARGE = 1e-10, 1e-8
"""Accuracy asked of the first solver for problems of a few points, and for whole runs, where less is often reached."""
LARGEST_GAP = 1e-6
"""Primal and dual value of an ``optimal`` problem may differ by this much, times the larger of 1 and the value."""
TOLERANCE, TIGHT = 1e-6, 1e-3
"""Relative agreement asked of a worst case and a closed form; a bound this close to the worst case is called tight."""

Relation = Literal["equal", "at most", "above"]
Case = Mapping[str, float | int | str]

# PEPit counts points and expressions in class attributes, which a new PEP resets: one problem at a time per process.
_ONE_AT_A_TIME = threading.Lock()


class SolverError(RuntimeError):
    """No solver solved the problem; the message has the status of each."""


@dataclass(frozen=True)
class WorstCase:
    """The worst case that a semidefinite program found, beside what the theory says of it.

    >>> result = WorstCase("spp", {"lr": 1.0}, theory=0.5, relation="at most", worst_case=0.5)
    >>> result.verdict, result.agrees
    ('tight', True)
    """

    statement: str
    parameters: Case
    theory: float = math.nan
    """The paper's value or upper bound."""
    relation: Relation = "at most"
    """How the worst case should stand to ``theory``."""
    exact: float | None = None
    """A closed form of the worst case itself, where one is known."""
    worst_case: float = math.nan
    """The dual value: what the multipliers prove that no function exceeds. NaN if no solver solved the problem."""
    attained: float = math.nan
    """The primal value: what the function that the solver found attains."""
    solver: str = ""
    status: str = "not solved"
    failures: tuple[str, ...] = ()
    """Solvers that failed before, with their status."""

    def checked(self) -> WorstCase:
        """This result, if the problem was solved; otherwise raises :class:`SolverError`."""
        if math.isnan(self.worst_case):
            raise SolverError(f"{self.statement} {dict(self.parameters)}: {'; '.join(self.failures)}")
        return self

    @property
    def ratio(self) -> float:
        """theory/worst case: 1 where the theory is exact, larger where it is loose, smaller where it fails."""
        return self.theory / self.worst_case if self.worst_case > 0 else math.inf

    @property
    def verdict(self) -> Literal["tight", "below", "above", "not solved"]:
        """Where the worst case lies: within 1e-3 of the theory's value, below it or above it."""
        if math.isnan(self.worst_case):
            return "not solved"
        if math.isclose(self.worst_case, self.theory, rel_tol=TIGHT):
            return "tight"
        return "below" if self.worst_case < self.theory else "above"

    @property
    def agrees(self) -> bool:
        """Whether it was solved, ``relation`` holds, and ``exact`` is met, both to a relative 1e-6."""
        close = math.isclose(self.worst_case, self.theory, rel_tol=TOLERANCE)
        related = {
            "equal": close,
            "at most": close or self.worst_case < self.theory,
            "above": not close and self.worst_case > self.theory,
        }[self.relation]
        return related and (self.exact is None or math.isclose(self.worst_case, self.exact, rel_tol=TOLERANCE))


@contextlib.contextmanager
def new_problem() -> Iterator[Any]:
    """A new ``PEPit.PEP``, the only one of this process while the block lasts.

    Raises:
        ImportError: The extra ``surefoot[pep]`` is not installed.
    """
    try:
        import cvxpy  # noqa: F401
        from PEPit import PEP
    except ImportError as error:
        raise missing("worst-case verification", error, "pep") from error
    with _ONE_AT_A_TIME:
        yield PEP()


def interpolate(
    problem: Any,
    points: Sequence[tuple[Any, Any, Any]],
    *,
    weak_convexity: float = 0.0,
    smoothness: float = math.inf,
    lipschitz: float = math.inf,
    lowest: float = -math.inf,
) -> None:
    """Constrain points (x, g, f): some function of a class has these values f and subgradients g.

    With μ = ``weak_convexity`` (f + μ/2‖·‖² is convex), L = ``smoothness``, G = ``lipschitz`` and C = ``lowest``

        f_i ≥ f_j + ⟨g_j, x_i − x_j⟩ − μ/2‖x_i − x_j‖² + ‖g_i − g_j‖²/(2L),   ‖g_i‖ ≤ G,   f_i ≥ C + ‖g_i‖²/(2L)

    for all i ≠ j. With L = ∞ this is also sufficient: the largest of C and of the right-hand sides, as functions of
    x_i, is such an f. For finite L and C it is necessary, so that worst cases are upper bounds.
    """
    curved = 0.0 if math.isinf(smoothness) else 1.0 / (2.0 * smoothness)
    for (xi, gi, fi), (xj, gj, fj) in itertools.permutations(points, 2):
        below = fj + gj * (xi - xj)
        if weak_convexity:
            below = below - weak_convexity / 2 * (xi - xj) ** 2
        problem.add_constraint(fi >= below + curved * (gi - gj) ** 2)
    for _, g, f in points:
        if math.isfinite(lipschitz):
            problem.add_constraint(g**2 <= lipschitz**2)
        if math.isfinite(lowest):
            problem.add_constraint(f >= lowest + curved * g**2)


def attempts(accuracy: float) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Clarabel (interior point) first, then SCS (first order, another method with other weaknesses)."""
    return (
        ("CLARABEL", {"tol_gap_abs": accuracy, "tol_gap_rel": accuracy, "tol_feas": accuracy}),
        ("SCS", {"eps": 1e-9, "max_iters": 100_000}),
    )


def solve(
    problem: Any,
    statement: str,
    parameters: Case,
    theory: float,
    relation: Relation,
    *,
    exact: float | None = None,
    accuracy: float = SMALL,
) -> WorstCase:
    """Solve the problem with the first solver that manages to.

    A status other than ``optimal`` (infeasible, unbounded, inaccurate, a limit reached), an exception of the solver or
    a duality gap above ``LARGEST_GAP`` counts as failure.

    Raises:
        SolverError: All of them failed.
    """
    import cvxpy
    from numpy.linalg import LinAlgError

    failures: list[str] = []
    for solver, options in attempts(accuracy):
        # PEPit prints about large gaps, cvxpy warns of inaccurate solutions: here both are failures with a reason.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                dual = problem.solve(wrapper="cvxpy", solver=solver, verbose=0, **options)
            except (cvxpy.error.SolverError, LinAlgError, AssertionError) as error:  # PEPit asserts values are numbers
                failures.append(f"{solver}: {type(error).__name__} {error}".splitlines()[0].strip())
                continue
        status = str(problem.wrapper.prob.status)
        if status != "optimal" or dual is None:
            failures.append(f"{solver}: {status}")
            continue
        primal, dual = float(problem.objective.eval()), float(dual)
        if not abs(primal - dual) <= LARGEST_GAP * max(1.0, abs(primal)):
            failures.append(f"{solver}: optimal, but with a duality gap of {abs(primal - dual):.1e}")
            continue
        known = (float(theory), relation, None if exact is None else float(exact))
        ran = str(problem.wrapper.solver_name)
        return WorstCase(statement, dict(parameters), *known, dual, primal, ran, status, tuple(failures))
    raise SolverError("no trustworthy solution: " + "; ".join(failures))


def positive(**values: float) -> dict[str, float]:
    """The values by name; refuses those that are not positive, finite numbers."""
    for name, value in values.items():
        number(name, value, positive=True)
    return values
