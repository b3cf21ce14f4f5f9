"""What a verified statement returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from surefoot import _checks
from surefoot.pep._solver import Solution

Relation = Literal["equal", "at most", "above"]
Value = float | int | str

TOLERANCE = 1e-6
"""Relative agreement asked of a worst case and a closed form."""
TIGHT = 1e-3
"""A bound this close to the worst case (relative) is called tight."""


@dataclass(frozen=True)
class Verification:
    """The worst case that a semidefinite program found, beside what the theory says of it.

    >>> found = Verification("spp", {"lr": 1.0}, 0.5, 0.5, 0.5, 0.5, "at most", "CLARABEL", "optimal")
    >>> found.verdict, found.agrees
    ('tight', True)
    """

    statement: str
    parameters: Mapping[str, Value]
    worst_case: float
    """The dual value: what the multipliers prove that no function exceeds."""
    attained: float
    """The primal value: what the function that the solver found attains."""
    theory: float
    """The paper's value or upper bound."""
    exact: float | None
    """A closed form of the worst case itself, where one is known."""
    relation: Relation
    """How the worst case should stand to ``theory``."""
    solver: str
    status: str
    failures: tuple[str, ...] = ()
    """Solvers that were tried before, with their status."""
    instance: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the worst-case function that the solver found."""

    @property
    def gap(self) -> float:
        """Difference of dual and primal value: how far to trust the digits."""
        return abs(self.worst_case - self.attained)

    @property
    def ratio(self) -> float:
        """theory/worst case: 1 where the theory is exact, larger where it is loose, smaller where it fails."""
        return self.theory / self.worst_case if self.worst_case > 0 else math.inf

    @property
    def verdict(self) -> Literal["tight", "below", "above"]:
        """Where the worst case lies: within 1e-3 of the theory's value, below it or above it."""
        if math.isclose(self.worst_case, self.theory, rel_tol=TIGHT):
            return "tight"
        return "below" if self.worst_case < self.theory else "above"

    @property
    def agrees(self) -> bool:
        """Whether ``relation`` holds, and ``exact`` is met, both to a relative 1e-6."""
        low, high = self.theory * (1.0 - TOLERANCE), self.theory * (1.0 + TOLERANCE)
        if self.relation == "equal":
            related = low <= self.worst_case <= high
        elif self.relation == "at most":
            related = self.worst_case <= high
        else:
            related = self.worst_case > high
        return related and (self.exact is None or math.isclose(self.worst_case, self.exact, rel_tol=TOLERANCE))


def verification(
    statement: str,
    parameters: Mapping[str, Value],
    solution: Solution,
    *,
    theory: float,
    exact: float | None = None,
    relation: Relation,
) -> Verification:
    """Join a solution with the theory."""
    return Verification(
        statement=statement,
        parameters=dict(parameters),
        worst_case=solution.dual,
        attained=solution.primal,
        theory=float(theory),
        exact=None if exact is None else float(exact),
        relation=relation,
        solver=solution.solver,
        status=solution.status,
        failures=solution.failures,
        instance=dict(solution.instance),
    )


def positive(**values: float) -> None:
    """Refuse values that are not positive, finite numbers."""
    for name, value in values.items():
        _checks.number(name, value, positive=True)
