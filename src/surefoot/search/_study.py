"""The search on what a study describes, with the study's store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from surefoot._identity import require
from surefoot.problems import NetworkProblem, TiledProblem
from surefoot.runs import Advanced, Lane
from surefoot.search._journal import Journal
from surefoot.search._problem_run import ProblemRun
from surefoot.study import Study
from surefoot.study._archive import Key, Record, record
from surefoot.study._progress import tell
from surefoot.study._runs import FINAL_FIELDS, STEP_FIELDS
from surefoot.study._store import Store

if TYPE_CHECKING:
    from surefoot.search._network_run import NetworkRuns


def factories_of_study(study: Study) -> dict[str, ProblemRun | NetworkRuns]:
    """What makes the runs of each method of a study."""
    if study.every != 1:
        raise ValueError(f"every must be 1 for a search, which needs all indices, got {study.every}")
    if study.stop:
        raise ValueError(f"stop must be empty for a search, which ends runs by its own rules, got {study.stop}")
    if isinstance(study.problem, TiledProblem):
        return {m.name: ProblemRun.of_study(study.problem, m, study.shared) for m in study.methods}
    from surefoot.search._network_run import NetworkRuns

    assert isinstance(study.problem, NetworkProblem)
    return {method.name: NetworkRuns(study.problem, method, study.shared) for method in study.methods}


class StudyJournal(Journal):
    """Finished runs in the study's store, begun ones in a folder beside it."""

    def __init__(self, study: Study, path: Path, factories: Mapping[str, ProblemRun | NetworkRuns]) -> None:
        self._study, self._path, self._context = study, path, study._context()
        self._factories = factories
        require(study.identity(), study.version, f"store {str(path)!r}")
        with Store.write(path) as opened:
            study._check_size(opened)
            opened.register(self._context, study._settings())
        self._records: dict[Key, Record] = {}
        # Another spec may use the same store, so that each has a folder of its own.
        super().__init__(path.with_name(f"{path.name}.search-{self._context[:12]}"), {"context": self._context})

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
        if found is None or lane.recorded == len(lane.losses) or lane.lost_at is not None:
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

    def save(self, lane: Lane, found: Advanced) -> None:
        """Keep a run; one that has come to its end goes to the store as well."""
        super().save(lane, found)
        if found.trace is not None:
            with Store.write(self._path) as opened:
                opened.add(self._context, [record(found.trace, self._key(lane).method)])

    def _key(self, lane: Lane) -> Key:
        return Key(self._study._identities[lane.key.method], lane.key.lr, lane.key.seed)
