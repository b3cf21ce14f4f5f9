"""The search behind ``find_lr``, and a training that stops, saves a checkpoint and goes on from it.

``find_lr`` takes a function that makes the trainer for a rate, not a trainer. A search has to leave a training and
come back to it many times. With one trainer that means copying and restoring whatever a training changes: the model,
loops, callbacks, loggers, data sets, and attributes that only their author knows. No framework offers that. But each
of them can end a training early, save a checkpoint and go on from it, and that is all this module uses. A new trainer
takes every part of a training, so nothing of the user's has to be put back afterwards, and the function says which
rate is meant: there is no guessing which attribute, parameter group or scheduler holds it.
"""

from __future__ import annotations

import logging
import math
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._base import checks
from surefoot._base.progress import Tell
from surefoot.problems import seeded
from surefoot.search import Found, Progress, Run, tune

Rates = float | Iterable[float] | Mapping[str, float] | None
Make = Callable[[float], Any]

_OPTIONS = ("extend", "maximize", "refine", "seeds", "tolerance")
"""Arguments of :func:`~surefoot.search.tune` that ``find_lr`` takes."""


class Begun(Exception):
    """Raised by a callback to end a training before its first step."""


class Training(Run):
    """A training with one rate; every :meth:`advance` makes a new trainer, which goes on from the last checkpoint.

    Args:
        make: Gives what is needed to train with a rate.
        lr: The rate.
        seed: Of everything that is random.
        folder: For its checkpoints; it exists.
        metric: Name of the metric that decides at the end; None for the training loss.
    """

    certifies = False

    def __init__(self, make: Make, lr: float, seed: int, folder: Path, metric: str | None = None) -> None:
        self.make, self.lr, self.seed, self.folder, self.metric = make, lr, seed, folder, metric
        self.step = 0

    @abstractmethod
    def plan(self, steps: int | None) -> tuple[float, list[float]]:
        """How many steps the trainer plans (∞ if it does not say), and the rates of ``steps`` of them, or of all."""

    @abstractmethod
    def train(self, end: int) -> list[float]:
        """Train from :attr:`step` to step ``end``, or to a loss that is not finite, and save a checkpoint."""

    @abstractmethod
    def measure(self) -> Mapping[str, Any]:
        """The metrics of validation at the last checkpoint."""

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


def search(
    kind: type[Training],
    make: Make,
    lrs: Rates,
    horizon: int | None,
    evaluate: str | None,
    progress: Tell | None,
    options: Mapping[str, Any],
) -> Found:
    """Find the rate for trainings of a kind; the arguments are those of ``find_lr``."""
    if not callable(make):
        raise TypeError(f"make must be a function that makes the trainer of a rate, got a {type(make).__name__}")
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"find_lr takes the options {', '.join(_OPTIONS)} of surefoot.tune, got {name!r}")
    if evaluate is not None and not isinstance(evaluate, str):
        raise TypeError(f"evaluate must be the name of a metric, got {evaluate!r}")
    if options.get("maximize") and evaluate is None:
        raise ValueError("maximize=True needs evaluate=, the name of the metric that is to be large")
    if horizon is not None:
        checks.whole("horizon", horizon, 1)
    rates = None if lrs is None else checks.rates(lrs)
    with tempfile.TemporaryDirectory(prefix="surefoot-") as folder, _quiet():
        with seeded(0):
            planned, taken = kind(make, 1e-3 if rates is None else float(rates[0]), 0, Path(folder)).plan(horizon)
        if horizon is None:
            if not 0 < planned < math.inf:
                raise ValueError("horizon must be given: the trainer does not say how many steps it trains, got None")
            horizon = int(planned)
        elif planned < horizon:
            raise ValueError(f"horizon must be at most the {planned:g} steps that the trainer plans, got {horizon}")

        def factory(lr: float, seed: int) -> Training:
            own = Path(folder, f"{lr!r}-{seed}")
            own.mkdir(exist_ok=True)
            return kind(make, lr, seed, own, evaluate)

        factory.keeps_threads = True  # type: ignore[attr-defined]  # the trainings take turns
        largest = max(taken, default=0.0)
        known = len(taken) == horizon and 0 < largest < math.inf
        factors = np.maximum(np.array(taken) / largest, 1e-10) if known else None  # 0 is no rate
        found = tune(factory, rates, horizon, schedule=factors, processes=1, progress=progress, **options)
    return replace(found, run=None)  # its checkpoint is gone


def rates_of(group: Mapping[str, Any], steps: int, take: Callable[[int], None]) -> list[float]:
    """The rate of a parameter group at every step, where ``take(n)`` does what schedulers do after n steps."""
    rates = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step")  # called before that of the optimizer
        for step in range(1, steps + 1):
            rates.append(float(group.get("lr", 0.0)))
            take(step)
    return rates


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
