"""The results of a forecast's methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from surefoot.forecasting._schedules import Floats
from surefoot.plots import short


class _Interval(NamedTuple):
    loss: float
    low: float
    high: float


class Prediction(_Interval):
    """A forecast loss with its 90 % interval: three numbers, ``loss, low, high``, and a ``note`` on extrapolation."""

    note: str

    def __new__(cls, loss: float, low: float, high: float, note: str = "") -> Prediction:
        prediction = super().__new__(cls, loss, low, high)
        prediction.note = note
        return prediction

    def __str__(self) -> str:
        tail = f" ({self.note})" if self.note else ""
        return f"{self.loss:.4f} [{self.low:.4f}, {self.high:.4f}]{tail}"


class Option(NamedTuple):
    """One schedule with its best rate."""

    schedule: str
    lr: float
    loss: float
    low: float
    high: float


@dataclass(frozen=True)
class Choice:
    """The best rate and schedule of those asked for, and the best rate of every schedule in ``table``."""

    lr: float
    schedule: str
    steps: int
    loss: float
    low: float
    high: float
    table: list[Option]
    note: str = ""
    """What speaks against it: it lies outside of what the runs cover, or at the edge, or the form does not fit."""

    def __str__(self) -> str:
        value = Prediction(self.loss, self.low, self.high, self.note)
        return f"{self.schedule} with lr = {short(self.lr)} for {self.steps} steps: {value}"


@dataclass(frozen=True, repr=False)
class BestSchedule:
    """An optimised schedule: rates are ``lr * factors``, and never rise after the warmup."""

    lr: float
    """The largest rate."""
    factors: Floats
    """One per step, the largest is 1."""
    steps: int
    loss: float
    low: float
    high: float
    note: str = ""
    """What speaks against it: it lies outside of what the runs cover, or at the edge, or the form does not fit."""

    def __repr__(self) -> str:
        value = Prediction(self.loss, self.low, self.high, self.note)
        return f"BestSchedule(lr={short(self.lr)}, steps={self.steps}, loss={value})"
