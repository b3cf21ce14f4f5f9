"""Takes runs to the steps that are asked for: in this process, or side by side in several."""

from __future__ import annotations

import bisect
import itertools
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from surefoot._spawn import cores
from surefoot.runs._bench import Advanced, Bench, DamagedState, Piece
from surefoot.runs._execute import ClusterError, Place
from surefoot.runs._keeper import ADVICE, Keeper
from surefoot.runs._lane import Lane
from surefoot.runs._run import Run, RunError, RunFactory, SearchError
from surefoot.runs._types import Key
from surefoot.runs._workers import CannotTravel, WorkerDied, Workers

if TYPE_CHECKING:
    from surefoot.runs._dask import DaskWorkers

_PAYS_SECONDS = 4.0
"""Seconds of a whole run from which on other processes pay: about twice what it takes until they are ready."""
_LOOK_SECONDS = 0.2
"""Seconds of computing after which it can be told how long a whole run takes."""
_HERE = -1
"""This process, among the workers."""


class Runner:
    """The runs behind the lanes.

    Runs that are asked for together run side by side where several processes are in use. While one of them is free, it
    goes on with runs that are likely to be asked for next: that saves time and changes nothing else, because a lane
    tells a policy only what it has asked for. The last piece of a run is never computed before it is asked for.

    Args:
        factories: The run factory of each method.
        horizon: T.
        max_states: Runs in memory at once; the one that was used longest ago goes to disk.
        cuts: Steps at which runs are put aside, the last of them T: there they tell their distance from the start, and
            are saved if there is a keeper.
        keeper: Where runs are kept, to resume from.
        place: Where they are computed; by default in one process a core, this one among them, if there is enough to do.
    """

    def __init__(
        self,
        factories: Mapping[str, RunFactory],
        horizon: int,
        *,
        max_states: int,
        cuts: Sequence[int],
        keeper: Keeper | None = None,
        place: Place | None = None,
    ) -> None:
        self.factories, self.horizon = factories, horizon
        self._cuts, self._keeper = sorted(cuts), keeper
        self._bench = Bench(factories, horizon, max_states)
        self._together = [name for name, factory in factories.items() if hasattr(factory, "advance_together")]
        self._place = place or Place()
        self._count = self._place.count(cores())
        self._spent, self._steps, self._is_warm = 0.0, 0, False
        self._workers: Workers | DaskWorkers | None = None
        self._states: dict[Key, str] = {}
        """Where the states of runs are that no keeper knows of."""
        self._homes: dict[Key, int] = {}
        """The worker that has a run in memory, or :data:`_HERE`."""
        self._underway: dict[Key, tuple[Lane, int]] = {}
        """Runs that workers have been given, and the step that they are taken to."""
        self._unlucky: set[Key] = set()
        """Runs that raised when nobody had asked for them; they may raise again."""
        if len(self._together) == len(factories):
            if self._goes_elsewhere and self._is_asked_for:
                _say("runs that are advanced together as one computation stay in this process")
            self._place, self._count = Place(), 1
        elif self._goes_elsewhere and multiprocessing.current_process().daemon:
            self._stay("this process may not have processes of its own")

    @property
    def _is_asked_for(self) -> bool:
        return self._place.is_dask or self._place.processes is not None

    @property
    def _goes_elsewhere(self) -> bool:
        return self._place.is_dask or self._count > 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._workers is not None:
            self._workers.close()
        self._bench.close()

    def restore(self, lane: Lane) -> None:
        """Take over what is kept of a run."""
        if self._keeper is not None:
            self._keeper.restore(lane)

    def advance(self, lanes: Sequence[Lane], step: int, likely: Sequence[Lane] = ()) -> None:
        """Take runs to a step; what is recorded already is not computed again.

        Args:
            lanes: The runs.
            step: Where to.
            likely: Runs that will probably be asked for next, the likeliest first.
        """
        behind = [lane for lane in lanes if lane.is_behind(step)]
        for method in self._together:
            self._advance_together([lane for lane in behind if lane.key.method == method], step)
        self._advance_each([lane for lane in behind if lane.key.method not in self._together], step, likely)
        for lane in lanes:
            lane.ask(step)

    def run_of(self, lane: Lane) -> Run | None:
        """The run of a lane where it stands; None if only its record was there."""
        try:
            return self._bench.take(lane.key, lane.recorded, self._state(lane))
        except LookupError:
            return None
        except DamagedState as error:
            raise self._damaged(error) from error

    def _advance_together(self, behind: Sequence[Lane], step: int) -> None:
        """In pieces of equal length, so that little is lost by an interruption."""
        size = max(1, min(len(behind), self._bench.max_states))
        for begin in range(0, len(behind), size):
            while left := [lane for lane in behind[begin : begin + size] if lane.is_behind(step)]:
                k = min(self._next_cut(lane, step) - lane.recorded for lane in left)
                self._compute([self._piece(lane, lane.recorded + k) for lane in left], left)

    def _advance_each(self, behind: Sequence[Lane], step: int, likely: Sequence[Lane]) -> None:
        while left := [lane for lane in behind if lane.is_behind(step)]:
            own: Lane | None = left[0]
            if self._goes_parallel():
                own = self._hand_out(left, step, likely)
            if own is not None:
                self._compute([self._piece(own, self._next_cut(own, step))], [own])
            if own is None:
                self._take(behind, step, None)
            while self._underway and self._take(behind, step, 0.0):
                pass

    def _compute(self, pieces: Sequence[Piece], lanes: Sequence[Lane]) -> None:
        """Pieces in this process."""
        begin = time.process_time()
        try:
            found = self._bench.do(pieces)
        except DamagedState as error:
            raise self._damaged(error) from error
        for lane, told in zip(lanes, found, strict=True):
            self._record(lane, told)
            self._homes[lane.key] = _HERE
        if self._is_warm:  # the first steps of a process load libraries
            self._spent += time.process_time() - begin
            self._steps += sum(piece.steps for piece in pieces)
        self._is_warm = True

    # ---- several processes

    def _goes_parallel(self) -> bool:
        """Whether runs go on in workers, too. Where nobody asked for them, they are started as soon as it is clear that
        that pays, and the runs go on here until they have come up."""
        if self._workers is None and not self._started():
            return False
        assert self._workers is not None
        return bool(self._workers.ready)

    def _started(self) -> bool:
        if not self._goes_elsewhere:
            return False
        torch = sys.modules.get("torch")
        if not self._is_asked_for:
            a_run = self._spent / max(self._steps, 1) * self.horizon
            if self._spent < _LOOK_SECONDS or max(a_run, self._spent) < _PAYS_SECONDS:
                return False
            if torch is not None and torch.cuda.is_initialized():
                self._count = 1  # one process a GPU; with processes given, whoever asks knows
                return False
        try:
            bench, count = self._bench.copy(self._count), self._count - (not self._place.is_dask)
            self._workers = self._place.pool(bench, count, depth=1, named=lambda pieces: str(pieces[0].key))
            self._bench.max_states = bench.max_states  # all together hold as many as before
        except CannotTravel as error:
            if self._place.is_dask:
                raise TypeError(f"the search cannot be sent to other processes: {error}") from error
            self._stay(f"what makes the runs cannot be sent to others ({error})")
            return False
        return True

    def _hand_out(self, asked: Sequence[Lane], step: int, likely: Sequence[Lane]) -> Lane | None:
        """Give workers what is asked for, where it is at hand; then what is likely. Returns what is left to do here."""
        assert self._workers is not None
        wanted = [lane for lane in asked if lane.key not in self._underway]
        own = None if self._place.is_dask else self._own(wanted)
        wanted = [lane for lane in wanted if lane is not own]
        rules = (
            lambda lane, worker: self._homes.get(lane.key) == worker,
            lambda lane, worker: lane.key not in self._homes,
            lambda lane, worker: True,
        )
        # A second run each, to begin with while this process is busy; the last one is for whoever is free first.
        for room, is_right in itertools.product((1, 2), rules):
            for worker in self._with_room(room):
                lane = next((lane for lane in wanted if is_right(lane, worker)), None)
                if lane is not None and (room == 1 or len(wanted) > 1):
                    wanted.remove(lane)
                    self._give(worker, lane, step)
        last = self._cuts[-2] if len(self._cuts) > 1 else 0
        known = {id(lane) for lane in asked}
        guessed = [lane for lane in likely if lane.is_behind(last) and id(lane) not in known]
        guessed = [lane for lane in guessed if lane.key not in self._underway and lane.key not in self._unlucky]
        for worker, lane in zip(self._with_room(1), guessed, strict=False):
            ahead = bisect.bisect_right(self._cuts, lane.recorded) + 1  # two pieces, while this process does one
            self._give(worker, lane, min(self._cuts[ahead], last))
        return own

    def _own(self, wanted: Sequence[Lane]) -> Lane | None:
        """What this process does: a run that it has, or one that nobody has, or one too many for the workers."""
        mine = [lane for lane in wanted if self._homes.get(lane.key, _HERE) == _HERE]
        mine.sort(key=lambda lane: lane.key not in self._homes)
        spare = wanted[-1:] if len(wanted) > len(self._with_room(1)) else []
        return next(iter((*mine, *spare)), None)

    def _with_room(self, depth: int) -> list[int]:
        """The workers that have fewer runs than so many, those with the fewest first."""
        assert self._workers is not None
        busy = Counter(self._homes[key] for key in self._underway)
        return sorted((n for n in self._workers.ready if busy[n] < depth), key=lambda n: busy[n])

    def _give(self, worker: int, lane: Lane, step: int) -> None:
        """Let a worker take a run to a step, piece by piece; each but the first goes on from what it has in memory."""
        assert self._workers is not None
        moved = self._bench.hand_over(lane.key) if self._keeper is None else None
        if moved is not None:
            self._states[lane.key] = moved
        ends = [cut for cut in self._cuts if lane.recorded < cut < step] + [step]
        if self._place.is_dask:
            ends = ends[:1]  # the next one may go elsewhere
        self._underway[lane.key], self._homes[lane.key] = (lane, ends[-1]), worker
        begin, state = lane.recorded, self._state(lane)
        for end in ends:
            stem = self._bench if self._keeper is None else self._keeper
            self._workers.give(worker, [Piece(lane.key, begin, end - begin, state, str(stem.stem(lane, end)))])
            begin, state = end, None

    def _take(self, asked: Sequence[Lane], step: int, seconds: float | None) -> bool:
        """Take what workers have done, or do within some seconds; False if that is nothing."""
        assert self._workers is not None
        answers = self._workers.take(seconds)
        for _, (piece,), found, error in answers:
            lane, end = self._underway[piece.key]
            if piece.begin + piece.steps == end:
                del self._underway[piece.key]
            if error is None:
                before = self._state(lane)
                self._record(lane, found[0])
                if self._keeper is None:
                    self._states.pop(lane.key, None)
                    if found[0].state is not None:
                        self._states[lane.key] = found[0].state
                    if before is not None:
                        Path(before).unlink(missing_ok=True)
            elif isinstance(error, WorkerDied | CannotTravel):
                self._stay(str(error))
                return False
            elif lane.lost_at is not None:
                pass  # it has ended in a piece before
            elif all(lane is not other for other in asked) or not lane.is_behind(step):
                self._unlucky.add(piece.key)
            elif isinstance(error, DamagedState):
                raise self._damaged(error) from error
            elif isinstance(error, RunError | ClusterError):
                raise error
            else:
                raise RunError(f"the run at {piece.key}, after {piece.begin} steps raised {error}") from error
        return bool(answers)

    def _stay(self, reason: str) -> None:
        """Go on in this process alone, and say why."""
        _say(f"all runs stay in one process: {reason}")
        self._place, self._count = Place(), 1
        self._underway.clear()
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    # ---- pieces

    def _piece(self, lane: Lane, end: int) -> Piece:
        """A piece that is computed here."""
        stem = None if self._keeper is None else str(self._keeper.stem(lane, end))
        return Piece(lane.key, lane.recorded, end - lane.recorded, self._state(lane), stem)

    def _state(self, lane: Lane) -> str | None:
        if lane.key in self._states:
            return self._states[lane.key]
        return None if self._keeper is None or not lane.recorded else self._keeper.state(lane)

    def _next_cut(self, lane: Lane, step: int) -> int:
        return min(step, self._cuts[bisect.bisect_right(self._cuts, lane.recorded)])

    def _record(self, lane: Lane, found: Advanced) -> None:
        lane.record(found)
        if self._keeper is not None:
            self._keeper.save(lane, found)

    def _damaged(self, error: DamagedState) -> SearchError:
        path, reason = error.args
        return SearchError(f"{path} is damaged ({reason})" + ("" if self._keeper is None else f"; {ADVICE}"))


def cuts_of(horizon: int, stops: Sequence[int] = ()) -> list[int]:
    """Steps at which runs are put aside: at some stops and at T, and between them at least 32 times a run."""
    piece = -(-horizon // 32)
    found, begin = [], 0
    for end in sorted({*stops, horizon}):
        found += [*range(begin + piece, end, piece), end]
        begin = end
    return found


def _say(text: str) -> None:
    logging.getLogger("surefoot").warning(text)
