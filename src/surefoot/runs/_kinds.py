"""Which runs a problem has: tiles, where many are one computation, or trainings of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surefoot.problems import ArrayProblem, NetworkProblem, Problem
from surefoot.runs._methods import Method
from surefoot.runs._states import States
from surefoot.runs._sweep import ProblemRun, SweepWork
from surefoot.runs._types import Settings
from surefoot.runs._work import RunWork, Work

if TYPE_CHECKING:
    from surefoot.runs._training import NetworkRuns


def is_network(problem: Problem) -> bool:
    """Whether runs train a network with torch."""
    return isinstance(problem, NetworkProblem)


def work_of(problem: Problem, methods: Sequence[Method], settings: Settings, states: States) -> Work:
    """The work of computing a study's runs."""
    if not is_network(problem):
        return SweepWork(_tiled(problem), {method.name: method for method in methods}, settings)
    factories = {method.name: factory_of(problem, method, settings) for method in methods}
    return RunWork(factories, settings.steps, states, takes_all=True)


def factory_of(problem: Problem, method: Method, settings: Settings) -> ProblemRun | NetworkRuns:
    """The factory of single runs of a method of a study."""
    if isinstance(problem, NetworkProblem):
        from surefoot.runs._training import NetworkRuns

        return NetworkRuns(problem, method, settings)
    return ProblemRun.of_study(_tiled(problem), method, settings)


def _tiled(problem: Problem) -> ArrayProblem:
    if not isinstance(problem, ArrayProblem):
        raise TypeError(f"problem must be a ArrayProblem or a NetworkProblem, got {type(problem)}")
    return problem
