"""Which runs a problem has: tiles, where many are one computation, or trainings of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surefoot.problems import ArrayProblem, NetworkProblem, Problem
from surefoot.runs._executor import Work
from surefoot.runs._methods import Method
from surefoot.runs._states import States
from surefoot.runs._sweep import ProblemRun, SweepWork
from surefoot.runs._types import Settings
from surefoot.runs._work import RunWork

if TYPE_CHECKING:
    from surefoot.runs._torch_run import TorchRun


def is_network(problem: Problem) -> bool:
    """Whether runs train a network with torch."""
    return isinstance(problem, NetworkProblem)


def work_of(problem: Problem, methods: Sequence[Method], settings: Settings, states: States) -> Work:
    """The work of computing a study's runs."""
    if isinstance(problem, ArrayProblem):
        return SweepWork(problem, {method.name: method for method in methods}, settings)
    factories = {method.name: factory_of(problem, method, settings) for method in methods}
    return RunWork(factories, settings.steps, states, takes_all=True)


def factory_of(problem: Problem, method: Method, settings: Settings) -> ProblemRun | TorchRun:
    """The factory of single runs of a method of a study."""
    if isinstance(problem, ArrayProblem):
        return ProblemRun.of_study(problem, method, settings)
    if not isinstance(problem, NetworkProblem):
        raise TypeError(f"problem must be an ArrayProblem or a NetworkProblem, got {type(problem)}")
    from surefoot.runs._torch_run import TorchRun

    return TorchRun.of_study(problem, method, settings)
