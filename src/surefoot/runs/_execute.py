"""A sweep as tasks, and who does them: this process, several of this machine, or others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from surefoot import _checks
from surefoot.problems import Problem
from surefoot.runs._nouns import RunPlan, Settings, Trace

Stop = Callable[[], bool]
Begin = Callable[[Sequence[RunPlan]], bool]
"""Asked before runs are computed; False if somebody else computes them, or has done so."""


class Stopped(Exception):
    """The sweep was asked to stop."""


class ClusterError(RuntimeError):
    """A Dask cluster cannot be reached or used, or was lost on the way."""


class RunFailed(RuntimeError):
    """A run on a Dask cluster raised; the message names it, ``__cause__`` is what it raised."""


class Job(Protocol):
    """What the runs of a sweep share, and how some of them are done. It can be pickled unless the problem cannot."""

    @property
    def problem(self) -> Problem:
        """What is minimised."""

    @property
    def settings(self) -> Settings:
        """What the runs share."""

    @property
    def needs_torch(self) -> bool:
        """Whether the numbers depend on torch."""

    def tasks(self, runs: Sequence[RunPlan]) -> list[Any]:
        """The runs in tasks, in the order in which they should be done."""

    def runs_of(self, task: Any) -> list[RunPlan]:
        """The runs of a task."""

    def do(self, task: Any, stop: Stop | None = None) -> list[Trace]:
        """Do a task, in any process; its numbers depend on nothing but job and task. Raises Stopped if told to."""

    def workers(self, tasks: Sequence[Any]) -> int:
        """How many processes of this machine pay off."""

    def finish(self, run: RunPlan) -> None:
        """Told when the trace of a run is kept: what it needed to go on can be forgotten."""

    def underway(self) -> float:
        """How much of the tasks that are being done somewhere is done already, in runs."""


def execute(
    job: Job,
    tasks: Sequence[Any],
    deliver: Callable[[list[Trace]], None],
    *,
    processes: int | None = None,
    stop: Stop | None = None,
    tick: Callable[[float], None] | None = None,
    begin: Begin | None = None,
) -> None:
    """Do all tasks on this machine.

    Args:
        job: What they are tasks of.
        tasks: Of ``job.tasks``.
        deliver: Takes the traces of a task that is done; always called in this process and thread.
        processes: Worker processes; by default what the job says.
        stop: Asked now and then; once it says True the call returns, and unfinished tasks are dropped.
        tick: Told now and then how much of the unfinished tasks is done, in runs.
        begin: Asked before each task; those for which it says no are left out.
    """
    workers = job.workers(tasks) if processes is None else _checks.whole("processes", processes, 1)
    left = list(tasks)
    if min(workers, len(left)) > 1:
        from surefoot.runs._processes import run_parallel

        left = run_parallel(job, left, min(workers, len(left)), stop, deliver, tick, begin)

    def asked() -> bool:
        if tick is not None:
            tick(job.underway())
        return stop is not None and stop()

    for task in left:
        if begin is not None and not begin(job.runs_of(task)):
            continue
        try:
            traces = job.do(task, asked)
        except Stopped:
            return
        deliver(traces)


class Engine(Protocol):
    """Does all tasks of a job: :func:`execute`, or its likeness on Dask, with their options filled in."""

    def __call__(
        self,
        job: Job,
        tasks: Sequence[Any],
        deliver: Callable[[list[Trace]], None],
        *,
        tick: Callable[[float], None],
        begin: Begin | None,
    ) -> None:
        """As :func:`execute`."""


def engine_of(name: str, *, processes: int | None, address: str | None, cpus: int | None, gpus: int | None) -> Engine:
    """The engine of a name, with its options checked before any work starts."""
    for option, value in (("processes", processes), ("cpus", cpus), ("gpus", gpus)):
        if value is not None:
            _checks.whole(option, value, 1)
    if name == "auto":
        for option, given in (("address", address), ("cpus", cpus), ("gpus", gpus)):
            if given is not None:
                raise ValueError(f"{option} is for engine='dask', got {given!r} with engine='auto'")
        return partial(execute, processes=processes)
    if name != "dask":
        raise ValueError(f"engine must be 'auto' or 'dask', got {name!r}")
    if address is None and gpus is not None:
        raise ValueError(f"gpus is for an existing cluster: give its address beside gpus={gpus}")
    if address is not None and processes is not None:
        raise ValueError(f"processes is for a cluster that is started here, got {processes} beside an address")
    if address is not None and (not isinstance(address, str) or not address):
        raise ValueError(f"address must be that of a Dask scheduler, as in 'tcp://10.0.0.1:8786', got {address!r}")
    from surefoot.runs._dask import run_on_dask

    return partial(run_on_dask, address=address, processes=processes, cpus=cpus, gpus=gpus)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
