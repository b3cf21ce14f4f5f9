"""The work that an executor hands out: the same for single runs and for whole tiles of them."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from surefoot.runs._lane import Lane, Told
from surefoot.runs._run import Run
from surefoot.runs._types import Key
from surefoot.runs._workers import Stop


class Piece(NamedTuple):
    """A task: take a run to a step."""

    key: Key
    known: int
    """Steps whose numbers the caller knows already."""
    end: int
    saves: bool = False
    """Whether the run is put aside afterwards, for somebody else to go on with."""


class Work(ABC):
    """Takes runs to steps, in one process. A copy goes to every other one.

    As it stands here, runs are taken from the first step to the last in one go and wait nowhere.

    Args:
        horizon: T.
        cuts: Steps at which runs may be left, the last of them T.
        max_states: Runs at hand at a time.
    """

    stays = False
    """Whether all runs are advanced together as one computation, which stays in this process."""
    needs_torch = False
    """Whether the numbers depend on torch."""

    def __init__(self, horizon: int, cuts: Sequence[int] = (), max_states: int = 1) -> None:
        self.horizon, self.cuts, self.max_states = horizon, sorted(cuts) or [horizon], max_states

    @abstractmethod
    def fingerprint(self) -> str:
        """What the numbers depend on, as text."""

    @abstractmethod
    def groups(self, lanes: Sequence[Lane]) -> list[list[Lane]]:
        """The runs that are advanced in one go, in the order in which they should be done."""

    @abstractmethod
    def workers(self, groups: Sequence[Sequence[Lane]]) -> int:
        """How many processes pay off for runs that begin now."""

    @abstractmethod
    def do(self, pieces: Sequence[Piece], stop: Stop | None = None) -> list[Told]:
        """Take the runs of a group to a step."""

    def copy(self, count: int) -> Self:
        """A copy without runs for one of ``count`` processes, which together have as many runs at hand."""
        return self

    def next_cut(self, step: int) -> int:
        """The first cut behind a step."""
        return self.cuts[bisect.bisect_right(self.cuts, step)]

    def underway(self) -> int:
        """Steps of the runs at hand that have not come to their end."""
        return 0

    def saved(self, keys: Iterable[Key]) -> int:
        """Steps of runs that wait, or were saved on their way in another process."""
        return 0

    def run_of(self, key: Key) -> Run | None:
        """A run where it stands; None if it has left no state."""
        return None

    def put_aside(self, key: Key) -> None:  # noqa: B027  # where runs wait nowhere there is nothing to do
        """Let others go on with a run, if it is at hand."""
