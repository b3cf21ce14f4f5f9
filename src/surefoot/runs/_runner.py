"""Takes runs to the steps that are asked for: in this process, or side by side in several."""

from __future__ import annotations

import bisect
import logging
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from surefoot.runs._bench import Advanced, Bench, DamagedState, Piece, RunKey, stem_of
from surefoot.runs._lane import Lane
from surefoot.runs._run import Run, RunError, RunFactory, SearchError
from surefoot.runs._threads import cores
from surefoot.runs._workers import CannotTravel, WorkerDied, Workers

_PAYS_SECONDS = 2.0
"""Seconds of computing after which other processes are started: about what it takes until they are ready."""


class Keeper(Protocol):
    """Keeps what is known of runs, so that they can go on after an interruption."""

    def stem(self, lane: Lane, step: int) -> Path:
        """Where the state of a run after some steps is to be written, without the suffix."""

    def restore(self, lane: Lane) -> None:
        """Fill a lane with what is kept of it."""

    def save(self, lane: Lane, found: Advanced) -> None:
        """Keep a run as it is now; its state is written already."""

    def state(self, lane: Lane) -> str | None:
        """The file with a run's state, if there is one."""

    def advice(self, lane: Lane) -> str:
        """What to do if that file is damaged."""


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
        processes: Worker processes; None takes one a core once there is enough to do.
    """

    def __init__(
        self,
        factories: Mapping[str, RunFactory],
        horizon: int,
        *,
        max_states: int,
        cuts: Sequence[int],
        keeper: Keeper | None = None,
        processes: int | None = None,
    ) -> None:
        self.factories, self.horizon = factories, horizon
        self._cuts, self._keeper = sorted(cuts), keeper
        self._bench = Bench(factories, horizon, max_states)
        self._together = [name for name, factory in factories.items() if hasattr(factory, "advance_together")]
        self._count = cores() if processes is None else processes
        self._pays = 0.0 if processes is not None else _PAYS_SECONDS
        self._spent = 0.0
        self._workers: Workers | None = None
        self._are_ready = False
        self._states: dict[RunKey, str] = {}
        """Where the states of runs are that no keeper knows of."""
        self._homes: dict[RunKey, int] = {}
        """The worker that has a run in memory."""
        self._underway: dict[RunKey, Lane] = {}
        self._unlucky: set[RunKey] = set()
        """Runs that raised when nobody had asked for them; they may raise again."""
        if self._count > 1 and len(self._together) == len(factories):
            if processes is not None:
                _say("runs that are advanced together as one computation stay in this process")
            self._count = 1
        elif self._count > 1 and multiprocessing.current_process().daemon:
            self._stay("this process may not have processes of its own")

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
            raise self._damaged(lane, error) from error

    def _advance_together(self, behind: Sequence[Lane], step: int) -> None:
        """In pieces of equal length, so that little is lost by an interruption."""
        size = max(1, min(len(behind), self._bench.max_states))
        for begin in range(0, len(behind), size):
            while left := [lane for lane in behind[begin : begin + size] if lane.is_behind(step)]:
                k = min(self._next_cut(lane, step) - lane.recorded for lane in left)
                self._compute([self._piece(lane, lane.recorded + k) for lane in left], left)

    def _advance_each(self, behind: Sequence[Lane], step: int, likely: Sequence[Lane]) -> None:
        for lane in behind:
            while lane.is_behind(step) and not self._goes_parallel():
                self._compute([self._piece(lane, self._next_cut(lane, step))], [lane])
        while any(lane.is_behind(step) for lane in behind):
            if self._workers is None or not self._are_ready:  # they have died
                self._advance_each(behind, step, likely)
                return
            self._hand_out(self._workers, behind, step, likely)
            self._take(self._workers, behind, step)

    def _compute(self, pieces: Sequence[Piece], lanes: Sequence[Lane]) -> None:
        """Pieces in this process."""
        begin = time.process_time()
        try:
            found = self._bench.do(pieces)
        except DamagedState as error:
            raise self._damaged(lanes[0], error) from error
        for lane, told in zip(lanes, found, strict=True):
            self._record(lane, told)
        self._spent += time.process_time() - begin

    # ---- several processes

    def _goes_parallel(self) -> bool:
        """Whether runs go on in workers. Where nobody asked for them, they are started as soon as that pays, and the
        runs go on here until they have come up."""
        if self._workers is None and not self._started():
            return False
        assert self._workers is not None
        if not self._are_ready and (not self._pays or self._workers.are_ready):
            self._states |= self._bench.put_all_aside()
            self._are_ready = True
        return self._are_ready

    def _started(self) -> bool:
        if self._count < 2 or self._spent < self._pays:
            return False
        torch = sys.modules.get("torch")
        if self._pays and torch is not None and torch.cuda.is_initialized():
            self._count = 1  # one process a GPU; with processes given, whoever asks knows
            return False
        try:
            self._workers = Workers(self._bench.copy(self._count), self._count)
        except CannotTravel as error:
            self._stay(f"what makes the runs cannot be sent to others ({error})")
            return False
        return True

    def _hand_out(self, workers: Workers, asked: Sequence[Lane], step: int, likely: Sequence[Lane]) -> None:
        """Give free workers something to do: what is asked for, where it is at hand; then what is likely."""
        last = self._cuts[-2] if len(self._cuts) > 1 else 0
        wanted = [(lane, self._next_cut(lane, step)) for lane in asked if lane.is_behind(step)]
        wanted = [(lane, end) for lane, end in wanted if lane.key not in self._underway]
        guessed = [
            (lane, self._next_cut(lane, last))
            for lane in likely
            if lane.is_behind(last) and lane.key not in self._underway and lane.key not in self._unlucky
        ]
        guessed = [(lane, end) for lane, end in guessed if all(lane is not other for other, _ in wanted)]
        for is_right in (
            lambda lane, worker: self._homes.get(lane.key) == worker,
            lambda lane, worker: lane.key not in self._homes,
            lambda lane, worker: True,
        ):
            for worker in workers.free:
                place = next((i for i, (lane, _) in enumerate(wanted) if is_right(lane, worker)), None)
                if place is not None:
                    self._give(workers, worker, *wanted.pop(place))
        for worker, (lane, end) in zip(workers.free, guessed, strict=False):
            self._give(workers, worker, lane, end)

    def _give(self, workers: Workers, worker: int, lane: Lane, end: int) -> None:
        self._underway[lane.key], self._homes[lane.key] = lane, worker
        workers.give(worker, [self._piece(lane, end, keep=True)])

    def _take(self, workers: Workers, asked: Sequence[Lane], step: int) -> None:
        """Take what workers have done."""
        for _, (piece,), found, error in workers.take():
            lane = self._underway.pop(piece.key)
            if error is None:
                before = self._state(lane)
                self._record(lane, found[0])
                if self._keeper is None:
                    self._states.pop(lane.key, None)
                    if found[0].state is not None:
                        self._states[lane.key] = found[0].state
                    if before is not None:
                        Path(before).unlink()
            elif isinstance(error, WorkerDied | CannotTravel):
                self._stay(str(error))
            elif all(lane is not other for other in asked) or not lane.is_behind(step):
                self._unlucky.add(piece.key)
            elif isinstance(error, DamagedState):
                raise self._damaged(lane, error) from error
            elif isinstance(error, RunError):
                raise error
            else:
                raise RunError(f"the run at {piece.key}, after {piece.begin} steps raised {error}") from error

    def _stay(self, reason: str) -> None:
        """Go on in this process alone, and say why."""
        _say(f"all runs stay in one process: {reason}")
        self._count = 1
        self._underway.clear()
        if self._workers is not None:
            self._workers.close()
            self._workers, self._are_ready = None, False

    # ---- pieces

    def _piece(self, lane: Lane, end: int, keep: bool = False) -> Piece:
        begin, stem = lane.recorded, None
        if self._keeper is not None:
            stem = str(self._keeper.stem(lane, end))
        elif keep:
            stem = str(stem_of(self._bench.folder, lane.key, end))
        return Piece(lane.key, begin, end - begin, self._state(lane), stem)

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

    def _damaged(self, lane: Lane, error: DamagedState) -> SearchError:
        path, reason = error.args
        advice = "" if self._keeper is None else f"; {self._keeper.advice(lane)}"
        return SearchError(f"{path} is damaged ({reason}){advice}")


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
