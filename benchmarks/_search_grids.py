"""Recorded grids for ``search.py``, and runs that play them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot.search import Progress, Run

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
