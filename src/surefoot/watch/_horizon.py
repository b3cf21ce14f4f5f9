"""How long the run will be: what a trainer, a learning-rate scheduler or the loops around a step say."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import weakref
from types import FrameType
from typing import Any, NamedTuple

from torch.optim import lr_scheduler

from surefoot.watch import _loops
from surefoot.watch._loops import outwards, variables

_NAMES = ("num_training_steps", "total_steps", "max_steps", "max_iters", "total_iters", "num_steps")
"""What a function of the step calls the length of the run."""


class Horizon(NamedTuple):
    """A number of steps, and who says it."""

    steps: int
    source: str


class Planned:
    """Finds out how many steps an optimizer will make; asked again and again until it knows."""

    def __init__(self, horizon: int | None = None, built: FrameType | None = None) -> None:
        self.known = None if horizon is None else Horizon(horizon, "--horizon")
        self._is_told = horizon is not None
        self._built = _loops.places(built)
        self._exceeded = False
        self._schedulers: list[weakref.ref[Any]] = []
        self._first: tuple[int, int] | None = None
        """Step and counter of the innermost loop at the first look."""

    def add(self, scheduler: Any) -> None:
        """Take note of a scheduler of the optimizer."""
        self._schedulers.append(weakref.ref(scheduler))

    def look(self, steps: int, frame: FrameType | None) -> None:
        """Look around from a step that is being made, the ``steps``-th."""
        if self.known is not None:
            if steps > self.known.steps and not self._is_told:
                self.known, self._exceeded = None, True  # it was wrong: better no length than a wrong one
            return
        if self._exceeded:
            return
        self.known = _from_trainer(frame)
        if self.known is None:
            loops = self._from_loops(steps, frame)
            self.known = self._from_schedulers(steps, loops) or loops

    def settle(self, steps: int) -> None:
        """Take note that the run is over, after so many steps."""
        if not self._is_told and steps > 0:
            self.known = Horizon(steps, "all of them")

    def _from_loops(self, steps: int, frame: FrameType | None) -> Horizon | None:
        """Rounds of the loops, over the rounds that a step takes where gradients are accumulated."""
        loops = _loops.around(frame, self._built)
        if loops is None:
            return None
        if loops.counter is None:
            return _accumulated(loops, frame)
        if self._first is None or loops.counter <= self._first[1]:
            self._first = (steps, loops.counter)
            return None  # a second look says how many rounds a step takes
        rounds = (loops.counter - self._first[1]) / (steps - self._first[0])
        apart = f", a step every {rounds:g}" if rounds > 1 else ""
        return Horizon(max(steps, round(loops.total / rounds)), f"loops of {loops}{apart}")

    def _from_schedulers(self, steps: int, loops: Horizon | None) -> Horizon | None:
        for reference in reversed(self._schedulers):  # the last one may be made of those before it
            scheduler = reference()
            length = None if scheduler is None else _length(scheduler)
            if length is None:
                continue
            source = type(scheduler).__name__
            done = max(int(getattr(scheduler, "last_epoch", 0)), 0)
            if steps >= 3 and abs(done - steps) <= 1:
                return Horizon(length, source)
            if done >= 2 and steps > 2 * done:  # it is stepped once an epoch
                return loops or Horizon(math.ceil(length * steps / (done + 0.5)), f"{source}, about")
        return None


def _accumulated(loops: _loops.Loops, frame: FrameType | None) -> Horizon:
    """Rounds of the loops, over those that Accelerate gathers into a step; the end of an epoch is one in any case."""
    parts = 1
    if "accelerate" in sys.modules:
        states = [getattr(variables(outer).get("self"), "gradient_state", None) for outer in outwards(frame)]
        parts = next((int(state.num_steps) for state in states if state is not None), 1)
    *outer_lengths, last = loops.lengths
    apart = f", a step every {parts}" if parts > 1 else ""
    return Horizon(math.prod(outer_lengths) * -(-last // parts), f"loops of {loops}{apart}")


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
    elif isinstance(scheduler, lr_scheduler.ChainedScheduler):
        length = max((steps for steps in map(_length, scheduler._schedulers) if steps is not None), default=None)
    elif isinstance(scheduler, lr_scheduler.LambdaLR):
        length = _of_function(scheduler.lr_lambdas[0])
    return int(length) if isinstance(length, int | float) and 1 <= length < math.inf else None


def _of_function(function: Any) -> Any:
    """The length that a function of the step knows: a keyword of a partial, or a variable that it encloses."""
    try:
        is_partial = isinstance(function, functools.partial)
        known = function.keywords if is_partial else inspect.getclosurevars(function).nonlocals
    except (TypeError, ValueError):  # no function of Python, or one whose variables are not there yet
        return None
    return next((known[name] for name in _NAMES if name in known), None)


def _from_trainer(frame: FrameType | None) -> Horizon | None:
    """The length that a trainer says, if the step is made in one of its methods."""
    if not {"transformers", "lightning", "pytorch_lightning"} & sys.modules.keys():
        return None
    for outer in outwards(frame):
        owner = variables(outer).get("self")
        package = type(owner).__module__.partition(".")[0]
        steps: Any = None
        if package in ("lightning", "pytorch_lightning"):
            trainer = owner if hasattr(owner, "estimated_stepping_batches") else getattr(owner, "trainer", None)
            steps = getattr(trainer, "estimated_stepping_batches", None)
            package = "Lightning's"
        elif any(
            kind.__module__ == "transformers.trainer" and kind.__name__ == "Trainer" for kind in type(owner).__mro__
        ):
            steps = owner.state.max_steps  # type: ignore[union-attr]
            package = "Transformers'"
        if isinstance(steps, int | float) and 1 <= steps < math.inf:
            return Horizon(int(steps), f"{package} trainer")
    return None
