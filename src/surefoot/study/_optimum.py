"""What is known about the minimum of the full training loss, and points that may stand for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surefoot.problems import one_blas_thread
from surefoot.runs import Floats

if TYPE_CHECKING:
    from surefoot.problems import Problem


class KnownOptimum(NamedTuple):
    """What is known about the minimum of the full training loss."""

    value: float | None
    """f⋆, the infimum; None if the problem does not tell."""
    exists: bool
    """Whether a minimiser x⋆ exists (not on separable data)."""
    distance: float | None
    """‖x_1 − x⋆‖ if it exists."""
    reason: str
    """Why there is no minimiser."""


class Pool(NamedTuple):
    """Points that runs have visited."""

    losses: Floats
    """The full training losses of the points."""
    distances: Floats
    """How far the points are from the start."""


def optimum_of(problem: Problem | None) -> dict[str, Any]:
    """The fields of :class:`KnownOptimum` of a problem, JSON-able."""
    if problem is None:
        return {"value": None, "exists": False, "distance": None, "reason": "it was not computed when the study ran"}
    with one_blas_thread():  # small solves: threads cost more than they give, and the bits would depend on them
        optimum = problem.optimum()
    distance = None if optimum.point is None else float(np.linalg.norm(optimum.point - problem.initial_point()))
    return {"value": optimum.value, "exists": optimum.exists, "distance": distance, "reason": optimum.reason}
