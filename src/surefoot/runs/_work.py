"""The work that the executor hands out, and runs in one process: begun, advanced, and saved."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from surefoot._base.processes import cores
from surefoot._base.randomness import global_random
from surefoot.problems import one_blas_thread
from surefoot.runs._lane import Lane, Told
from surefoot.runs._run import Run, RunError, RunFactory
from surefoot.runs._states import States
from surefoot.runs._types import Key, Trace

_SAVE_SECONDS = 1.0
_SAVE_SHARE = 0.01
"""The least time between two times that a run is saved on its way, and the share of the time that this may take."""
_LOOK_SECONDS = 0.1
"""The time between two looks at the clock."""

Stop = Callable[[], bool]
"""Asked now and then whether work should end."""


class Stopped(Exception):
    """Work was asked to stop."""


class Piece(NamedTuple):
    """A part of a task: take a run to a step."""

    key: Key
    known: int
    """Steps whose numbers the caller knows already."""
    end: int


class Work(ABC):
    """Takes runs to steps, in one process. A copy goes to every other one."""

    horizon: int
    """T, the steps of a whole run."""
    stays = False
    """Whether all runs are advanced together as one computation, which stays in this process."""
    needs_torch = False
    """Whether the numbers depend on torch."""
    takes_all = True
    """Whether all runs are taken to their end at once, as in a study."""

    @abstractmethod
    def fingerprint(self) -> str:
        """What the numbers depend on, as text."""

    @abstractmethod
    def groups(self, lanes: Sequence[Lane]) -> list[list[Lane]]:
        """The runs that are advanced in one go, in the order in which they should be done."""

    @abstractmethod
    def workers(self, tasks: Sequence[Sequence[Piece]]) -> int:
        """How many processes pay off for some tasks."""

    @abstractmethod
    def do(self, task: Sequence[Piece], stop: Stop | None = None) -> list[Told]:
        """Take the runs of a task to their steps; raise :class:`Stopped` if ``stop`` says so on the way."""

    def copy(self, count: int) -> Self:
        """A copy for one of ``count`` processes."""
        return self

    def leave(self) -> None:  # noqa: B027  # where nothing is at hand there is nothing to do
        """Save the runs at hand, so that other processes go on with them."""


@dataclass
class _Live:
    """A run at hand."""

    run: Run
    lane: Lane
    saved: int
    """The step at which it was saved last."""
    trace: Trace | None = None


class RunWork(Work):
    """The runs of some factories; a few are at hand, the others wait as files.

    Args:
        factories: The factories, by method.
        horizon: T.
        states: Where runs wait; if this is the folder of a store, runs are also saved on their way, now and then.
        max_states: Runs at hand; the one that was used longest ago is saved.
        takes_all: Whether all runs are taken to their end at once, and then needed no more.
    """

    def __init__(
        self,
        factories: Mapping[str, RunFactory],
        horizon: int,
        states: States,
        max_states: int = 1,
        *,
        takes_all: bool = False,
    ) -> None:
        self.factories, self.horizon, self.states, self.max_states = factories, horizon, states, max_states
        self.takes_all = takes_all
        self._saves = False
        """Whether runs are saved after every task, because another process may go on with them."""
        self._live: OrderedDict[Key, _Live] = OrderedDict()
        self._pause = _SAVE_SECONDS

    @property
    def needs_torch(self) -> bool:  # type: ignore[override]
        """Whether runs depend on torch; one that does not, but imports it, is none the worse for it."""
        return "torch" in sys.modules

    @property
    def stays(self) -> bool:  # type: ignore[override]
        """Whether all runs are advanced together as one computation."""
        return all(hasattr(factory, "advance_together") for factory in self.factories.values())

    def fingerprint(self) -> str:
        """The fingerprints of the factories that have one."""
        return " ".join(str(getattr(factory, "fingerprint", str)()) for factory in self.factories.values())

    def workers(self, tasks: Sequence[Sequence[Piece]]) -> int:
        """How many processes pay off."""
        return min(getattr(factory, "workers", cores)() for factory in self.factories.values())

    def copy(self, count: int) -> Self:
        """A copy without runs for one of ``count`` processes, which together have as many runs at hand."""
        most = max(1, self.max_states // count)
        copy = type(self)(self.factories, self.horizon, self.states, most, takes_all=self.takes_all)
        copy._saves = not self.takes_all
        return copy

    def leave(self) -> None:
        """Save the runs at hand, so that other processes go on with them."""
        while self._live:
            self._save(self._live.popitem(last=False)[1])

    def groups(self, lanes: Sequence[Lane]) -> list[list[Lane]]:
        """The runs that are advanced in one go: of one method as many as fit, where its factory can do that."""
        result, places = [], {id(lane): place for place, lane in enumerate(lanes)}
        for method, factory in self.factories.items():
            own_lanes = [lane for lane in lanes if lane.key.method == method]
            size = self.max_states if hasattr(factory, "advance_together") else 1
            result += [own_lanes[i : i + size] for i in range(0, len(own_lanes), size)]
        return sorted(result, key=lambda group: places[id(group[0])])

    def do(self, task: Sequence[Piece], stop: Stop | None = None) -> list[Told]:
        """Take runs of one method to a step, in one go if the factory can do that and they are at the same step."""
        if stop is not None and stop():
            raise Stopped
        factory: Any = self.factories[task[0].key.method]
        try:
            # Trainings in other threads wait: torch's number of threads and random numbers are those of the process.
            with self._alone(), nullcontext() if getattr(factory, "keeps_threads", False) else _one_thread():
                runs = [self._at_hand(piece.key, piece.known) for piece in task]
                if hasattr(factory, "advance_together") and len(task) > 1:
                    for piece, live in zip(task, runs, strict=True):
                        self._advance(live, piece.known, stop)  # where its state is gone
                    self._advance_together(factory, runs, task[0].end)
                else:
                    for piece, live in zip(task, runs, strict=True):
                        self._advance(live, piece.end, stop)
                return [self._answer(piece, live) for piece, live in zip(task, runs, strict=True)]
        except BaseException:
            for piece in task:  # nobody knows where they are
                self._live.pop(piece.key, None)
            raise

    def run_of(self, lane: Lane) -> Run | None:
        """A run where its record stands; None if it has left no state."""
        key = lane.key
        if key not in self._live or self._live[key].lane.recorded < lane.recorded:
            loaded = self.states.load(key)
            if loaded is None or loaded[1] is None:
                return None
        with self._alone(), _one_thread():
            live = self._at_hand(key, lane.recorded)
            self._advance(live, lane.recorded, None)  # what is saved may be of an earlier step
        return live.run

    def _alone(self) -> AbstractContextManager[Any]:
        return global_random if "torch" in sys.modules else nullcontext()

    def _at_hand(self, key: Key, known: int) -> _Live:
        """A run, from memory, from its file, or new; if it has taken fewer steps than known, its state was lost."""
        live = self._live.get(key)
        if live is None or live.lane.recorded < known:
            lane, loaded = Lane(key, self.horizon), self.states.load(key)
            with _named(lane):
                run = self.factories[key.method](key.lr, key.seed)
            if not isinstance(run, Run):
                raise TypeError(
                    "run_factory(lr, seed) must return a surefoot.search.Run, with advance(k), state_dict() and "
                    f"load_state_dict(state), got {run!r}"
                )
            if loaded is not None and loaded[1] is not None:
                lane.take(loaded[0])
                with _named(lane):
                    run.load_state_dict(loaded[1])
            live = self._live[key] = _Live(run, lane, lane.recorded, run.trace() if lane.ended else None)
        self._live.move_to_end(key)
        while len(self._live) > self.max_states:
            self._save(self._live.popitem(last=False)[1])
        return live

    def _advance(self, live: _Live, end: int, stop: Stop | None) -> None:
        lane, pace, last = live.lane, 1, time.monotonic()
        while lane.is_behind(end):
            k = end - lane.recorded
            if self.states.lasts or stop is not None:
                k = min(k, pace)
            begin = time.monotonic()
            with _named(lane):
                progress = live.run.advance(k)
            self._read(live, progress, k)
            now = time.monotonic()
            if now - begin < _LOOK_SECONDS:
                pace *= 2
            stops = stop is not None and stop() and not lane.ended
            if self.states.lasts and (stops or (now - last > self._pause and not lane.ended)):
                self._save(live)
                last = time.monotonic()
                self._pause = max(_SAVE_SECONDS, (last - now) / _SAVE_SHARE)
            if stops:
                raise Stopped

    def _advance_together(self, factory: Any, runs: Sequence[_Live], end: int) -> None:
        """Advance runs that are at the same step."""
        while left := [live for live in runs if live.lane.is_behind(end)]:
            k = end - left[0].lane.recorded
            with _named(left[0].lane, " and runs beside it"):
                all_progress = list(factory.advance_together([live.run for live in left], k))
            for live, progress in zip(left, all_progress, strict=True):
                self._read(live, progress, k)

    def _answer(self, piece: Piece, live: _Live) -> Told:
        lane = live.lane
        if self._saves or (self.states.lasts and not self.takes_all):
            self._save(live)
        if lane.lost_at is not None or (self.takes_all and lane.ended):
            self._live.pop(piece.key, None)
        return lane.told(min(piece.known, lane.recorded))._replace(trace=live.trace)

    def _save(self, live: _Live) -> None:
        if live.lane.recorded > live.saved:
            live.saved = live.lane.recorded
            state = None if live.lane.lost_at is not None else live.run.state_dict()
            self.states.save(live.lane.key, live.lane.told(), state)

    def _read(self, live: _Live, progress: Any, k: int) -> None:
        """Record what a run has returned about k steps, checked."""
        run, lane = live.run, live.lane
        try:
            losses, deltas = (np.array(values, float) for values in progress)
            fits = losses.ndim == 1 and losses.shape == deltas.shape and 1 <= len(losses) <= k
        except (TypeError, ValueError, RuntimeError):  # the last of torch, for a loss that would be differentiated
            fits = False
        if not fits:
            raise RunError(
                f"{lane.key}: advance({k}) must return two sequences of {k} numbers, the losses and the stability "
                f"indices, got {progress!r}"
            )
        bad = ~(np.isfinite(losses) & np.isfinite(deltas))
        lost = bool(bad.any())
        if lost:
            losses = losses[: int(bad.argmax()) + 1]
        begin, end = lane.recorded, lane.recorded + len(losses)
        with _named(lane):
            live.trace = run.trace()
            if not lost and len(losses) < k and live.trace is None:
                raise RunError(f"{lane.key}: advance({k}) returned {len(losses)} steps, all of them finite")
            evaluation = None
            if not lost and end == self.horizon and (evaluation := run.evaluate()) is not None:
                evaluation = float(evaluation) if np.isfinite(float(evaluation)) else np.inf
        lost_at = end - 1 if lost else None
        lane.take(Told(begin, losses, lost_at, evaluation, live.trace))


@contextmanager
def _named(lane: Lane, more: str = "") -> Iterator[None]:
    """Say in errors which run they come from."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        where = f"{lane.key}, after {lane.recorded} steps{more}"
        raise RunError(f"the run at {where} raised {type(error).__name__}: {error}") from error


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread in torch, if it is loaded, and in NumPy's linear algebra.

    Then sums do not depend on the cores of the machine, and runs side by side do not crowd them.
    """
    torch = sys.modules.get("torch")
    before = 1 if torch is None else torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)  # type: ignore[union-attr]
    try:
        with one_blas_thread():
            yield
    finally:
        if before > 1:
            torch.set_num_threads(before)  # type: ignore[union-attr]
