"""Who computes runs: this process, several of this machine, or a Dask cluster. Only this process hands over results."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from surefoot import _checks
from surefoot._spawn import cores
from surefoot.runs._types import RunPlan, Trace
from surefoot.runs._workers import CannotTravel, Server, Stop, Stopped, WorkerDied, Workers

if TYPE_CHECKING:
    from surefoot.runs._dask import DaskWorkers
    from surefoot.runs._kinds import Job

_WAIT_SECONDS = 0.2

Begin = Callable[[Sequence[RunPlan]], bool]
"""Asked before runs are computed; False if somebody else computes them, or has done so."""


class ClusterError(RuntimeError):
    """A Dask cluster cannot be reached or used, or was lost on the way."""


class RunFailed(RuntimeError):
    """A run on a Dask cluster raised; the message names it, ``__cause__`` is what it raised."""


@dataclass(frozen=True)
class Place:
    """Where runs are computed, with its options checked: see ``Study.run``."""

    engine: str = "auto"
    processes: int | None = None
    address: str | None = None
    cpus: int | None = None
    gpus: int | None = None

    def __post_init__(self) -> None:
        address, processes = self.address, self.processes
        for option in ("processes", "cpus", "gpus"):
            if getattr(self, option) is not None:
                _checks.whole(option, getattr(self, option), 1)
        if self.engine == "auto":
            for option in ("address", "cpus", "gpus"):
                if getattr(self, option) is not None:
                    raise ValueError(f"{option} is for engine='dask', got {getattr(self, option)!r} with engine='auto'")
            return
        if self.engine != "dask":
            raise ValueError(f"engine must be 'auto' or 'dask', got {self.engine!r}")
        if address is None and self.gpus is not None:
            raise ValueError(f"gpus is for an existing cluster: give its address beside gpus={self.gpus}")
        if address is not None and processes is not None:
            raise ValueError(f"processes is for a cluster that is started here, got {processes} beside an address")
        if address is not None and (not isinstance(address, str) or not address):
            raise ValueError(f"address must be that of a Dask scheduler, as in 'tcp://10.0.0.1:8786', got {address!r}")
        import surefoot.runs._dask  # noqa: F401  # an extra that is missing is told before any work starts

    @property
    def is_dask(self) -> bool:
        """Whether it is a cluster."""
        return self.engine == "dask"

    def count(self, paying: int) -> int:
        """How many processes are started here, where so many would pay off."""
        if self.processes is not None:
            return self.processes
        return max(1, cores() // self.cpus) if self.cpus is not None else paying

    def pool(self, server: Server, count: int, *, depth: int, named: Callable[[Any], str]) -> Workers | DaskWorkers:
        """Processes that do the tasks of a server; ``named`` tells in messages which runs a task has."""
        if not self.is_dask:
            return Workers(server, count, depth)
        from surefoot.runs._dask import DaskWorkers

        resources = {name: count for name, count in (("CPU", self.cpus), ("GPU", self.gpus)) if count is not None}
        return DaskWorkers(server, count, depth, address=self.address, resources=resources, named=named)


@dataclass
class _Tasks:
    """What every worker has; a task goes to it by its number."""

    job: Job
    tasks: Sequence[Any]

    @property
    def needs_torch(self) -> bool:
        return self.job.needs_torch

    def fingerprint(self) -> str:
        return self.job.problem.fingerprint()

    def do(self, number: int, stop: Stop | None = None) -> list[Trace]:
        return self.job.do(self.tasks[number], stop)

    def name(self, number: int) -> str:
        runs = self.job.runs_of(self.tasks[number])
        beside = f" and {len(runs) - 1} runs beside it" if len(runs) > 1 else ""
        return f"{runs[0].method.name}, lr={runs[0].lr:g}, seed {runs[0].seed}{beside}"


def execute(
    job: Job,
    tasks: Sequence[Any],
    deliver: Callable[[list[Trace]], None],
    *,
    place: Place | None = None,
    stop: Stop | None = None,
    tick: Callable[[float], None] | None = None,
    begin: Begin | None = None,
) -> None:
    """Do all tasks of a sweep.

    Args:
        job: What they are tasks of.
        tasks: Of ``job.tasks``.
        deliver: Takes the traces of a task that is done; always called in this process and thread.
        place: Where; by default in as many processes of this machine as the job says.
        stop: Asked now and then; once it says True the call returns, and unfinished tasks are dropped.
        tick: Told now and then how much of the unfinished tasks is done, in runs.
        begin: Asked before each task; those for which it says no are left out.

    Raises:
        ClusterError: The cluster cannot be reached or used, or a task keeps losing its worker.
        RunFailed: A task on a cluster raised.
    """
    place, left = place or Place(), list(tasks)
    count = min(place.count(job.workers(left)), len(left))
    if count > 1 or (place.is_dask and left):
        left = _side_by_side(job, left, place, count, deliver, stop, tick, begin)

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


def _side_by_side(
    job: Job,
    tasks: list[Any],
    place: Place,
    count: int,
    deliver: Callable[[list[Trace]], None],
    stop: Stop | None,
    tick: Callable[[float], None] | None,
    begin: Begin | None,
) -> list[Any]:
    """Do the tasks in other processes, and return those that this process has to do itself.

    These are all of them if they cannot be sent elsewhere, and those not finished if the workers die.
    """
    waiting = list(reversed(range(len(tasks))))
    running: set[int] = set()
    server = _Tasks(job, tasks)
    try:
        # Two tasks each: a worker goes on while its last traces are stored.
        with deferred_interrupt() as check, place.pool(server, count, depth=2, named=server.name) as pool:
            while waiting or running:
                for worker in pool.free:
                    while waiting and begin is not None and not begin(job.runs_of(tasks[waiting[-1]])):
                        waiting.pop()
                    if waiting:
                        running.add(waiting[-1])
                        pool.give(worker, waiting.pop())
                for answer in pool.take(_WAIT_SECONDS):
                    if answer.error is not None:
                        check()
                        if place.is_dask and not isinstance(answer.error, ClusterError):
                            told = f"{type(answer.error).__name__}: {answer.error}"
                            raise RunFailed(
                                f"the run {server.name(answer.task)} raised {told}; finished runs are kept"
                            ) from answer.error
                        raise answer.error
                    deliver(answer.value)
                    running.remove(answer.task)
                if tick is not None:
                    tick(job.underway())
                check()
                if stop is not None and stop():
                    return []
    except CannotTravel as error:
        if place.is_dask:
            raise TypeError(f"the study cannot be sent to other processes: {error}") from error
        logging.getLogger("surefoot").warning(
            "all runs stay in one process: what makes them cannot be sent to others (%s)", error
        )
    except WorkerDied:
        warnings.warn(
            "the worker processes ended early; the sweep goes on in this process", RuntimeWarning, stacklevel=3
        )
    return [tasks[number] for number in (*sorted(running), *reversed(waiting))]


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Ctrl-C raises where ``check`` is called, and at the end: not in the middle of the delivery of a result."""
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()  # only that one gets signals
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody has other plans
        yield check
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
    check()
