"""Recorded grids for ``search.py``, and runs that play them back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.problems import LogisticRegression
from surefoot.search import Progress, Run
from surefoot.study import Study

KEYS = ("lrs", "schedule", "initial", "losses", "final")
"""The arrays of a grid."""


@dataclass
class Case:
    """A recorded grid."""

    name: str
    lrs: np.ndarray
    losses: np.ndarray
    """(rates, steps); ∞ after divergence."""
    final: np.ndarray
    """The loss over training data at the end."""
    initial: float
    schedule: np.ndarray | None = None
    """Factors of the rates; constant without."""

    @classmethod
    def of(cls, name: str, arrays: Mapping[str, np.ndarray]) -> Case:
        """From lrs, losses, schedule (may be empty), and initial and final losses, those of the training data first."""
        losses, final = (
            np.where(np.isfinite(values), values, np.inf) for values in (arrays["losses"], arrays["final"])
        )
        final = np.where(np.isfinite(losses[:, -1]), final[:, 0], np.inf)
        schedule = arrays["schedule"] if len(arrays["schedule"]) else None
        return cls(name, arrays["lrs"], losses.astype(float), final, float(arrays["initial"][0]), schedule)

    @property
    def steps(self) -> int:
        """T."""
        return self.losses.shape[1]

    def regret(self, choice: int) -> float:
        """(loss(chosen) − best)/(initial loss − best), with the loss over the training data."""
        return float((self.final[choice] - self.final.min()) / (self.initial - self.final.min()))


def drawn(part: str) -> list[Case]:
    """The grids of drawn tasks that are kept in this folder (``_search_tasks.py``)."""
    with np.load(Path(__file__).with_name(f"search_grids_{part}.npz")) as found:
        names = dict.fromkeys(key.rpartition("/")[0] for key in found)
        grids = {name: {key: found[f"{name}/{key}"] for key in KEYS} for name in names}
    for grid in grids.values():
        grid["losses"] = unpacked(grid["losses"])
    return [Case.of(name, grid) for name, grid in grids.items()]


def packed(losses: np.ndarray) -> np.ndarray:
    """Losses with 12 bits of precision, as four planes of bytes, which compress well."""
    bits = losses.astype(np.float32).view(np.int32)
    return ((bits + (1 << 11)) & ~((1 << 12) - 1)).view(np.uint8).reshape(*losses.shape, 4).transpose(2, 0, 1)


def unpacked(planes: np.ndarray) -> np.ndarray:
    """The losses of :func:`packed`."""
    return planes.transpose(1, 2, 0).copy().view(np.float32)[..., 0]


@dataclass
class Replay(Run):
    """A recorded run."""

    case: Case
    place: int
    step: int = 0

    def advance(self, k: int) -> Progress:
        """Play k steps."""
        part = slice(self.step, self.step + k)
        self.step += k
        losses = self.case.losses[self.place, part]
        return Progress(losses, np.zeros(len(losses)))

    def evaluate(self) -> float:
        """The loss that counts."""
        return float(self.case.final[self.place])

    def state_dict(self) -> dict[str, int]:
        """The place."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a place."""
        self.step = state["step"]


class Recorded:
    """The factory of a case's runs."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.schedule = case.schedule

    def __call__(self, lr: float, seed: int) -> Replay:
        """The run of a rate."""
        return Replay(self.case, int(np.argmin(abs(self.case.lrs - lr))))


def small_batches() -> list[Case]:
    """32 classifications in batches of one or two, recorded within seconds: most of a loss is noise of its batch."""
    return [_small_batch(number) for number in range(32)]


def _small_batch(number: int) -> Case:
    random = np.random.default_rng(1000 + number)
    kind, flipped, epochs = (("noisy", 0.4, 1), ("separable", 0.0, 2), ("many", 0.2, 3), ("few", 0.6, 1))[number % 4]
    rows, features, classes = 600, int(random.choice([10, 50, 200])), int(random.choice([2, 5, 10]))
    weights = random.normal(size=(features, classes))
    X = random.normal(size=(rows, features)) / np.sqrt(features)
    y = (X @ weights * 3 + random.gumbel(size=(rows, classes)) * random.choice([0.1, 1, 3])).argmax(axis=1)
    noisy = random.random(rows) < flipped
    y[noisy] = random.integers(0, classes, noisy.sum())
    y[:classes] = np.arange(classes)
    batch_size, schedule = 2 if number % 3 else 1, "constant" if number % 5 else "cosine"
    count, middle = int(random.choice([13, 17])), 10 ** random.uniform(-1.5, 1.5)
    lrs = np.geomspace(middle * 1e-2, middle * 1e2, count)
    study = Study(
        LogisticRegression((X, y)), methods="sgd", lrs=lrs, epochs=epochs, batch_size=batch_size, seeds=[number],
        schedule=schedule,
    )  # fmt: skip
    result = study.run()
    data = result.dataset.isel(algorithm=0, seed=0)
    name = f"{kind} {number}, batches of {batch_size}"
    factors = None if schedule == "constant" else np.asarray(study.factors)
    return Case(name, lrs, data.loss.values, data.last_loss.values, result.initial_loss, factors)
