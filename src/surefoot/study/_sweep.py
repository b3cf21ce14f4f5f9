"""The runs of a study that are missing: computed, and kept as they come."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.runs import (
    Begin,
    Claims,
    Job,
    Key,
    Place,
    Record,
    RunPlan,
    Tell,
    Trace,
    execute,
    lower_bound_of,
    record,
    reporter,
    tell_best,
    torch_ranks,
)
from surefoot.study._shared_bound import best_of

_WAIT_SECONDS = 0.2


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C during a study; the message says what is kept and how to go on."""


class LowerBoundWarning(UserWarning):
    """Losses were below the lower bound C of a method, which took no step there."""


def compute(
    job: Job,
    runs: Sequence[RunPlan],
    identities: Mapping[str, str],
    keep: Callable[[Iterable[Record]], None],
    *,
    engine: Callable[..., None],
    advice: str,
    progress: Tell,
    claims: Claims | None = None,
) -> None:
    """Compute some runs.

    Args:
        job: How they are done.
        runs: Those that are missing.
        identities: Of the methods, by name.
        keep: Takes finished runs.
        engine: :func:`~surefoot.runs.execute` at some place, or :func:`lead` with the runs of the study.
        advice: Ends the message of an interruption.
        progress: As in ``Study.run``.
        claims: Who computes what, if others may compute the same runs.
    """
    if not runs:
        return
    settings = job.settings
    violations: dict[str, tuple[int, int]] = {}
    finished, left = 0, list(runs)
    delivered: set[Key] = set()

    def key_of(run: RunPlan) -> Key:
        return Key(identities[run.method.name], run.lr, run.seed)

    with reporter(progress, total=len(runs)) as report:

        def deliver(traces: list[Trace]) -> None:
            nonlocal finished
            records = [record(trace, identities[trace.run.method.name]) for trace in traces]
            keep(records)
            finished += len(traces)
            if settings.best is not None:
                tell_best(settings.best, best_of(records, settings))
            for trace in traces:
                delivered.add(key_of(trace.run))
                job.finish(trace.run)
                if trace.violations:
                    _count(violations, trace, settings.every)
            report(finished, 0.0)

        try:

            def tick(underway: float) -> None:
                report(finished, underway)

            while left:
                before, free, begin = finished, left, None
                if claims is not None:
                    there = set(claims.free(map(key_of, left)))
                    free = [run for run in left if key_of(run) in there]
                    begin = lambda runs: claims.take(map(key_of, runs))  # noqa: E731
                if free:
                    engine(job, job.tasks(free), deliver, tick=tick, begin=begin)
                done = delivered if claims is None else delivered | claims.done()
                left = [] if claims is None else [run for run in left if key_of(run) not in done]
                finished = len(runs) - len(left)
                report(finished, 0.0)
                if left and finished == before:
                    time.sleep(_WAIT_SECONDS)  # others compute them, or are dead and their claims have to expire
        except KeyboardInterrupt:
            raise StudyInterrupted(f"interrupted after {finished} of {len(runs)} runs; {advice}") from None
    for name, (count, step) in violations.items():
        warnings.warn(
            f"{name}: the loss was below the lower bound at {count} steps, first at step {step} of a run; "
            "no step was taken there. Give the method a smaller lower_bound",
            LowerBoundWarning,
            stacklevel=3,
        )


def lead(
    runs: Sequence[RunPlan],
    job: Job,
    tasks: Sequence[RunPlan],
    deliver: Callable[[list[Trace]], None],
    *,
    tick: Callable[[float], None],
    begin: Begin | None,
) -> None:
    """What rank 0 does: it tells the other ranks which run of a study is next, and makes it together with them."""
    for task in tasks:
        if begin is not None and not begin([task]):
            continue
        torch_ranks.shared(runs.index(task))
        execute(job, [task], deliver, place=Place(processes=1), tick=tick)


def follow(job: Job, runs: Sequence[RunPlan]) -> tuple[dict[str, Any], list[Record]]:
    """What the other ranks do: the runs that rank 0 names. They end up with its settings and records."""
    while (place := torch_ranks.shared(None)) is not None:
        job.do(runs[place])
    settings, records = torch_ranks.shared(None)
    return settings, records


def dismiss(settings: dict[str, Any], records: Iterable[Record]) -> None:
    """End :func:`follow` on the other ranks."""
    torch_ranks.shared(None)
    torch_ranks.shared((settings, list(records)))


def _count(violations: dict[str, tuple[int, int]], trace: Trace, every: int) -> None:
    name = trace.run.method.name
    bound = lower_bound_of(trace.run.method)
    below = np.flatnonzero(trace.steps["loss"] < bound) if bound is not None else np.array([], int)
    first = int(below[0]) * every if len(below) else len(trace.steps["loss"]) * every
    count, step = violations.get(name, (0, first))
    violations[name] = (count + trace.violations, min(step, first))
