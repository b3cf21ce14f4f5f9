"""How long the run will be: what a trainer or a learning-rate scheduler says."""

from __future__ import annotations

import functools
import math
import weakref
from types import FrameType
from typing import Any, NamedTuple

from torch.optim import lr_scheduler

from surefoot.watch._session import LONGEST


class Horizon(NamedTuple):
    """A number of steps, and who says it."""

    steps: int
    source: str


class Planned:
    """Finds out how many steps an optimizer will make; asked again and again until it knows."""

    def __init__(self, horizon: int | None = None) -> None:
        self.known = None if horizon is None else Horizon(horizon, "--horizon")
        self._is_given = horizon is not None
        self._exceeded = False
        self._schedulers: list[weakref.ref[Any]] = []

    def add(self, scheduler: Any) -> None:
        """Take note of a scheduler of the optimizer."""
        self._schedulers.append(weakref.ref(scheduler))

    def look(self, steps: int, frame: FrameType | None) -> None:
        """Ask trainer and schedulers, after the ``steps``-th step, which is made in ``frame``."""
        if self.known is not None and steps > self.known.steps and not self._is_given:
            self.known, self._exceeded = None, True  # it was wrong: better no length than a wrong one
        if self.known is None and not self._exceeded:
            self.known = _from_trainer(frame) or self._from_schedulers(steps)

    def settle(self, steps: int) -> None:
        """Take note that the run is over, after so many steps."""
        if not self._is_given and steps > 0:
            self.known = Horizon(steps, "all of them")

    def _from_schedulers(self, steps: int) -> Horizon | None:
        for reference in reversed(self._schedulers):  # the last one may be made of those before it
            scheduler = reference()
            length = None if scheduler is None else _length(scheduler)
            if length is None:
                continue
            source = type(scheduler).__name__
            done = max(int(getattr(scheduler, "last_epoch", 0)), 0)
            if steps >= 3 and abs(done - steps) <= 1:
                return Horizon(length, source)
            if done >= 2 and steps > 2 * done:  # it is stepped once per epoch
                return Horizon(math.ceil(length * steps / (done + 0.5)), f"{source}, about")
        return None


def _length(scheduler: Any) -> int | None:
    """After how many steps of its own a scheduler has come to its end, if it has one."""
    length: Any = None
    if isinstance(scheduler, lr_scheduler.CosineAnnealingLR):
        length = scheduler.T_max
    elif isinstance(scheduler, lr_scheduler.OneCycleLR):
        length = scheduler.total_steps
    elif isinstance(scheduler, lr_scheduler.PolynomialLR) or (
        isinstance(scheduler, lr_scheduler.LinearLR) and scheduler.end_factor < scheduler.start_factor
    ):
        length = scheduler.total_iters
    elif isinstance(scheduler, lr_scheduler.SequentialLR):
        last = _length(scheduler._schedulers[-1])
        length = None if last is None else scheduler._milestones[-1] + last
    elif isinstance(scheduler, lr_scheduler.LambdaLR):  # those of Transformers
        function = scheduler.lr_lambdas[0]
        length = function.keywords.get("num_training_steps") if isinstance(function, functools.partial) else None
    return int(length) if isinstance(length, int | float) and 1 <= length <= LONGEST else None


def _from_trainer(frame: FrameType | None) -> Horizon | None:
    """The length that a trainer says, if the step is made in one of its methods."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name in ("transformers", "lightning", "pytorch_lightning"):
            owner = frame.f_locals.get("self")
            trainer = owner if hasattr(owner, "estimated_stepping_batches") else getattr(owner, "trainer", None)
            steps = getattr(trainer, "estimated_stepping_batches", None)
            if name == "transformers":
                steps = getattr(getattr(owner, "state", None), "max_steps", None)
            if isinstance(steps, int | float) and 1 <= steps <= LONGEST:
                return Horizon(int(steps), "Transformers' trainer" if name == "transformers" else "Lightning's trainer")
        frame = frame.f_back
    return None
