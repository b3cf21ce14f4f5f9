"""What a statement is: a problem, what the theory says of its worst case, and the cases that are verified.

What comes out is a :class:`Verification`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, ParamSpec

from surefoot._base.arguments import number
from surefoot.pep._solver import SMALL, Build, Solution, attempts, solve

Relation = Literal["equal", "at most", "above"]
Value = float | int | str
Case = Mapping[str, Value]
P = ParamSpec("P")

TOLERANCE = 1e-6
"""Relative agreement asked of a worst case and a closed form."""
TIGHT = 1e-3
"""A bound this close to the worst case (relative) is called tight."""


@dataclass(frozen=True, kw_only=True)
class Verification(Solution):
    """The worst case that a semidefinite program found, beside what the theory says of it.

    >>> what = {"statement": "spp", "parameters": {"lr": 1.0}, "theory": 0.5, "relation": "at most"}
    >>> result = Verification(0.5, 0.5, "CLARABEL", "optimal", **what)
    >>> result.verdict, result.agrees
    ('tight', True)
    """

    statement: str
    parameters: Mapping[str, Value]
    theory: float
    """The paper's value or upper bound."""
    exact: float | None = None
    """A closed form of the worst case itself, where one is known."""
    relation: Relation
    """How the worst case should stand to ``theory``."""

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


class Worst(NamedTuple):
    """A problem, and what the theory says of its largest value."""

    build: Build
    theory: float
    relation: Relation
    """How the worst case should stand to ``theory``."""
    exact: float | None = None
    """A closed form of the worst case itself, where one is known."""
    accuracy: float = SMALL
    """The accuracy that is asked of the first solver."""


@dataclass(frozen=True)
class Statement:
    """A function of this room, and the cases it is run on by default."""

    name: str
    description: str
    function: Callable[..., Verification]
    cases: tuple[Case, ...]


STATEMENTS: dict[str, Statement] = {}
"""Every statement by its name."""


def statement(
    name: str, description: str, cases: Iterable[Case]
) -> Callable[[Callable[P, Worst]], Callable[P, Verification]]:
    """Decorate a function that writes down a problem: it becomes a statement, which solves the problem as well."""

    def take(function: Callable[P, Worst]) -> Callable[P, Verification]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def verified(*args: P.args, **kwargs: P.kwargs) -> Verification:
            case = signature.bind(*args, **kwargs)
            case.apply_defaults()
            worst = function(*args, **kwargs)
            return Verification(
                **vars(solve(worst.build, attempts(worst.accuracy))),
                statement=name,
                parameters=dict(case.arguments),
                theory=float(worst.theory),
                exact=None if worst.exact is None else float(worst.exact),
                relation=worst.relation,
            )

        documented: Any = verified
        documented.__signature__ = signature.replace(return_annotation=Verification)
        STATEMENTS[name] = Statement(name, description, verified, tuple(cases))
        return verified

    return take


def grid(**values: Iterable[Value]) -> list[Case]:
    """All combinations of some values.

    >>> grid(lr=[1.0, 2.0], method=["sgd"])
    [{'lr': 1.0, 'method': 'sgd'}, {'lr': 2.0, 'method': 'sgd'}]
    """
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def positive(**values: float) -> None:
    """Refuse values that are not positive, finite numbers."""
    for name, value in values.items():
        number(name, value, positive=True)
