"""The search on what a study describes, with the study's store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from surefoot._identity import require
from surefoot.problems import NetworkProblem, TiledProblem
from surefoot.search._candidate import Candidate, Lane
from surefoot.search._found import Found
from surefoot.search._journal import Journal
from surefoot.search._problem_run import ProblemRun
from surefoot.search._run import Run
from surefoot.search._tune import tune
from surefoot.study import Method, Study, Trace
from surefoot.study import Run as StudyRun
from surefoot.study._archive import Key, Record, record
from surefoot.study._methods import lower_bound_of
from surefoot.study._progress import tell
from surefoot.study._runs import FINAL_FIELDS, STEP_FIELDS, close
from surefoot.study._store import Store

if TYPE_CHECKING:
    from surefoot.search._network_run import NetworkRuns


def tune_study(
    study: Study | str | os.PathLike[str], store: str | os.PathLike[str] | None = None, **options: Any
) -> Found:
    """Find the best method and rate of a study without running all of it.

    Runs that the store holds cost nothing, and runs that are finished on the way are added to it, as ``study.run``
    would. What was begun is kept in a folder beside the store: after an interruption the same call goes on.

    Args:
        study: A study, or the TOML file that describes one.
        store: The study's file; without it nothing is kept.
        **options: Those of :func:`~surefoot.search.tune`, except ``seeds`` and ``schedule``. The bias is by
            default the study's ``distance``, else the envelope.

    >>> from surefoot.study import Study
    >>> study = Study("linear-regression", methods=["sgd", "ngn"], lrs=[0.01, 0.1, 1, 10], epochs=10, batch_size=5)
    >>> tune_study(study).method
    'ngn'
    """
    if not isinstance(study, Study):
        study = Study.from_spec(study)
    if study.every != 1:
        raise ValueError(f"every must be 1 for a search, which needs all indices, got {study.every}")
    if study.stop:
        raise ValueError(f"stop must be empty for a search, which ends runs by its own rules, got {study.stop}")
    for name in ("seeds", "schedule"):
        if name in options:
            raise TypeError(f"{name} is told by the study; tune_study takes no {name!r}")
    factories = {method.name: _factory(study, method) for method in study.methods}
    if options.get("bias", "auto") == "auto" and study.distance is not None:
        options["bias"] = study.distance
    journal = None if store is None else _StudyJournal(study, Path(store), factories)
    return tune(factories, study.lrs, study.steps, seeds=study.seeds, store=journal, **options)


def _factory(study: Study, method: Method) -> ProblemRun | NetworkRuns:
    if isinstance(study.problem, TiledProblem):
        return ProblemRun(
            study.problem, method, batch_size=study.batch_size, sampling=study.sampling, schedule=study.factors
        )
    from surefoot.search._network_run import NetworkRuns

    assert isinstance(study.problem, NetworkProblem)
    return NetworkRuns(study.problem, method, study.shared)


class _StudyJournal(Journal):
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

    def restore(self, candidate: Candidate, lane: Lane) -> None:
        """Fill a lane from the folder if it has all, or else from the store."""
        super().restore(candidate, lane)
        found = self._records.get(self._key(candidate, lane))
        if found is None or lane.recorded == len(lane.losses) or lane.ended_at is not None:
            return
        values = dict(zip(STEP_FIELDS, found.steps, strict=True))
        lane.losses[:], lane.deltas[:] = values["loss"], np.maximum(values["delta"], 0.0)
        lane.recorded = len(lane.losses)
        lane.certifies = bool(getattr(self._factories[candidate.method], "certifies", True))
        if found.diverged_at >= 0:
            lane.ended_at, lane.recorded = found.diverged_at, found.diverged_at + 1
        else:
            lane.marks = [(lane.recorded, float(values["distance"][-1]))]
            lane.evaluation = found.final[FINAL_FIELDS.index("last_loss")]

    def save(self, candidate: Candidate, lane: Lane, run: Run) -> None:
        """Keep a run; one that has come to its end goes to the store as well."""
        super().save(candidate, lane, run)
        trace = study_trace(self._study, run) if isinstance(run, ProblemRun) else run.trace()  # type: ignore[attr-defined]
        if trace is not None:
            found: Record = record(trace, self._key(candidate, lane).method)
            with Store.write(self._path) as opened:
                opened.add(self._context, [found])

    def _key(self, candidate: Candidate, lane: Lane) -> Key:
        return Key(self._study._identities[candidate.method], candidate.lr, lane.seed)


def study_trace(study: Study, run: ProblemRun) -> Trace | None:
    """What a study keeps of a run that has come to its end, equal to the last bit; None if it has not."""
    steps = study.steps
    bad = ~np.isfinite(run.trace["loss"] + run.trace["grad_sq"])
    ended = int(bad.argmax()) if bad.any() else -1
    if ended < 0 and run.step < steps:
        return None
    if ended < 0 and not np.isfinite(run.point).all():
        ended = steps - 1
    bound, counted = lower_bound_of(run.method), int(bad.argmax()) if bad.any() else steps
    return close(
        StudyRun(run.method, float(run.lr), run.seed),  # type: ignore[arg-type]
        study.shared,
        run.trace,
        {"train_loss": run.epochs["train"], "valid_loss": run.epochs["valid"]},
        {
            "last_loss": run.evaluate(),
            "average_loss": run.full_loss(run.total / study.factors.sum()) if ended < 0 else np.inf,
        },
        ended,
        -1,
        0 if bound is None else int((run.trace["loss"][:counted] < bound).sum()),
        study.problem.n_valid > 0,
    )
