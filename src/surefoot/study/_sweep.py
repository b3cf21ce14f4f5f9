"""Takes the missing runs of a study to T, and keeps them as they come."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from surefoot.runs import Executor, Key, Method, Record, Settings, States, Store, Tell, Trace, Work, reporter


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C during a study; the message says what is kept and how to go on."""


class LowerBoundWarning(UserWarning):
    """Losses were below the lower bound C of a method, which took no step there."""


def compute(
    work: Work,
    methods: Mapping[str, Method],
    settings: Settings,
    keys: Sequence[Key],
    store: Store,
    states: States,
    context: str,
    executor: Executor,
    progress: Tell,
) -> None:
    """Take some runs to their end.

    Args:
        work: What takes them there.
        methods: The methods, by name.
        settings: What the runs share.
        keys: The runs that are missing.
        store: Takes finished runs.
        states: The files of unfinished ones.
        context: Under which the store keeps them.
        executor: Where they are computed.
        progress: As in ``Study.run``.
    """
    if not keys:
        return
    violations: dict[str, tuple[int, int]] = {}
    records = [Record(key, settings.steps) for key in keys]
    if store.unfinished(context):
        records.sort(key=lambda record: not states.exists(record.key))  # begun ones first
    done = 0
    with reporter(progress, total=len(keys)) as report:

        def finished(traces: list[Trace]) -> None:
            nonlocal done
            store.add(context, [trace._replace(key=states.stored(trace.key)) for trace in traces])
            done += len(traces)
            for trace in traces:
                if states.lasts:
                    states.remove(trace.key)
                if trace.violations:
                    _count(violations, trace, methods[trace.key.method].lower_bound, settings.every)
            report(done)

        try:
            executor.advance(work, records, settings.steps, finished)
        except KeyboardInterrupt:
            advice = f"finished runs are kept: run the same study with the store {store.name!r} to resume"
            if store.path is None:
                advice = "nothing was stored: give run() a store to be able to resume"
            raise StudyInterrupted(f"interrupted after {done} of {len(keys)} runs; {advice}") from None
    for name, (count, step) in violations.items():
        warnings.warn(
            f"{name}: the loss was below the lower bound at {count} steps, first at step {step} of a run; "
            "no step was taken there. Give the method a smaller lower_bound",
            LowerBoundWarning,
            stacklevel=4,
        )


def _count(violations: dict[str, tuple[int, int]], trace: Trace, bound: float | None, every: int) -> None:
    """Add the violations of a run to those of its method: how many steps, and the first of them."""
    method = trace.key.method
    below = np.flatnonzero(trace.steps["loss"] < bound) if bound is not None else np.array([], int)
    first = int(below[0]) * every if len(below) else len(trace.steps["loss"]) * every
    count, step = violations.get(method, (0, first))
    violations[method] = (count + trace.violations, min(step, first))
