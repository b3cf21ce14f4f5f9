"""Advances the runs of a search, keeps a few of them in memory and the others on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from surefoot._states import load_state, save_state
from surefoot.search._candidate import Candidate, Lane
from surefoot.search._journal import Journal
from surefoot.search._run import Floats, Run, RunError, RunFactory

LaneKey = tuple[str, float, int]


class Runner:
    """The runs behind the lanes.

    Args:
        factories: The run factory of each method.
        horizon: T.
        max_states: Runs in memory at once; the one that was used longest ago goes to disk.
        piece: The most steps at once, after which trace and state are saved (if there is a journal).
        journal: Where traces and states are kept, to resume from.
        needs_distance: Refuse runs that do not tell how far they are from the start.
    """

    def __init__(
        self,
        factories: Mapping[str, RunFactory],
        horizon: int,
        *,
        max_states: int,
        piece: int,
        journal: Journal | None = None,
        needs_distance: bool = False,
    ) -> None:
        self.factories = factories
        self.horizon = horizon
        self._max_states, self._piece, self._journal = max_states, piece, journal
        self._needs_distance = needs_distance
        self._live: OrderedDict[LaneKey, Run] = OrderedDict()
        self._spilled: dict[LaneKey, Path] = {}
        self._spills = 0
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        if self._journal is not None:
            self._journal.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._journal is not None:
            self._journal.__exit__()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def restore(self, candidate: Candidate) -> None:
        """Take over what the journal holds of a candidate's runs."""
        if self._journal is not None:
            for lane in candidate.lanes:
                self._journal.restore(candidate, lane)

    def advance(self, candidates: Sequence[Candidate], step: int) -> None:
        """Take all runs of some candidates to a step; what is recorded already is not computed again."""
        self.advance_lanes([(candidate, lane) for candidate in candidates for lane in candidate.lanes], step)

    def advance_lanes(self, lanes: Sequence[tuple[Candidate, Lane]], step: int) -> None:
        """Take some runs to a step, those of a method together where its factory can do that."""
        for method, factory in self.factories.items():
            behind = [(c, lane) for c, lane in lanes if c.method == method and _behind(lane, step)]
            together = getattr(factory, "advance_together", None)
            size = min(len(behind), self._max_states) if together is not None else 1
            for begin in range(0, len(behind), max(size, 1)):
                self._advance_some(behind[begin : begin + size], step, together)
        for _, lane in lanes:
            reached = lane.recorded if lane.ended_at is not None else step
            lane.done = max(lane.done, min(step, reached))

    def run_of(self, candidate: Candidate) -> Run | None:
        """The run of a candidate's first data order where it stands; None if only its record was there."""
        lane = candidate.lanes[0]
        try:
            return self._take(candidate, lane)
        except LookupError:
            return None

    def _advance_some(self, behind: Sequence[tuple[Candidate, Lane]], step: int, together: Any) -> None:
        """Take runs to a step, in pieces of equal length so that little is lost by an interruption."""
        while True:
            left = [(c, lane) for c, lane in behind if _behind(lane, step)]
            if not left:
                return
            k = min(self._piece, *(step - lane.recorded for _, lane in left))
            runs = [self._take(candidate, lane) for candidate, lane in left]
            if together is not None and len(runs) > 1:
                with _named(left[0][0], left[0][1], "and runs beside it"):
                    found = list(together(runs, k))
            else:
                found = []
                for (candidate, lane), run in zip(left, runs, strict=True):
                    with _named(candidate, lane):
                        found.append(run.advance(k))
            for (candidate, lane), run, progress in zip(left, runs, found, strict=True):
                self._record(candidate, lane, run, progress, k)

    def _record(self, candidate: Candidate, lane: Lane, run: Run, progress: Any, k: int) -> None:
        begin = lane.recorded
        losses, deltas = _arrays(progress, k)
        if losses is None or deltas is None:
            raise RunError(
                f"{candidate.name}, seed {lane.seed}: advance({k}) must return two sequences of {k} numbers, "
                f"the losses and the stability indices, got {progress!r}"
            )
        bad = ~(np.isfinite(losses) & np.isfinite(deltas))
        if bad.any():
            lane.ended_at = begin + int(bad.argmax())
            losses, deltas = (values[: int(bad.argmax()) + 1] for values in (losses, deltas))
        elif len(losses) < k:
            raise RunError(
                f"{candidate.name}, seed {lane.seed}: advance({k}) returned {len(losses)} steps, all of them finite"
            )
        end = begin + len(losses)
        lane.losses[begin:end], lane.deltas[begin:end] = losses, deltas
        lane.recorded = end
        if lane.ended_at is not None:
            lane.losses[lane.ended_at :] = lane.deltas[lane.ended_at :] = np.inf
        # A negative index (momentum) makes partial sums prove nothing; in the sums it counts as zero.
        lane.certifies &= bool(getattr(run, "certifies", True)) and bool((deltas >= 0).all())
        np.maximum(lane.deltas[begin:end], 0.0, out=lane.deltas[begin:end])
        if lane.ended_at is None:
            if hasattr(run, "distance"):
                with _named(candidate, lane):
                    lane.marks.append((lane.recorded, float(run.distance())))
            if lane.recorded == self.horizon and hasattr(run, "evaluate"):
                with _named(candidate, lane):
                    value = float(run.evaluate())
                lane.evaluation = value if np.isfinite(value) else np.inf
        else:
            self._live.pop(_key(candidate, lane), None)
        if self._journal is not None:
            self._journal.save(candidate, lane, run)

    def _take(self, candidate: Candidate, lane: Lane) -> Run:
        """The run of a lane, from memory, from disk, or new."""
        key = _key(candidate, lane)
        run = self._live.get(key)
        if run is None:
            with _named(candidate, lane):
                run = self.factories[candidate.method](candidate.lr, lane.seed)
            if not isinstance(run, Run):
                raise TypeError(
                    "run_factory(lr, seed) must return a run with advance(k), state_dict() and load_state_dict(state), "
                    f"got {run!r}"
                )
            if self._needs_distance and not hasattr(run, "distance"):
                raise TypeError(
                    "bias='pool' needs runs with distance(), ‖x_t − x_1‖, to find the smallest bound; "
                    "give the bias as a distance D instead"
                )
            if lane.recorded:
                path = self._spilled.pop(key, None)
                if path is not None:
                    run.load_state_dict(load_state(path))
                    path.unlink()
                elif self._journal is not None:
                    run.load_state_dict(self._journal.state(candidate, lane))
                else:
                    raise LookupError(key)
            self._live[key] = run
        self._live.move_to_end(key)
        self._make_room()
        return run

    def _make_room(self) -> None:
        while len(self._live) > self._max_states:
            key, run = self._live.popitem(last=False)
            if self._journal is not None:
                continue  # its state is there already
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="surefoot-search-"))
            self._spills += 1
            self._spilled[key] = save_state(self._folder / str(self._spills), run.state_dict())


def _behind(lane: Lane, step: int) -> bool:
    return lane.recorded < step and lane.ended_at is None


def _key(candidate: Candidate, lane: Lane) -> LaneKey:
    return candidate.method, candidate.lr, lane.seed


def _arrays(progress: Any, k: int) -> tuple[Floats, Floats] | tuple[None, None]:
    try:
        losses, deltas = (np.array(values, float) for values in progress)
    except (TypeError, ValueError):
        return None, None
    if losses.ndim != 1 or losses.shape != deltas.shape or not 1 <= len(losses) <= k:
        return None, None
    return losses, deltas


class _named:
    """Says which run an error comes from."""

    def __init__(self, candidate: Candidate, lane: Lane, more: str = "") -> None:
        self._where = f"{candidate.name}, seed {lane.seed}, after {lane.recorded} steps{' ' if more else ''}{more}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, RunError):
            raise RunError(f"the run at {self._where} raised {type(error).__name__}: {error}") from error
