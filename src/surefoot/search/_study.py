"""The search on what a study describes, with the study's store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from surefoot._identity import require
from surefoot._states import load_state, save_state
from surefoot.runs import (
    FINAL_FIELDS,
    STEP_FIELDS,
    Advanced,
    Key,
    Lane,
    Record,
    SearchError,
    Store,
    checkpoint_of,
    factory_of,
    record,
    search_folder,
    tell,
)
from surefoot.search._journal import Journal
from surefoot.study import Study


def factories_of_study(study: Study) -> dict[str, Any]:
    """What makes the runs of each method of a study."""
    if study.every != 1:
        raise ValueError(f"every must be 1 for a search, which needs all indices, got {study.every}")
    if study.stop:
        raise ValueError(f"stop must be empty for a search, which ends runs by its own rules, got {study.stop}")
    return {method.name: factory_of(study.problem, method, study.shared) for method in study.methods}


class StudyJournal(Journal):
    """Finished runs in the study's store, begun ones in a folder beside it."""

    def __init__(self, study: Study, path: Path, factories: Mapping[str, Any], cuts: Sequence[int]) -> None:
        self._cuts = cuts
        self._study, self._path, self._context = study, path, study._context()
        self._factories = factories
        require(study.identity(), study.version, f"store {str(path)!r}")
        with Store.write(path) as opened:
            study._check_size(opened)
            opened.register(self._context, study._settings())
        self._records: dict[Key, Record] = {}
        # Another spec may use the same store, so that each has a folder of its own.
        super().__init__(search_folder(path, self._context), {"context": self._context})

    def __enter__(self) -> Self:
        super().__enter__()
        with Store.read(self._path) as opened:  # now that nobody else searches
            self._records = {found.key: found for found in opened.records(self._context)}
        if self._records:
            rests = self._study.identity()
            tell(None, f"{len(self._records)} runs are in {self._path} already; the match rests on {rests}")
        return self

    def restore(self, lane: Lane) -> None:
        """Fill a lane from the folder if it has all, or else from the store."""
        super().restore(lane)
        found = self._records.get(self._key(lane))
        if lane.recorded == len(lane.losses) or lane.lost_at is not None:
            return
        if found is None:
            self._take_over(lane)
            return
        values = dict(zip(STEP_FIELDS, found.steps, strict=True))
        lane.losses[:], lane.deltas[:] = values["loss"], np.maximum(values["delta"], 0.0)
        lane.recorded = len(lane.losses)
        lane.proves = bool(getattr(self._factories[lane.key.method], "certifies", True))
        if found.diverged_at >= 0:
            lane.lost_at, lane.recorded = found.diverged_at, found.diverged_at + 1
        else:
            lane.marks = [(lane.recorded, float(values["distance"][-1]))]
            lane.evaluation = found.final[FINAL_FIELDS.index("last_loss")]

    def _take_over(self, lane: Lane) -> None:
        """Take over a run that the study has begun, if it is further than what is here."""
        stem = checkpoint_of(Path(f"{self._path}.runs"), self._context, self._key(lane))
        path = stem.with_name(f"{stem.name}.pt")
        try:
            state = load_state(path)
        except FileNotFoundError:
            return
        except Exception as error:  # torch raises many kinds for a file that is none of its own
            raise SearchError(f"{path} is damaged ({error}); delete it, and its run starts anew") from error
        if int(state["step"]) <= lane.recorded:
            return
        run = self._factories[lane.key.method](lane.key.lr, lane.key.seed)
        state.pop("model_digest", None)
        run.load_state_dict(state)
        told = run.numbers()
        lane.recorded = 0
        lane.marks = [(cut, float(told["distance"][cut])) for cut in self._cuts if cut < run.step]
        at = run.distance() if run.step in self._cuts else None
        below = np.flatnonzero(told["delta"] < 0)
        first = int(below[0]) if len(below) else None
        numbers = told["loss"], np.maximum(told["delta"], 0.0), False, first, bool(run.certifies), at
        lane.record(Advanced(*numbers, evaluation=None, trace=None, state=None))
        self._write(lane, save_state(self.stem(lane, run.step), run.state_dict()))

    def save(self, lane: Lane, found: Advanced) -> None:
        """Keep a run; one that has come to its end goes to the store as well."""
        super().save(lane, found)
        if found.trace is not None:
            with Store.write(self._path) as opened:
                opened.add(self._context, [record(found.trace, self._key(lane).method)])

    def _key(self, lane: Lane) -> Key:
        return Key(self._study._identities[lane.key.method], lane.key.lr, lane.key.seed)
