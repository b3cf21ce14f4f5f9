"""The runs of a study that are missing: computed, and kept as they come."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.study import _ranks
from surefoot.study._archive import Record, record
from surefoot.study._execute import Engine, Job, execute
from surefoot.study._methods import lower_bound_of
from surefoot.study._progress import reporter
from surefoot.study._runs import Run, Trace
from surefoot.study._shared import tell_best

Progress = bool | Callable[[int, int], None]


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C during a study; the message says what is kept and how to go on."""


class LowerBoundWarning(UserWarning):
    """Losses were below the lower bound C of a method, which took no step there."""


def compute(
    job: Job,
    runs: Sequence[Run],
    identities: Mapping[str, str],
    keep: Callable[[Iterable[Record]], None],
    *,
    engine: Engine,
    advice: str,
    progress: Progress,
) -> None:
    """Compute some runs.

    Args:
        job: How they are done.
        runs: Those that are missing.
        identities: Of the methods, by name.
        keep: Takes finished runs.
        engine: Who does them.
        advice: Ends the message of an interruption.
        progress: As in ``Study.run``.
    """
    if not runs:
        return
    settings = job.settings
    violations: dict[str, tuple[int, int]] = {}
    finished = 0

    with reporter(progress, total=len(runs)) as report:

        def deliver(traces: list[Trace]) -> None:
            nonlocal finished
            records = [record(trace, identities[trace.run.method.name]) for trace in traces]
            keep(records)
            finished += len(traces)
            if settings.best is not None:
                tell_best(records, settings)
            for trace in traces:
                job.finish(trace.run)
                if trace.violations:
                    _count(violations, trace, settings.every)
            report(finished, 0.0)

        try:
            engine(job, job.tasks(runs), deliver, tick=lambda underway: report(finished, underway))
        except KeyboardInterrupt:
            raise StudyInterrupted(f"interrupted after {finished} of {len(runs)} runs; {advice}") from None
    for name, (count, step) in violations.items():
        warnings.warn(
            f"{name}: the loss was below the lower bound at {count} steps, first at step {step} of a run; "
            "no step was taken there. Give the method a smaller lower_bound",
            LowerBoundWarning,
            stacklevel=3,
        )


def led(runs: Sequence[Run]) -> Engine:
    """The engine of rank 0: it tells the other ranks which run of a study is next, and makes it together with them."""

    def lead(
        job: Job, tasks: Sequence[Run], deliver: Callable[[list[Trace]], None], *, tick: Callable[[float], None]
    ) -> None:
        for task in tasks:
            _ranks.shared(runs.index(task))
            execute(job, [task], deliver, processes=1, tick=tick)

    return lead


def follow(job: Job, runs: Sequence[Run]) -> tuple[dict[str, Any], list[Record]]:
    """What the other ranks do: the runs that rank 0 names. They end up with its settings and records."""
    while (place := _ranks.shared(None)) is not None:
        job.do(runs[place])
    settings, records = _ranks.shared(None)
    return settings, records


def dismiss(settings: dict[str, Any], records: Iterable[Record]) -> None:
    """End :func:`follow` on the other ranks."""
    _ranks.shared(None)
    _ranks.shared((settings, list(records)))


def _count(violations: dict[str, tuple[int, int]], trace: Trace, every: int) -> None:
    name = trace.run.method.name
    bound = lower_bound_of(trace.run.method)
    below = np.flatnonzero(trace.steps["loss"] < bound) if bound is not None else np.array([], int)
    first = int(below[0]) * every if len(below) else len(trace.steps["loss"]) * every
    count, step = violations.get(name, (0, first))
    violations[name] = (count + trace.violations, min(step, first))
