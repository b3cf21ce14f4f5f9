"""The search behind ``find_lr``, and a training that stops, saves a checkpoint and goes on from it.

``find_lr`` takes a function that makes the trainer for a rate, not a trainer. A search has to leave a training and
come back to it many times. With one trainer that means copying and restoring whatever a training changes: the model,
loops, callbacks, loggers, data sets, and attributes that only their author knows. No framework offers that. But each
of them can end a training early, save a checkpoint and go on from it, and that is all this module uses.
"""

from __future__ import annotations

import logging
import math
import signal
import tempfile
import threading
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from surefoot._base import checks
from surefoot._base.progress import Tell
from surefoot.optim import Surefoot
from surefoot.problems import seeded
from surefoot.search import Found, Progress, Run, tune

_USED: weakref.WeakSet[Any] = weakref.WeakSet()
"""The trainers and models that were trained."""


class Plan(NamedTuple):
    """What a trainer plans."""

    steps: float
    """Steps of the training, ∞ if it does not say."""
    optimizer: Any
    """The optimizer whose rate is searched."""
    follow: Callable[[int], None]
    """Does what the trainer's schedulers do after the n-th step."""


class Begun(Exception):
    """Raised by a callback to end a training before its first step."""


def use(*parts: Any) -> None:
    """Take note that a trainer and its model are trained from now on; refuse those that were trained before."""
    for part in parts:
        if part in _USED:
            raise ValueError(
                f"make must give new objects whenever it is called, got the same {type(part).__name__} twice"
            )
    _USED.update(parts)


class Training(Run):
    """A training with one rate; every :meth:`advance` makes a new trainer, which goes on from the last checkpoint.

    Args:
        make: Gives what is needed to train with a rate.
        lr: The rate.
        seed: Of everything that is random.
        folder: For its checkpoints; it exists.
        metric: Name of the metric that decides at the end; None for the training loss.
    """

    certifies = divides = False

    def __init__(self, make: Callable[[float], Any], lr: float, seed: int, folder: Path, metric: str | None) -> None:
        self.make, self.lr, self.seed, self.folder, self.metric = make, lr, seed, folder, metric
        self.step = 0

    @abstractmethod
    def plan(self) -> Plan:
        """What the trainer plans; nothing is trained."""

    @abstractmethod
    def train(self, end: int) -> list[float]:
        """Train from :attr:`step` to step ``end``, or to a loss that is not finite, and save a checkpoint."""

    @abstractmethod
    def measure(self) -> Mapping[str, Any]:
        """The metrics of validation at the last checkpoint."""

    def advance(self, k: int) -> Progress:
        """Take k steps of the optimizer; fewer if a loss was not finite."""
        with seeded(self.seed), _interruptible():
            losses = self.train(self.step + k)
        if len(losses) < k and (not losses or math.isfinite(losses[-1])):
            raise RuntimeError(
                f"the training must go on to step {self.step + k}, but it ended at step {self.step + len(losses)}: "
                "leave out what ends it early"
            )
        self.step += len(losses)
        return Progress(losses, [0.0] * len(losses))

    def evaluate(self) -> float | None:
        """The metric that decides; None if the training loss does."""
        if self.metric is None:
            return None
        with seeded(self.seed):
            metrics = self.measure()
        if self.metric not in metrics:
            known = ", ".join(sorted(metrics)) or "no metrics"
            raise ValueError(f"evaluate must be one of {known}, got {self.metric!r}")
        return float(metrics[self.metric])

    def state_dict(self) -> dict[str, Any]:
        """The step; all else is in the checkpoint."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the last checkpoint."""
        self.step = int(state["step"])


def find_lr(
    kind: type[Training],
    make: Callable[[float], Any],
    lrs: float | Iterable[float] | Mapping[str, float] | None = None,
    horizon: int | None = None,
    *,
    evaluate: str | None = None,
    maximize: bool = False,
    seeds: int | Sequence[int] | None = None,
    refine: int | None = None,
    extend: bool | None = None,
    progress: Tell | None = None,
) -> Found:
    """Find the rate for trainings of a kind, which take turns on the same batches until they cannot catch up.

    Args:
        kind: The class of the trainings.
        make: Gives what is needed to train with a rate.
        lrs: The rates to choose from; without them the search finds its own range and refines it.
        horizon: Steps of a training; by default all that the trainer plans. With fewer, only the beginning of its
            schedule is seen.
        evaluate: Name of a metric of validation: its value at the end decides among the trainings that got there,
            instead of the training loss.
        maximize: Whether this metric is to be large.
        seeds: As in :func:`surefoot.tune`, and so are the next four.
        refine: Rounds of refinement.
        extend: Whether rates are added beyond the grid.
        progress: Whether to show progress, or a function of the steps taken.
    """
    if not callable(make):
        raise TypeError(f"make must be a function that makes the trainer of a rate, got a {type(make).__name__}")
    if maximize and evaluate is None:
        raise ValueError("maximize=True needs evaluate=, the name of the metric that is to be large")
    if horizon is not None:
        checks.whole("horizon", horizon, 1)
    rates = None if lrs is None else checks.rates(lrs)
    with tempfile.TemporaryDirectory(prefix="surefoot-") as folder, _quiet():

        def factory(lr: float, seed: int) -> Training:
            own = Path(folder, f"{lr!r}-{seed}")
            own.mkdir(exist_ok=True)
            return kind(make, lr, seed, own, evaluate)

        factory.keeps_threads = True  # type: ignore[attr-defined]  # the trainings take turns
        first = factory(1e-3 if rates is None else float(rates[0]), 0)
        first.evaluate()  # a metric that is not there is reported before anything is trained
        with seeded(0):
            plan = first.plan()
        if horizon is None and not 0 < plan.steps < math.inf:
            raise ValueError("horizon must be given: the trainer does not say how many steps it trains, got None")
        horizon = int(plan.steps) if horizon is None else horizon
        if plan.steps < horizon:
            raise ValueError(f"horizon must be at most the {plan.steps:g} steps that the trainer plans, got {horizon}")
        if isinstance(plan.optimizer, Surefoot):
            raise ValueError("make must give a training whose optimizer has a rate, got Surefoot, which needs none")
        schedule = _factors(plan, horizon)
        found = tune(
            factory, rates, horizon, schedule=schedule, processes=1, progress=progress, seeds=seeds,
            refine=refine, extend=extend, maximize=maximize,
        )  # fmt: skip
    return replace(found, run=None)  # its checkpoint is gone


def _factors(plan: Plan, steps: int) -> Any:
    """The factors of the rate over the steps; None if the optimizer shows no rate."""
    rates = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step")  # called before that of the optimizer
        for step in range(1, steps + 1):
            rates.append(float(plan.optimizer.param_groups[0].get("lr", 0.0)))
            plan.follow(step)
    largest = max(rates)
    return np.maximum(np.array(rates) / largest, 1e-10) if 0 < largest < math.inf else None  # 0 is no rate


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a training at once, and not wait for the end of its part: nothing is kept of a search anyway."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what trainers log whenever one begins or ends, apart from errors."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
