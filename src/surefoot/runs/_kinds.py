"""Which runs a problem has: tiles, where many are one computation, or trainings of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot.problems import NetworkProblem, Problem, TiledProblem
from surefoot.runs._engine import BatchedJob
from surefoot.runs._network_job import NetworkJob
from surefoot.runs._problem_run import ProblemRun
from surefoot.runs._types import Method, Settings

if TYPE_CHECKING:
    from surefoot.runs._training import NetworkRuns

Job = BatchedJob | NetworkJob
"""What the runs of a sweep share, and how some of them are done: tasks, which can be done in any process."""


def is_network(problem: Problem) -> bool:
    """Whether runs train a network with torch."""
    return isinstance(problem, NetworkProblem)


def job_of(problem: Problem, settings: Settings, folder: str | None, context: str) -> Job:
    """How the runs of a study are done; those of networks keep what they need to go on in the folder."""
    if isinstance(problem, NetworkProblem):
        return NetworkJob(problem, settings, folder, context)
    return BatchedJob(_tiled(problem), settings)


def factory_of(problem: Problem, method: Method, settings: Settings) -> ProblemRun | NetworkRuns:
    """What makes the runs of a method of a study, one by one."""
    if isinstance(problem, NetworkProblem):
        from surefoot.runs._training import NetworkRuns

        return NetworkRuns(problem, method, settings)
    return ProblemRun.of_study(_tiled(problem), method, settings)


def _tiled(problem: Problem) -> TiledProblem:
    if not isinstance(problem, TiledProblem):
        raise TypeError(f"problem must be a TiledProblem or a NetworkProblem, got {type(problem)}")
    return problem
