"""What a store keeps of the runs of a search, so that the search can go on where it stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from surefoot._states import load_state, save_state
from surefoot.runs._bench import Advanced, state_stem
from surefoot.runs._claims import Claims
from surefoot.runs._lane import Lane
from surefoot.runs._progress import tell
from surefoot.runs._run import SearchError
from surefoot.runs._store import Store
from surefoot.runs._types import FINAL_FIELDS, STEP_FIELDS, Begun, Key, Record, record

ADVICE = "delete it, and its run is computed anew. All other runs are kept"
_ALL = Key("all runs of a search", 0.0, 0)
"""Who has claimed this searches."""
_WAIT_SECONDS = 0.2


class Keeper:
    """The runs of a search in a store.

    A row names its state, and is written after the state: whenever the process is killed, the store holds a row and the
    state that belongs to it. Inside of its context a search has its runs for itself: a second process waits, and then
    finds all of them there.

    Args:
        path: The file.
        context: Hash of what the runs share.
        identities: What the methods are stored under, by name.
        factories: Of a study's runs, which go to the study's results when they end, and which the study may have begun;
            None for other runs.
        cuts: Steps at which runs tell their distance from the start.
    """

    def __init__(
        self,
        path: Path,
        context: str,
        identities: Mapping[str, str],
        factories: Mapping[str, Any] | None = None,
        cuts: Sequence[int] = (),
    ) -> None:
        self._path, self._context, self._identities = path, context, identities
        self._factories, self._cuts = factories, cuts
        self._open = ExitStack()
        self._begun: dict[Key, Begun] = {}
        self._records: dict[Key, Record] = {}
        self._states: dict[Key, str | None] = {}

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._store = opened.enter_context(Store.write(self._path))
            claims = opened.enter_context(Claims(self._store, self._context))
            told = False
            while not claims.take([_ALL]):
                if not told:
                    tell(None, f"another process searches in {self._path}; waiting for its runs")
                told = True
                time.sleep(_WAIT_SECONDS)
            self._store.folder.mkdir(exist_ok=True)
            self._begun = self._store.begun(self._context)
            self._records = {found.key: found for found in self._store.records(self._context)}
            self._open = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    @property
    def finished(self) -> int:
        """How many finished runs of a study were there."""
        return len(self._records)

    def stem(self, lane: Lane, step: int) -> Path:
        """Where the state of a run after some steps is to be written, without the suffix."""
        return state_stem(self._stem(lane), step)

    def state(self, lane: Lane) -> str | None:
        """The file with the state that a run was left in."""
        return self._states.get(lane.key)

    def save(self, lane: Lane, found: Advanced) -> None:
        """Keep a run as it is now; one of a study that has come to its end counts among its results."""
        if self._factories is not None and found.trace is not None:
            self._store.add(self._context, [record(found.trace, self._key(lane).method)])
        self._write(lane, found.state)

    def restore(self, lane: Lane) -> None:
        """Fill a lane with what is kept of its run: by a search, in the results of a study, or by a study's sweep."""
        row, finished = self._begun.get(self._key(lane)), self._records.get(self._key(lane))
        if row is not None:
            self._fill(lane, row)
        self._forget(lane)
        if lane.recorded == len(lane.losses) or lane.lost_at is not None:
            return
        if finished is not None:
            self._take_result(lane, finished)
        elif self._factories is not None:
            self._take_over(lane, self._factories[lane.key.method])

    def _fill(self, lane: Lane, row: Begun) -> None:
        length = len(row.losses)
        lane.losses[:length], lane.deltas[:length], lane.recorded = row.losses, row.deltas, length
        lost, lane.negative_at, lane.proves = (row.about[name] for name in ("lost_at", "negative_at", "certifies"))
        if lost is not None:
            lane.lose(lost)
        lane.marks = [(step, distance) for step, distance in row.about["marks"]]
        lane.evaluation = row.about["evaluation"]
        self._states[lane.key] = None if row.state is None else str(self._store.folder / row.state)

    def _take_result(self, lane: Lane, found: Record) -> None:
        assert self._factories is not None
        values = dict(zip(STEP_FIELDS, found.steps, strict=True))
        lane.losses[:], lane.deltas[:] = values["loss"], np.maximum(values["delta"], 0.0)
        lane.recorded = len(lane.losses)
        lane.proves = bool(getattr(self._factories[lane.key.method], "certifies", True))
        if found.diverged_at >= 0:
            lane.lost_at, lane.recorded = found.diverged_at, found.diverged_at + 1
        else:
            lane.marks = [(lane.recorded, float(values["distance"][-1]))]
            lane.evaluation = found.final[FINAL_FIELDS.index("last_loss")]

    def _take_over(self, lane: Lane, factory: Any) -> None:
        """Take over a run that the study has begun, if it is further than what is here."""
        path = self._stem(lane).with_suffix(".pt")
        try:
            state = load_state(path)
        except FileNotFoundError:
            return
        except Exception as error:  # torch raises many kinds for a file that is none of its own
            raise SearchError(f"{path} is damaged ({error}); {ADVICE}") from error
        if int(state["step"]) <= lane.recorded:
            return
        run = factory(lane.key.lr, lane.key.seed)
        run.load_state_dict(state)
        told = run.numbers()
        lane.recorded = 0
        lane.marks = [(cut, float(told["distance"][cut])) for cut in self._cuts if cut < run.step]
        at = run.distance() if run.step in self._cuts else None
        below = np.flatnonzero(told["delta"] < 0)
        first = int(below[0]) if len(below) else None
        numbers = told["loss"], np.maximum(told["delta"], 0.0), False, first, bool(run.certifies), at
        lane.record(Advanced(*numbers, evaluation=None, trace=None, state=None))
        self._write(lane, str(save_state(self.stem(lane, run.step), run.state_dict())))

    def _write(self, lane: Lane, state: str | None) -> None:
        """Keep the row of a run whose state is written already, and forget the state before."""
        before, self._states[lane.key] = self._states.get(lane.key), state
        about = {
            "lost_at": lane.lost_at,
            "negative_at": lane.negative_at,
            "certifies": bool(lane.proves),
            "evaluation": lane.evaluation,
            "marks": lane.marks,
        }
        name = None if state is None else Path(state).name
        known = lane.losses[: lane.recorded], lane.deltas[: lane.recorded]
        self._store.keep(self._context, Begun(self._key(lane), *known, about, name))
        if before is not None and before != state:
            Path(before).unlink(missing_ok=True)

    def _forget(self, lane: Lane) -> None:
        """Remove all states of a run but the one that its row names, and what a killed process was writing."""
        state = self._states.get(lane.key)
        for path in self._store.folder.glob(f"*{self._stem(lane).name}-*.*"):
            if str(path) != state and path.suffix != ".steps":
                path.unlink(missing_ok=True)

    def _stem(self, lane: Lane) -> Path:
        return self._key(lane).stem(self._store.folder, self._context)

    def _key(self, lane: Lane) -> Key:
        return lane.key._replace(method=self._identities[lane.key.method])
