"""The search behind ``find_lr``: trainings that stop, save a checkpoint, and go on from it.

``find_lr`` takes a function that makes the trainer of a rate, not a trainer. The search leaves a training and comes
back to it many times, and every framework can do that: it ends a training early, saves a checkpoint and resumes it.
"""

from __future__ import annotations

import logging
import math
import tempfile
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from surefoot._base import checks
from surefoot._base.progress import Tell
from surefoot.optim import Surefoot
from surefoot.problems import seeded
from surefoot.search import Found, Progress, Run, tune

_TRAINED: weakref.WeakSet[Any] = weakref.WeakSet()


class Begun(Exception):
    """Raised by a callback to end a training before its first step."""


class Training(Run):
    """A training with one rate; every :meth:`advance` makes a new trainer, which goes on from the last checkpoint.

    Args:
        make: Gives what is needed to train with a rate.
        lr: The rate.
        seed: Of everything that is random.
        folder: For its checkpoints; it exists.
    """

    certifies = divides = False

    def __init__(self, make: Callable[[float], Any], lr: float, seed: int, folder: Path) -> None:
        self.make, self.lr, self.seed, self.folder = make, lr, seed, folder
        self.step = 0

    @abstractmethod
    def plan(self, horizon: int | None) -> list[float]:
        """The rates of the steps up to the horizon, by default of all that the trainer plans; nothing is trained."""

    @abstractmethod
    def train(self, end: int) -> list[float]:
        """Train from :attr:`step` to step ``end``, or to a loss that is not finite, and save a checkpoint."""

    def advance(self, k: int) -> Progress:
        """Take k steps of the optimizer; fewer if a loss was not finite."""
        with seeded(self.seed):
            losses = self.train(self.step + k)
        if len(losses) < k and (not losses or math.isfinite(losses[-1])):
            raise RuntimeError(
                f"the training must go on to step {self.step + k}, but it ended at step {self.step + len(losses)}: "
                "leave out what ends it early"
            )
        self.step += len(losses)
        return Progress(losses, [0.0] * len(losses))

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
    seeds: int | Sequence[int] | None = None,
    refine: int | None = None,
    extend: bool | None = None,
    progress: Tell | None = None,
) -> Found:
    """Find the rate for trainings of a kind; what is not said here is as in :func:`surefoot.tune`."""
    if not callable(make):
        raise TypeError(f"make must be a function that makes the trainer of a rate, got a {type(make).__name__}")
    rates = None if lrs is None else checks.rates(lrs)
    if horizon is not None:
        checks.whole("horizon", horizon, 1)
    with tempfile.TemporaryDirectory(prefix="surefoot-") as folder, _quiet():

        def factory(lr: float, seed: int) -> Training:
            own = Path(folder, f"{lr!r}-{seed}")
            own.mkdir(exist_ok=True)
            return kind(make, lr, seed, own)

        factory.keeps_threads = True  # type: ignore[attr-defined]  # the trainings take turns
        with seeded(0):
            planned = factory(1e-3 if rates is None else float(rates[0]), 0).plan(horizon)
        largest = max(planned)
        schedule = [max(rate / largest, 1e-10) for rate in planned] if 0 < largest < math.inf else None  # 0 is no rate
        found = tune(
            factory, rates, len(planned), schedule=schedule, processes=1, progress=progress, seeds=seeds,
            refine=refine, extend=extend,
        )  # fmt: skip
    return replace(found, run=None)  # its checkpoint is gone


def planned_rates(
    optimizer: Optimizer, steps: float, horizon: int | None, follow: Callable[[int], object]
) -> list[float]:
    """The rates of an optimizer up to the horizon.

    Args:
        optimizer: The optimizer, before its first step.
        steps: How many the trainer plans, ∞ if it does not say.
        horizon: How many are asked for, by default all.
        follow: Does what the trainer's schedulers do after the n-th step.
    """
    if horizon is None and not 0 < steps < math.inf:
        raise ValueError("horizon must be given: the trainer does not say how many steps it trains, got None")
    if horizon is not None and steps < horizon:
        raise ValueError(f"horizon must be at most the {steps:g} steps that the trainer plans, got {horizon}")
    if isinstance(optimizer, Surefoot):
        raise ValueError("make must give a training whose optimizer has a rate, got Surefoot, which needs none")
    rates = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step")  # called before that of the optimizer
        for step in range(1, int(steps if horizon is None else horizon) + 1):
            rates.append(float(optimizer.param_groups[0].get("lr", 0.0)))
            follow(step)
    return rates


def require_new(devices: int, *parts: Any) -> None:
    """Refuse several devices, and trainers and models that were trained before."""
    if devices > 1:
        raise ValueError(
            f"make must give a trainer on one device, got {devices}: find the rate on one, with the batch size of all "
            "devices together"
        )
    for part in parts:
        if part in _TRAINED:
            raise ValueError(
                f"make must give new objects whenever it is called, got the same {type(part).__name__} twice"
            )
    _TRAINED.update(parts)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what trainers log whenever one begins or ends, apart from errors."""
    names = ("lightning.pytorch", "lightning.fabric", "transformers")
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
