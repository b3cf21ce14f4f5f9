"""The rates of a whole run, as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from surefoot.rules import Floats


def rates(seen: Floats, every: int, horizon: int | None, schedule: Floats | None) -> Floats:
    """The rates of all steps: those seen, then the schedule's, or the last one again and again.

    >>> rates(np.array([0.1, 0.2]), 1, 4, None).tolist()
    [0.1, 0.2, 0.2, 0.2]
    """
    done = np.repeat(seen, every)
    steps = max(horizon or 0, (len(seen) - 1) * every + 1, 1)
    done = done[:steps]
    if not len(done):
        return np.ones(steps)
    future = np.full(steps - len(done), done[-1])
    if schedule is not None and len(done) < len(schedule):
        future = schedule[len(done) :] * (done[0] / schedule[0])
    return np.concatenate([done, future])


def peak(planned: Floats, seen: Floats, group: Mapping[str, Any]) -> float:
    """The largest rate of the run: of those planned, or the one that a warmup is on its way to.

    torch's schedulers leave the latter in the groups, as ``initial_lr`` or ``max_lr``. Far larger ones do not count:
    some schedules start from a rate of 1 and multiply it by the real one.

    >>> peak(np.array([0.1, 0.2, 0.2]), np.array([0.1, 0.2]), {"initial_lr": 1.0})
    1.0
    """
    largest = float(np.max(planned))
    for name in ("initial_lr", "max_lr"):
        goal = float(group.get(name, 0.0))
        if len(seen) and seen[0] < seen[-1] and largest < goal < 20 * largest:
            largest = goal
    return largest
