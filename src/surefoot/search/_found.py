"""What a search has found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING

from surefoot._base.text import aligned, html_table, visible
from surefoot.plots import short
from surefoot.runs import Run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Row:
    """What happened to one candidate."""

    method: str
    lr: float
    steps: int
    """Steps taken, over all seeds."""
    outcome: str
    """``chosen``, ``finished``, ``dropped``, ``diverged`` or ``never started``."""
    reason: str
    loss: float
    """Mean batch loss of the last steps it took, ∞ after divergence, NaN if it never started; of a finished one the
    loss that decides."""


class Table(tuple[Row, ...]):
    """One row per candidate, in the order of methods and rates; those that took a step are printed."""

    __slots__ = ()

    def to_frame(self) -> pd.DataFrame:
        """A pandas table."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self])

    def cells(self) -> list[list[str]]:
        """The candidates that took a step as text, the head first."""
        named = any(row.method for row in self)
        lines = [[*(["method"] if named else []), "lr", "steps", "loss", "outcome", "reason"]]
        for row in self:
            if row.steps:
                cells = [short(row.lr, 4), str(row.steps), short(row.loss, 4), row.outcome, row.reason]
                lines.append([*([visible(row.method)] if named else []), *cells])
        return lines

    def __str__(self) -> str:
        return aligned(self.cells())


@dataclass(frozen=True)
class Found:
    """The answer of :func:`~surefoot.search.tune`; ``print`` shows it as a table, with what to be careful with."""

    lr: float
    """The rate."""
    method: str
    """Its method, empty if there was one only, without a name."""
    loss: float
    """Its loss: what its run evaluates at the end, or the mean batch loss over the last tenth of the steps."""
    score: float
    """What decided among the finished runs: the loss, or with ``maximize`` what is to be large."""
    confidence: float
    """How surely the rate is near the best, from 0 to 1: the probability that no other candidate ends lower by more
    than 5 % of the gain from the start."""
    warnings: tuple[str, ...]
    """What to be careful with, in words."""
    start: float
    """The loss at the start, the mean over the first batches."""
    steps: int
    """Steps taken (or taken over from a store), over all candidates and seeds."""
    cost: float
    """``steps`` relative to running every candidate to the end."""
    horizon: int
    seeds: tuple[int, ...]
    table: Table
    """What happened to every candidate."""
    run: Run | None = field(repr=False, default=None)
    """The finished run of the first seed; None if it was taken from a study's store."""

    def summary(self) -> list[str]:
        """The answer in a few lines: the rate, the price, how sure it is, and the warnings."""
        name = f"{visible(self.method) + ' with ' if self.method else ''}lr = {short(self.lr, 4)}"
        runs, of = self.steps / self.horizon, len(self.table) * len(self.seeds)
        lines = [f"{name} for the price of {runs:.1f} runs of {of} ({self.cost:.0%} of the grid's steps)"]
        score = "" if self.score == self.loss else f", score {short(self.score, 4)}"
        lines.append(f"loss {short(self.loss, 4)}{score} (at the start {short(self.start, 4)})")
        lines.append(f"confidence {self.confidence:.2f} that no other rate of the grid ends 5 % of that gain lower")
        return [*lines, *(f"warning: {text}" for text in self.warnings)]

    def __str__(self) -> str:
        return "\n".join([*self.summary(), "", str(self.table)])

    def _repr_html_(self) -> str:
        """The answer as HTML, for notebooks."""
        lines = "".join(f"<div>{escape(line)}</div>" for line in self.summary())
        return lines + html_table(self.table.cells())
