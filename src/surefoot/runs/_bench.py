"""Runs in one process: taken up, advanced, and put aside."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from surefoot._base.spawn import cores
from surefoot.problems import one_blas_thread
from surefoot.runs import torch_ranks
from surefoot.runs._lane import Lane, Told
from surefoot.runs._run import LOOK_EVERY, Run, RunError, RunFactory
from surefoot.runs._run_files import RunFiles
from surefoot.runs._types import Key, Trace
from surefoot.runs._work import Piece, Work
from surefoot.runs._workers import Stop, Stopped

_SAVE_SECONDS = 1.0
_SAVE_SHARE = 0.01
"""The least time between two times that a run is saved on its way, and the share of the time that this may take."""
_LOOK_SECONDS = 0.1
"""The time between two looks at the clock."""


@dataclass
class _Held:
    """A run at hand."""

    run: Run
    lane: Lane
    saved: int
    """The step at which it was put aside last."""
    trace: Trace | None = None


class Bench(Work):
    """The runs of some factories; a few are at hand, the others wait on disk.

    Args:
        factories: The factories, by method.
        horizon: T.
        cuts: Steps at which runs tell their distance from the start, the last of them T.
        files: Where runs wait; if these are of a store, runs are also saved on their way, now and then.
        max_states: Runs at hand; the one that was used longest ago is put aside.
        forgets: Whether runs that have come to their end are needed no more.
        shares: Whether several ranks of torch.distributed make every run together.
    """

    def __init__(
        self,
        factories: Mapping[str, RunFactory],
        horizon: int,
        cuts: Sequence[int],
        files: RunFiles,
        max_states: int = 1,
        *,
        forgets: bool = False,
        shares: bool = False,
    ) -> None:
        super().__init__(horizon, cuts, max_states)
        self.factories, self.files = factories, files
        self._forgets, self._shares = forgets, shares
        self._live: OrderedDict[Key, _Held] = OrderedDict()
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

    def workers(self, groups: Sequence[Sequence[Lane]]) -> int:
        """How many processes pay off for runs that begin now."""
        return min(getattr(factory, "workers", cores)() for factory in self.factories.values())

    def copy(self, count: int) -> Self:
        """A copy without runs for one of ``count`` processes, which together have as many runs at hand."""
        most = max(1, self.max_states // count)
        options = {"forgets": self._forgets, "shares": self._shares}
        return type(self)(self.factories, self.horizon, self.cuts, self.files, most, **options)

    def groups(self, lanes: Sequence[Lane]) -> list[list[Lane]]:
        """The runs that are advanced in one go: of one method as many as fit, where its factory can do that."""
        result, places = [], {id(lane): place for place, lane in enumerate(lanes)}
        for method, factory in self.factories.items():
            own_lanes = [lane for lane in lanes if lane.key.method == method]
            size = self.max_states if hasattr(factory, "advance_together") else 1
            result += [own_lanes[i : i + size] for i in range(0, len(own_lanes), size)]
        return sorted(result, key=lambda group: places[id(group[0])])

    def do(self, pieces: Sequence[Piece], stop: Stop | None = None) -> list[Told]:
        """Take runs of one method to a step, in one go if the factory can do that and they are at the same step."""
        if stop is not None and stop():
            raise Stopped
        if self._shares and torch_ranks.number() == 0:
            torch_ranks.shared(pieces)
        factory: Any = self.factories[pieces[0].key.method]
        try:
            with nullcontext() if getattr(factory, "keeps_threads", False) else _one_thread():
                all_held = [self._take(piece.key, piece.known) for piece in pieces]
                if hasattr(factory, "advance_together") and len(pieces) > 1:
                    for piece, held in zip(pieces, all_held, strict=True):
                        self._advance(held, piece.known, stop)  # where its state is gone
                    self._advance_together(factory, all_held, pieces[0].end)
                else:
                    for piece, held in zip(pieces, all_held, strict=True):
                        self._advance(held, piece.end, stop)
                return [self._answer(piece, held) for piece, held in zip(pieces, all_held, strict=True)]
        except BaseException:
            for piece in pieces:  # nobody knows where they are
                self._live.pop(piece.key, None)
            raise

    def follow(self) -> None:
        """Do, on any rank but the first, the pieces that the first one does, until it says that there are no more."""
        while (pieces := torch_ranks.shared(None)) is not None:
            self.do(pieces)

    def underway(self) -> int:
        """Steps of the runs at hand that have not come to their end."""
        return sum(held.lane.recorded for held in self._live.values() if not held.lane.ended)

    def saved(self, keys: Iterable[Key]) -> int:
        """Steps of runs that wait, or were saved on their way in another process."""
        records = (self.files.told(key) for key in keys)
        return sum(told.begin + len(told.losses) for told in records if told is not None)

    def run_of(self, key: Key) -> Run | None:
        """A run where it stands; None if it has left no state."""
        if key not in self._live:
            loaded = self.files.load(key)
            if loaded is None or loaded[1] is None:
                return None
        return self._take(key, 0).run

    def put_aside(self, key: Key) -> None:
        """Put a run on disk, if it is at hand and not there yet."""
        held = self._live.pop(key, None)
        if held is not None and held.lane.recorded > held.saved:
            self._save(held)

    def _take(self, key: Key, known: int) -> _Held:
        """A run, from memory, from disk, or new; if it has taken fewer steps than known, somebody lost its state."""
        held = self._live.get(key)
        if held is None or held.lane.recorded < known:
            lane = Lane(key, self.horizon)
            loaded = self.files.load(key) if torch_ranks.number() == 0 or not self._shares else None
            if self._shares:
                loaded = torch_ranks.shared(loaded)
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
            held = self._live[key] = _Held(run, lane, lane.recorded, run.trace() if lane.ended else None)
        self._live.move_to_end(key)
        while len(self._live) > self.max_states:
            self.put_aside(next(iter(self._live)))
        return held

    def _advance(self, held: _Held, end: int, stop: Stop | None) -> None:
        lane, pace, last = held.lane, LOOK_EVERY, time.monotonic()
        while lane.is_behind(end):
            k = min(end, self.next_cut(lane.recorded)) - lane.recorded
            if self.files.lasts or stop is not None:
                k = min(k, pace)
            begin = time.monotonic()
            with _named(lane):
                progress = held.run.advance(k)
            self._read(held, progress, k)
            now = time.monotonic()
            if now - begin < _LOOK_SECONDS:
                pace *= 2
            stops = stop is not None and stop() and not lane.ended
            if self.files.lasts and (stops or (now - last > self._pause and not lane.ended)):
                self._save(held)
                last = time.monotonic()
                self._pause = max(_SAVE_SECONDS, (last - now) / _SAVE_SHARE)
            if stops:
                raise Stopped

    def _advance_together(self, factory: Any, all_held: Sequence[_Held], end: int) -> None:
        """Advance runs that are at the same step, from cut to cut."""
        while left := [held for held in all_held if held.lane.is_behind(end)]:
            step = left[0].lane.recorded
            k = min(end, self.next_cut(step)) - step
            with _named(left[0].lane, " and runs beside it"):
                all_progress = list(factory.advance_together([held.run for held in left], k))
            for held, progress in zip(left, all_progress, strict=True):
                self._read(held, progress, k)

    def _answer(self, piece: Piece, held: _Held) -> Told:
        lane = held.lane
        if piece.saves and lane.recorded > held.saved:
            self._save(held)
        if lane.lost_at is not None or (self._forgets and lane.ended):
            self._live.pop(piece.key, None)
        return lane.told(min(piece.known, lane.recorded))._replace(trace=held.trace)

    def _save(self, held: _Held) -> None:
        held.saved = held.lane.recorded
        if not self._shares or torch_ranks.number() == 0:
            state = None if held.lane.lost_at is not None else held.run.state_dict()
            self.files.save(held.lane.key, held.lane.told(), state)

    def _read(self, held: _Held, progress: Any, k: int) -> None:
        """Note what a run has told about k steps, checked, and what it tells now."""
        run, lane = held.run, held.lane
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
            losses, deltas = (values[: int(bad.argmax()) + 1] for values in (losses, deltas))
        begin, end = lane.recorded, lane.recorded + len(losses)
        with _named(lane):
            held.trace = run.trace()
            if not lost and len(losses) < k and held.trace is None:
                raise RunError(f"{lane.key}: advance({k}) returned {len(losses)} steps, all of them finite")
            below = np.flatnonzero(~(deltas >= 0))
            marks, evaluation = lane.marks, None
            if not lost and end in self.cuts:
                distance = run.distance()
                marks = marks if distance is None else [*marks, (end, float(distance))]
            if not lost and end == self.horizon and (evaluation := run.evaluate()) is not None:
                evaluation = float(evaluation) if np.isfinite(float(evaluation)) else np.inf
            negative = lane.negative_at
            if len(below) and negative is None:
                negative = begin + int(below[0])
            proves = lane.proves and bool(run.certifies)
        lost_at = end - 1 if lost else None
        numbers = losses, np.maximum(deltas, 0.0)
        lane.take(Told(begin, *numbers, lost_at, negative, proves, tuple(marks), evaluation, held.trace))


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


def cuts_of(horizon: int, stops: Sequence[int] = ()) -> list[int]:
    """Steps at which runs tell their distance: at some stops and at T, and between them at least 32 times a run."""
    piece = -(-horizon // 32)
    cuts, begin = [], 0
    for end in sorted({*stops, horizon}):
        cuts += [*range(begin + piece, end, piece), end]
        begin = end
    return cuts
