"""Recorded grids for ``search.py``, and runs that play them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.problems import LogisticRegression
from surefoot.search import Progress, Run
from surefoot.study import Study

RANGE_STEPS = 100


@dataclass
class Case:
    """A recorded grid: a problem, a method, its rates."""

    problem: str
    method: str
    lrs: np.ndarray
    losses: np.ndarray
    """(rates, steps); ∞ after divergence."""
    final: np.ndarray
    initial: float
    range_test: Callable[[], tuple[np.ndarray, np.ndarray]] | None
    """Trains with rates that grow from the smallest to the largest; rates and losses."""
    schedule: np.ndarray | None = None
    """Factors of the rates; constant without."""
    kind: str = ""

    @classmethod
    def read(cls, path: Path, problem: str = "", method: str = "", kind: str = "") -> Case:
        """From a file: lrs, losses and final (train, held-out) of every rate, initial (train, held-out), schedule."""
        with np.load(path, allow_pickle=False) as found:
            losses, final = (np.where(np.isfinite(found[name]), found[name], np.inf) for name in ("losses", "final"))
            test = (found["range_rates"], found["range_losses"]) if "range_rates" in found else None
            schedule = found["schedule"]
            return cls(
                problem or str(found["name"]),
                method,
                found["lrs"],
                losses.astype(float),
                np.where(np.isfinite(losses[:, -1]), final[:, 0], np.inf),
                float(found["initial"][0]),
                None if test is None else lambda: test,
                schedule if len(schedule) else None,
                kind,
            )

    @property
    def steps(self) -> int:
        """T."""
        return self.losses.shape[1]

    def regret(self, choice: int) -> float:
        """Normalised regret of a choice."""
        return float((self.final[choice] - self.final.min()) / (self.initial - self.final.min()))


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
    return Case(name, "sgd", lrs, data.loss.values, data.last_loss.values, result.initial_loss, None, factors, kind)
