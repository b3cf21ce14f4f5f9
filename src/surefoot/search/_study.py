"""The search on what a study describes, with the study's store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.search._candidate import Candidate, Lane
from surefoot.search._found import Found
from surefoot.search._journal import Journal
from surefoot.search._problem_run import ProblemRun
from surefoot.search._run import Floats, Run
from surefoot.search._tune import tune
from surefoot.study import Run as StudyRun
from surefoot.study import Study, Trace
from surefoot.study._archive import Key, Record, record
from surefoot.study._methods import lower_bound_of
from surefoot.study._runs import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS
from surefoot.study._store import Store


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
    for name in ("seeds", "schedule"):
        if name in options:
            raise TypeError(f"{name} is told by the study; tune_study takes no {name!r}")
    factories = {
        method.name: ProblemRun(
            study.problem, method, batch_size=study.batch_size, sampling=study.sampling, schedule=study.factors
        )
        for method in study.methods
    }
    if options.get("bias", "auto") == "auto" and study.distance is not None:
        options["bias"] = study.distance
    journal = None if store is None else _StudyJournal(study, Path(store))
    return tune(factories, study.lrs, study.steps, seeds=study.seeds, store=journal, **options)


class _StudyJournal(Journal):
    """Finished runs in the study's store, begun ones in a folder beside it."""

    def __init__(self, study: Study, path: Path) -> None:
        self._study, self._path, self._context = study, path, study._context()
        with Store.write(path) as opened:
            opened.register(self._context, study._settings())
            self._records = {found.key: found for found in opened.records(self._context)}
        super().__init__(path.with_name(path.name + ".search"), {"context": self._context})

    def restore(self, candidate: Candidate, lane: Lane) -> None:
        """Fill a lane from the folder if it has all, or else from the store."""
        super().restore(candidate, lane)
        found = self._records.get(self._key(candidate, lane))
        if found is None or lane.recorded == len(lane.losses) or lane.ended_at is not None:
            return
        values = dict(zip(STEP_FIELDS, found.steps, strict=True))
        lane.losses[:], lane.deltas[:], lane.recorded = values["loss"], values["delta"], len(lane.losses)
        if found.diverged_at >= 0:
            lane.ended_at, lane.recorded = found.diverged_at, found.diverged_at + 1
        else:
            lane.marks = [(lane.recorded, float(values["distance"][-1]))]
            lane.evaluation = found.final[FINAL_FIELDS.index("last_loss")]

    def save(self, candidate: Candidate, lane: Lane, run: Run) -> None:
        """Keep a run; one that has come to its end goes to the store as well."""
        super().save(candidate, lane, run)
        assert isinstance(run, ProblemRun)
        trace = study_trace(self._study, run)
        if trace is not None:
            found: Record = record(trace, self._key(candidate, lane).method)
            with Store.write(self._path) as opened:
                opened.add(self._context, [found])

    def _key(self, candidate: Candidate, lane: Lane) -> Key:
        return Key(self._study._identities[candidate.method], candidate.lr, lane.seed)


def study_trace(study: Study, run: ProblemRun) -> Trace | None:
    """What a study keeps of a run that has come to its end, equal to the last bit; None if it has not."""
    steps, per_epoch = study.steps, study.steps_per_epoch
    bad = ~np.isfinite(run.trace["loss"] + run.trace["grad_sq"])
    ended = int(bad.argmax()) if bad.any() else -1
    if ended < 0 and run.step < steps:
        return None
    if ended < 0 and not np.isfinite(run.point).all():
        ended = steps - 1
    known = steps if ended < 0 else ended
    measured = study.epochs + 1 if ended < 0 else ended // per_epoch + 1
    bound, counted = lower_bound_of(run.method), int(bad.argmax()) if bad.any() else steps
    rates = run.lr * study.factors  # type: ignore[operator]
    values = {name: _padded(run.trace[name][:known], steps) for name in run.trace} | {"rate": rates}
    names = dict(zip(EPOCH_FIELDS, ("train", "valid"), strict=True))
    lengths = {"train_loss": study.epochs + 1, "valid_loss": study.epochs + 1 if study.problem.n_valid else 0}
    epochs = {name: _padded(np.array(run.epochs[own][:measured]), lengths[name]) for name, own in names.items()}
    last = _finite(run.evaluate()) if ended < 0 or ended == steps - 1 else np.inf
    average = _finite(run.full_loss(run.total / study.factors.sum())) if ended < 0 else np.inf
    best = min(float(epochs["train_loss"][: study.epochs].min()), last)
    return Trace(
        StudyRun(run.method, float(run.lr), run.seed),  # type: ignore[arg-type]
        "finished" if ended < 0 else "diverged",
        ended,
        {name: values[name] for name in STEP_FIELDS},
        epochs,
        {"last_loss": last, "average_loss": average, "best_loss": best},
        0 if bound is None else int((run.trace["loss"][:counted] < bound).sum()),
    )


def _padded(values: Floats, length: int) -> Floats:
    """Values of which what is not finite, or was not computed, is ∞."""
    result: Floats = np.full(length, np.inf)
    result[: len(values)] = np.where(np.isfinite(values), values, np.inf)[:length]
    return result


def _finite(value: float) -> float:
    return value if np.isfinite(value) else np.inf
