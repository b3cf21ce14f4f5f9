"""Tasks of a sweep in several processes. Only this process hands over results."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from surefoot.runs import CannotTravel, WorkerDied, Workers
from surefoot.runs._execute import Begin, Job, Stop
from surefoot.runs._nouns import Trace

_WAIT_SECONDS = 0.2


@dataclass
class _Tasks:
    """What every worker has; a task goes to it by its number."""

    job: Job
    tasks: Sequence[Any]

    def do(self, number: int) -> list[Trace]:
        return self.job.do(self.tasks[number])


def run_parallel(
    job: Job,
    tasks: list[Any],
    workers: int,
    stop: Stop | None,
    deliver: Callable[[list[Trace]], None],
    tick: Callable[[float], None] | None,
    begin: Begin | None = None,
) -> list[Any]:
    """Do the tasks in worker processes, and return those that this process has to do itself.

    These are all of them if they cannot be sent elsewhere, and those not finished if the workers die.
    """
    waiting = list(reversed(range(len(tasks))))
    running: set[int] = set()
    try:
        # Two tasks each: a worker goes on while its last traces are stored.
        pool = Workers(_Tasks(job, tasks), workers, depth=2)
        with pool, deferred_interrupt() as check:
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
                        raise answer.error
                    deliver(answer.value)
                    running.remove(answer.task)
                if tick is not None:
                    tick(job.underway())
                check()
                if stop is not None and stop():
                    return []
    except CannotTravel as error:
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
