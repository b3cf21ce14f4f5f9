"""What a search has found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from surefoot.search._candidate import raised
from surefoot.search._run import Run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Dropped:
    """A candidate that cannot have the smallest bound, and the proof."""

    method: str
    lr: float
    steps: int
    """Steps it ran before it was dropped, over all data orders; 0 if it never started."""
    bias: float
    noise: float
    """Σ w_t δ_t over these steps, which can only grow; ∞ if the run diverged."""

    @property
    def at_least(self) -> float:
        """bias + noise: the whole bound of this candidate is at least this."""
        return self.bias + self.noise


@dataclass(frozen=True)
class Certificate:
    """Proof that a candidate has the smallest last-iterate bound Ω of all, up to a factor 1 + tolerance.

    It speaks of the empirical Ω of these candidates: of the indices δ_t measured on these data orders, not of their
    expectation, nor of the loss.
    """

    method: str
    lr: float
    bound: float
    """Ω of the winner, complete."""
    bias: str
    """The rule behind the bias: ``distance …`` or ``envelope``."""
    tolerance: float
    dropped: tuple[Dropped, ...]

    @property
    def holds(self) -> bool:
        """Whether no dropped candidate's lower bound is below the winner's bound, up to the tolerance."""
        return all(self.bound <= raised(other.at_least, self.tolerance) for other in self.dropped)

    def __str__(self) -> str:
        name = f"{self.method + ' ' if self.method else ''}lr={self.lr:g}"
        factor = f", up to a factor {1 + self.tolerance:g}" if self.tolerance else ""
        lines = [f"{name} has the smallest bound, {self.bound:.4g} ({self.bias}){factor}; the others have at least"]
        for other in self.dropped:
            name = f"{other.method + ' ' if other.method else ''}lr={other.lr:g}"
            lines.append(
                f"  {name}: {other.at_least:.4g} = {other.bias:.4g} + {other.noise:.4g} after {other.steps} steps"
            )
        return "\n".join([*lines, "for the indices measured on these data orders"])


@dataclass(frozen=True)
class Row:
    """What happened to one candidate."""

    method: str
    lr: float
    steps: int
    """Over all data orders."""
    outcome: str
    """``chosen``, ``finished``, ``dropped``, ``diverged``, ``dead`` or ``never started``."""
    reason: str
    loss: float
    """Mean batch loss of the last steps it took, ∞ after divergence, NaN if it never started; of a finished one the
    loss that decides."""
    bias: float
    noise: float
    """Of the steps taken."""

    @property
    def bound(self) -> float:
        """bias + noise: Ω of a finished candidate, else a lower bound of it."""
        return self.bias + self.noise


@dataclass(frozen=True)
class Table:
    """One row a candidate, in the order of methods and rates."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, position: int) -> Row:
        return self.rows[position]

    def to_frame(self) -> pd.DataFrame:
        """A pandas table."""
        import pandas as pd

        return pd.DataFrame([asdict(row) | {"bound": row.bound} for row in self.rows])

    def __str__(self) -> str:
        named = any(row.method for row in self.rows)
        head = [*(["method"] if named else []), "lr", "steps", "loss", "bound", "outcome", "reason"]
        lines = [head]
        for row in self.rows:
            mark = "" if row.outcome in ("chosen", "finished") else "≥ "
            loss = f"{row.loss:.4g}" if row.steps else "–"  # nothing was measured
            cells = [f"{row.lr:.4g}", str(row.steps), loss, f"{mark}{row.bound:.4g}"]
            lines.append([*([row.method] if named else []), *cells, row.outcome, row.reason])
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )


@dataclass(frozen=True)
class Found:
    """The answer of :func:`~surefoot.search.tune`."""

    lr: float
    """The rate."""
    method: str
    """Its method, empty if there was one only, without a name."""
    loss: float
    """Its loss: what its run evaluates at the end, or the mean batch loss over the last tenth of the steps."""
    bound: float
    """Ω of the last iterate (Theorem 3.4) with the search's bias and the indices of its runs."""
    certificate: Certificate | None
    """Proof that ``bound`` is the smallest of all; None where the theory gives none."""
    steps: int
    """Steps taken (or taken over from a store), over all candidates and data orders."""
    cost: float
    """``steps`` relative to running every candidate to the end."""
    horizon: int
    seeds: tuple[int, ...]
    table: Table
    """What happened to every candidate."""
    run: Run | None = field(repr=False, default=None)
    """The finished run of the first data order; None if it was taken from a study's store."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what ran how far, and why it stopped."""
        from surefoot.search._plot import draw

        return draw(self, ax)
