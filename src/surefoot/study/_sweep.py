"""Takes the missing runs of a study to T, and keeps them as they come."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from surefoot.runs import (
    Bench,
    Keeper,
    Lane,
    Place,
    Runner,
    RunPlan,
    Settings,
    Tell,
    Trace,
    Work,
    reporter,
    tell_best,
    torch_ranks,
)


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C during a study; the message says what is kept and how to go on."""


class LowerBoundWarning(UserWarning):
    """Losses were below the lower bound C of a method, which took no step there."""


def compute(
    work: Work,
    settings: Settings,
    runs: Sequence[RunPlan],
    keeper: Keeper,
    place: Place,
    progress: Tell,
) -> None:
    """Take some runs to their end.

    Args:
        work: What takes them there.
        settings: What the runs share.
        runs: Those that are missing.
        keeper: Takes finished runs; others may compute the same ones for it.
        place: Where they are computed.
        progress: As in ``Study.run``.
    """
    if not runs:
        return
    violations: dict[str, tuple[int, int]] = {}
    methods = {run.method.name: run.method for run in runs}
    lanes = [Lane(run.key, settings.steps) for run in runs]
    if keeper.files.lasts:
        lanes.sort(key=lambda lane: not keeper.files.exists(lane.key))  # begun ones first

    def finished() -> int:
        return sum(lane.ended for lane in lanes)

    with reporter(progress, total=len(runs)) as report:

        def deliver(traces: list[Trace]) -> None:
            keeper.finish(traces)
            tell_best(traces, settings)
            for trace in traces:
                if keeper.files.lasts:
                    keeper.files.remove(trace.key)
                if trace.violations:
                    _count(violations, trace, methods[trace.key.method].lower_bound, settings.every)
            report(finished())

        def tick(steps: float) -> None:
            report(finished(), steps / settings.steps)

        try:
            with Runner(work, keeper=keeper, place=place, whole=True, finished=deliver) as runner:
                runner.advance(lanes, settings.steps, tick=tick)
        except KeyboardInterrupt:
            raise StudyInterrupted(f"interrupted after {finished()} of {len(runs)} runs; {keeper.advice}") from None
        report(len(runs))
    for name, (count, step) in violations.items():
        warnings.warn(
            f"{name}: the loss was below the lower bound at {count} steps, first at step {step} of a run; "
            "no step was taken there. Give the method a smaller lower_bound",
            LowerBoundWarning,
            stacklevel=3,
        )


def follow(bench: Work) -> tuple[dict[str, Any], list[Trace]]:
    """Do the runs that rank 0 does, as any other rank, and return its settings and traces."""
    assert isinstance(bench, Bench)
    bench.follow()
    settings, traces = torch_ranks.shared(None)
    return settings, traces


def dismiss(settings: dict[str, Any], traces: Iterable[Trace]) -> None:
    """End :func:`follow` on the other ranks."""
    torch_ranks.shared(None)
    torch_ranks.shared((settings, list(traces)))


def _count(violations: dict[str, tuple[int, int]], trace: Trace, bound: float | None, every: int) -> None:
    """Add the violations of a run to those of its method: how many steps, and the first of them."""
    method = trace.key.method
    below = np.flatnonzero(trace.steps["loss"] < bound) if bound is not None else np.array([], int)
    first = int(below[0]) * every if len(below) else len(trace.steps["loss"]) * every
    count, step = violations.get(method, (0, first))
    violations[method] = (count + trace.violations, min(step, first))
