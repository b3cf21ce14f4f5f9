"""The executor: takes runs to the steps that are asked for, in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from surefoot.runs._keeper import Keeper
from surefoot.runs._lane import Lane, Told
from surefoot.runs._place import ClusterError, Place, deferred_interrupt
from surefoot.runs._run import Run, RunError
from surefoot.runs._run_files import CheckpointError
from surefoot.runs._types import Key, Trace
from surefoot.runs._work import Piece, Work
from surefoot.runs._workers import CannotTravel, WorkerDied, Workers

if TYPE_CHECKING:
    from surefoot.runs._dask import DaskWorkers

_PAYS_SECONDS = 4.0
"""Seconds of a whole run from which on other processes pay: about twice what it takes until they are ready."""
_LOOK_SECONDS = 0.2
"""Seconds of computing after which it can be told how long a whole run takes."""
_WAIT_SECONDS = 0.2
_HERE = -1
"""This process, among the workers."""

Group = list[Lane]
"""Runs that are advanced in one go."""


class Runner:
    """Takes runs to steps. A study asks for all of them at T, a search for some at a time.

    Runs that are asked for together run side by side where several processes are in use. A search computes in this
    process, too, and while a process is free, it goes on with runs that are likely to be asked for next: that saves
    time and changes nothing else, because a lane tells a policy only what it has asked for. The last piece of a run is
    never computed before it is asked for.

    Args:
        work: What takes runs to steps, here and, as a copy, in other processes.
        keeper: Where runs are kept, with whom others may share them; by default nobody.
        place: Where runs are computed; by default in one process a core if there is enough to do.
        whole: Whether runs are asked for at T once and for all, as a study does.
        finished: Told what a study keeps of runs that have come to their end.
    """

    def __init__(
        self,
        work: Work,
        *,
        keeper: Keeper | None = None,
        place: Place | None = None,
        whole: bool = False,
        finished: Callable[[list[Trace]], None] | None = None,
    ) -> None:
        self._work, self._whole, self._finished = work, whole, finished
        self._keeper = keeper or Keeper()
        self._place = place or Place()
        self._helps = not whole and not self._place.is_dask
        """Whether this process computes beside others."""
        self._count = 0
        self._spent, self._steps, self._is_warm = 0.0, 0, False
        self._workers: Workers | DaskWorkers | None = None
        self._homes: dict[Key, int] = {}
        """The worker that has a run in memory, or :data:`_HERE`."""
        self._underway: dict[Key, Group] = {}
        """Runs that workers have been given, by the first of a group."""
        self._mine: dict[Key, Lane] = {}
        """Runs that nobody else may compute just now."""
        self._unlucky: set[Key] = set()
        """Runs that raised when nobody had asked for them; they may raise again."""
        if work.stays:
            if self._place.is_dask or (self._place.processes or 1) > 1:
                _say("runs that are advanced together as one computation stay in this process")
            self._place = Place(processes=1)
        elif multiprocessing.current_process().daemon and not self._place.is_dask:
            self._stay("this process may not have processes of its own")

    @property
    def horizon(self) -> int:
        """T, the steps of a whole run."""
        return self._work.horizon

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._workers is not None:
            self._workers.close()

    def advance(
        self,
        lanes: Sequence[Lane],
        step: int,
        likely: Sequence[Lane] = (),
        tick: Callable[[float], None] | None = None,
    ) -> None:
        """Take runs to a step; what is recorded already is not computed again.

        Args:
            lanes: The runs.
            step: Where to.
            likely: Runs that will probably be asked for next, the likeliest first.
            tick: Told now and then how many steps the runs under way have taken.
        """
        while left := [lane for lane in lanes if lane.is_behind(step)]:
            worked = self._advance(left, step, likely, tick or (lambda steps: None))
            self._release()
            if not worked:
                self._keeper.restore(left)
                if all(lane.is_behind(step) for lane in left):
                    time.sleep(_WAIT_SECONDS)  # others compute them, or are dead and their claims have to expire
        for lane in lanes:
            lane.ask(step)

    def _advance(self, left: Sequence[Lane], step: int, likely: Sequence[Lane], tick: Callable[[float], None]) -> bool:
        """Do what can be done now: runs that another process has claimed are left out."""
        groups, worked = self._work.groups(left), False
        with ExitStack() as stack:
            parallel = self._goes_parallel(groups)
            check = stack.enter_context(deferred_interrupt()) if parallel and not self._helps else lambda: None

            def beat(steps: float) -> None:
                tick(steps)
                check()

            while groups := [group for group in groups if any(lane.is_behind(step) for lane in group)]:
                group: Group | None = groups[0]
                if self._goes_parallel(groups):
                    group = self._hand_out(groups, step, likely)
                elif not self._claim(groups[0]):
                    groups.pop(0)
                    continue
                if group is not None:
                    worked = True
                    self._compute(group, step, beat)
                elif self._underway:
                    worked = True
                    self._take(groups, step, _WAIT_SECONDS)
                    beat(self._work.saved(self._underway))
                while self._underway and self._take(groups, step, 0.0):
                    pass
                check()
        return worked

    def run_of(self, lane: Lane) -> Run | None:
        """The run of a lane where it stands; None if only its record was there."""
        return self._work.run_of(lane.key)

    # ---- in this process

    def _compute(self, group: Group, step: int, tick: Callable[[float], None]) -> None:
        """Take some runs further: to the step, or for a search to the next cut."""
        end = step

        def look() -> bool:
            tick(self._work.underway())
            return False

        if not self._whole:
            group = [lane for lane in group if lane.is_behind(step)]
            if not group:  # what was claimed had been taken there by somebody else in the meantime
                return
            first = min(lane.recorded for lane in group)
            group = [lane for lane in group if lane.recorded == first]
            end = min(step, self._work.next_cut(first))
        begin = time.process_time()
        saves = self._keeper.files.lasts and not self._whole
        pieces = [Piece(lane.key, lane.recorded, end, saves) for lane in group]
        self._record(group, self._work.do(pieces, look if self._whole else None))
        self._homes |= {lane.key: _HERE for lane in group}
        if self._is_warm:  # the first steps of a process load libraries
            self._spent += time.process_time() - begin
            self._steps += sum(piece.end - piece.known for piece in pieces)
        self._is_warm = True

    def _record(self, group: Group, reports: Sequence[Told]) -> None:
        for lane, told in zip(group, reports, strict=True):
            lane.take(told)
        traces = [told.trace for told in reports if told.trace is not None]
        if traces and self._finished is not None:
            self._finished(traces)

    # ---- who may compute what

    def _claim(self, group: Group) -> bool:
        """Claim some runs for this process, as they are now."""
        new = [lane for lane in group if lane.key not in self._mine]
        if new and not self._keeper.claim(new):
            return False
        self._mine |= {lane.key: lane for lane in new}
        return True

    def _release(self) -> None:
        """Let others have what this process does not compute just now."""
        busy = {lane.key for group in self._underway.values() for lane in group}
        idle = [lane for key, lane in self._mine.items() if key not in busy]
        if idle:
            self._keeper.release(idle)
        for lane in idle:
            del self._mine[lane.key]

    # ---- several processes

    def _goes_parallel(self, groups: Sequence[Group]) -> bool:
        """Whether runs go on in workers, too.

        Where nobody asked for workers, they are started as soon as it is clear that they pay off, and the runs go on
        here until they have come up.
        """
        if self._workers is None and not self._start_workers(groups):
            return False
        assert self._workers is not None
        return not self._helps or bool(self._workers.ready)

    def _start_workers(self, groups: Sequence[Group]) -> bool:
        """Start workers if they pay off; False if they do not, or cannot be started."""
        place, work = self._place, self._work
        count = self._count = self._count or place.count(work.workers(groups))
        if self._whole:
            count = min(count, len(groups))
        if count == 1 and not place.is_dask:
            return False
        if self._helps and place.processes is None:
            run_seconds = self._spent / max(self._steps, 1) * self.horizon
            if self._spent < _LOOK_SECONDS or max(run_seconds, self._spent) < _PAYS_SECONDS:
                return False
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                self._count = 1  # one process a GPU; with processes given, whoever asks knows
                return False
        try:
            copy = work.copy(count)
            self._workers = place.pool(copy, count - self._helps, _named)
        except CannotTravel as error:
            if place.is_dask:
                raise TypeError(f"what makes the runs cannot be sent to other processes: {error}") from error
            self._stay(f"what makes the runs cannot be sent to others ({error})")
            return False
        work.max_states = copy.max_states  # all together hold as many as before
        return True

    def _hand_out(self, asked: list[Group], step: int, likely: Sequence[Lane]) -> Group | None:
        """Give workers what is asked for, where it is at hand; then what is likely. Returns what is left to do here.

        What somebody else has claimed is taken out of ``asked``.
        """
        waiting = [group for group in asked if group[0].key not in self._underway]
        local = self._local_group(waiting) if self._helps else None
        if local is not None and not self._claim(local):
            asked.remove(local)
            return self._hand_out(asked, step, likely)
        waiting = [group for group in waiting if group is not local]
        rules = (
            lambda group, worker: self._homes.get(group[0].key) == worker,
            lambda group, worker: group[0].key not in self._homes,
            lambda group, worker: True,
        )
        # A second one each, to begin with while this process is busy; the last one is for whoever is free first.
        for room, is_right in itertools.product((1, 2), rules):
            for worker in self._with_room(room):
                while group := next((group for group in waiting if is_right(group, worker)), None):
                    if room == 2 and len(waiting) == 1 and self._helps:
                        break
                    waiting.remove(group)
                    if not self._claim(group):
                        asked.remove(group)
                    elif any(lane.is_behind(step) for lane in group):
                        self._give(worker, group, step)
                        break
        self._guess(asked, likely)
        return local

    def _guess(self, asked: Sequence[Group], likely: Sequence[Lane]) -> None:
        """Let workers that are free go on with what will probably be asked for."""
        cuts = self._work.cuts
        last = cuts[-2] if len(cuts) > 1 else 0
        known = {id(lane) for group in asked for lane in group}
        for lane in likely:
            free = self._with_room(1)
            if not free:
                return
            busy = lane.key in self._underway or lane.key in self._unlucky or id(lane) in known
            if lane.is_behind(last) and not busy and self._claim([lane]) and lane.is_behind(last):
                # Two pieces, while this process does one.
                end = self._work.next_cut(self._work.next_cut(lane.recorded))
                self._give(free[0], [lane], min(end, last))

    def _local_group(self, waiting: Sequence[Group]) -> Group | None:
        """The group for this process: one that it has, or that nobody has, or one too many for the workers."""
        groups = [group for group in waiting if self._homes.get(group[0].key, _HERE) == _HERE]
        groups.sort(key=lambda group: group[0].key not in self._homes)
        spare = waiting[-1:] if len(waiting) > len(self._with_room(1)) else []
        return next(iter((*groups, *spare)), None)

    def _with_room(self, depth: int) -> list[int]:
        """The workers that have fewer than ``depth`` tasks, those with the fewest first."""
        assert self._workers is not None
        busy = Counter(self._homes[key] for key in self._underway)
        workers = self._workers.ready if self._helps else range(len(self._workers))
        return sorted((worker for worker in workers if busy[worker] < depth), key=lambda worker: busy[worker])

    def _give(self, worker: int, group: Group, step: int) -> None:
        """Let a worker take runs to a step."""
        assert self._workers is not None
        for lane in group:
            self._work.put_aside(lane.key)
        self._underway[group[0].key] = group
        self._homes |= {lane.key: worker for lane in group}
        self._workers.give(worker, [Piece(lane.key, lane.recorded, step, not self._whole) for lane in group])

    def _take(self, asked: Sequence[Group], step: int, seconds: float) -> bool:
        """Take what workers have done, or do within some seconds; False if that is nothing.

        Errors come last: what has been done beside them is kept.
        """
        assert self._workers is not None
        answers = sorted(self._workers.take(seconds), key=lambda answer: answer.error is not None)
        for pieces, reports, error in answers:
            group = self._underway.pop(pieces[0].key)
            if error is None:
                self._record(group, reports)
            elif isinstance(error, WorkerDied | CannotTravel):
                self._stay(str(error))
                return False
            elif not any(group[0] is asked_group[0] for asked_group in asked) or not group[0].is_behind(step):
                self._unlucky.add(pieces[0].key)
            elif isinstance(error, RunError | ClusterError | CheckpointError):
                raise error
            else:
                raise RunError(f"the run at {_named(pieces)} raised {error}") from error
        return bool(answers)

    def _stay(self, reason: str) -> None:
        """Go on in this process alone, and say why."""
        _say(f"all runs stay in one process: {reason}")
        self._place, self._count = Place(processes=1), 1
        self._underway.clear()
        if self._workers is not None:
            self._workers.close()
            self._workers = None


def _named(pieces: Sequence[Piece]) -> str:
    beside = f" and {len(pieces) - 1} runs beside it" if len(pieces) > 1 else ""
    return f"{pieces[0].key}{beside}"


def _say(text: str) -> None:
    logging.getLogger("surefoot").warning(text)
