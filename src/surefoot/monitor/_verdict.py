"""The verdict: is this learning rate too small, does it work, or is it too large; why, and which rate is better."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from surefoot.plots import pages, short


class State(StrEnum):
    """Where a rate stands; each is the text of its name, so that ``state == "too small"`` can be asked."""

    TOO_SMALL = "too small"
    HOLDS = "holds"
    AT_THE_EDGE = "at the edge"
    TOO_LARGE = "too large"
    UNKNOWN = "unknown"


COLOURS = {
    state: pages.COLOURS[name][0] for state, name in zip(State, ("accent", "good", "warn", "bad", "soft"), strict=True)
}
"""The colours of verdicts in figures and notebooks."""


@dataclass(frozen=True)
class Verdict:
    """What a monitor makes of a run; its text says what is the case and what to do.

    >>> print(Verdict(State.TOO_SMALL, "the loss is unchanged", (0.003, 0.03), 0.01, lr=0.001, behind=0.4))
    Too small: the loss is unchanged. Best near 0.01 (0.003 to 0.03); yours, 0.001, is about 40 % of the gain behind.
    """

    state: State
    """``too small``, ``holds`` (it works), ``at the edge``, ``too large``, or ``unknown``, with the reason."""
    reason: str
    """What decided."""
    lr_range: tuple[float, float] | None = None
    """Rates to try, at most a decade: of the first parameter group, at the peak of the schedule."""
    best_lr: float | None = None
    """The likely best rate, inside of the range; None where the range is a first guess: the run is lost, or far off."""
    lr: float | None = None
    """The rate that was judged, at the peak of the schedule."""
    behind: float | None = None
    """The share of the gain, of what the best rate lowers the loss by, that this rate is likely behind."""
    more_steps: int = 0
    """Steps that are still wanted, if the state is unknown."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Numbers for experts: the evidence, and the sums that it adds up to."""

    @property
    def direction(self) -> int:
        """1 where a larger rate is likely better, −1 where a smaller one is, 0 where the present one will do."""
        known = {State.TOO_SMALL: 1, State.AT_THE_EDGE: -1, State.TOO_LARGE: -1}
        return known.get(self.state, int(self.behind is not None))

    @property
    def advice(self) -> str:
        """What to do."""
        if self.state is State.UNKNOWN:
            return f"Ask again in {self.more_steps} step{'s' * (self.more_steps > 1)}." if self.more_steps else ""
        if self.lr_range is None:
            return "Try a tenth of it." if self.state is State.TOO_LARGE else ""
        span = f"{short(self.lr_range[0], 2)} to {short(self.lr_range[1], 2)}"
        if self.best_lr is None:
            beyond = "more" if self.state is State.TOO_SMALL else "less"
            return f"Try {span}, and far {beyond} if that is {self.state} as well."
        best = f"best near {short(self.best_lr, 2)} ({span})"
        if self.behind is not None and self.lr is not None:
            best += f"; yours, {short(self.lr, 2)}, is about {100 * self.behind:.0f} % of the gain behind"
        if self.state is State.AT_THE_EDGE:
            return f"It may still work, but a smaller rate is safer: {best}."
        if self.state is State.HOLDS and self.direction:
            return f"It works, but a larger rate is likely better: {best}."
        return f"Keep it: {best}." if self.state is State.HOLDS else f"B{best[1:]}."

    def __str__(self) -> str:
        return f"{self.state.capitalize()}: {self.reason}. {self.advice}".strip()

    def _repr_html_(self) -> str:
        """A line in a notebook."""
        return f'<p style="border-left:4px solid {COLOURS[self.state]};padding:.4em .8em">{html.escape(str(self))}</p>'
