"""The results of a forecast's methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from surefoot.forecasting._schedules import Floats
from surefoot.plots import short


class Prediction(NamedTuple("Interval", [("loss", float), ("low", float), ("high", float)])):
    """A forecast loss with its 90 % interval: three numbers, ``loss, low, high``, and a ``note`` on extrapolation."""

    note: str

    def __new__(cls, loss: float, low: float, high: float, note: str = "") -> Prediction:
        prediction = super().__new__(cls, loss, low, high)
        prediction.note = note
        return prediction

    def __str__(self) -> str:
        tail = f" ({self.note})" if self.note else ""
        return f"{self.loss:.4f} [{self.low:.4f}, {self.high:.4f}]{tail}"


@dataclass(frozen=True)
class Choice:
    """The best rate and schedule of those asked for; rates are ``lr * factors``."""

    lr: float
    schedule: str
    """Its name; ``optimised`` if it was made for these runs."""
    factors: Floats = field(repr=False)
    """The schedule, one factor per step."""
    loss: float
    low: float
    high: float
    note: str = ""
    """What speaks against it: it lies outside of what the runs cover, or at the edge, or the form does not fit."""
    table: list[Choice] = field(default_factory=list, repr=False)
    """The same for every schedule that was asked for, the best first."""

    @property
    def steps(self) -> int:
        """T, the number of steps."""
        return len(self.factors)

    def __str__(self) -> str:
        value = Prediction(self.loss, self.low, self.high, self.note)
        return f"{self.schedule} with lr = {short(self.lr)} for {self.steps} steps: {value}"
