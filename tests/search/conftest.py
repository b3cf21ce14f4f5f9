"""Runs that are quick, honest and countable."""

import signal

import numpy as np
import pytest

from surefoot.problems import LinearRegression, LogisticRegression
from surefoot.search import Progress, Run


class Recorded(Run):
    """A run that plays back given losses and indices, and counts every step that is taken."""

    def __init__(self, losses, deltas, counts, key, fail_after=None):
        self.losses, self.deltas, self.counts, self.key, self.fail_after = losses, deltas, counts, key, fail_after
        self.step = 0

    def advance(self, k):
        if self.fail_after is not None and self.counts["total"] + k > self.fail_after:
            signal.raise_signal(signal.SIGINT)
        part = slice(self.step, self.step + k)
        for step in range(self.step, self.step + k):
            self.counts[(self.key, step)] = self.counts.get((self.key, step), 0) + 1
        self.counts["total"] += k
        self.step += k
        return Progress(self.losses[part], self.deltas[part])

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


class Tape:
    """A factory of recorded runs: losses and deltas of shape (rates, seeds, steps)."""

    def __init__(self, lrs, losses, deltas):
        self.lrs = list(lrs)
        self.losses, self.deltas = np.asarray(losses, float), np.asarray(deltas, float)
        self.counts = {"total": 0}
        self.fail_after = None

    def __call__(self, lr, seed):
        place = self.lrs.index(lr), seed
        return Recorded(self.losses[place], self.deltas[place], self.counts, (lr, seed), self.fail_after)

    @property
    def repeated(self):
        """Steps that were taken more than once."""
        return [key for key, count in self.counts.items() if key != "total" and count > 1]


@pytest.fixture(scope="session")
def tape():
    return Tape


@pytest.fixture(scope="session")
def regression():
    return LinearRegression(noise=0.5)


@pytest.fixture(scope="session")
def logistic():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 4))
    return LogisticRegression((X, (X[:, 0] + random.normal(size=60) > 0).astype(int)), validation=0.2)


@pytest.fixture(autouse=True, scope="module")
def _quick_workers(ready_workers):
    """Worker processes start at once."""
