"""Tasks of a sweep in several processes. Only this process hands over results."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import FrameType
from typing import Any

from surefoot._spawn import hidden_main, needs_main
from surefoot.study._execute import Begin, Job, Stop
from surefoot.study._runs import Trace

_WAIT_SECONDS = 0.2
_job: Job | None = None


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

    These are all of them if they cannot be sent elsewhere (a problem or model with a lambda in it, or defined in the
    caller's script), and those not finished if the workers die.
    """
    try:
        pickled = pickle.dumps(job)
        if needs_main(pickled, pickle.dumps(tasks)):
            return tasks
    except (pickle.PicklingError, AttributeError, TypeError):
        return tasks
    context = multiprocessing.get_context("spawn")  # no forked copies of threads and locks of other libraries
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(pickled,))
    waiting = list(reversed(tasks))
    running: dict[Future[list[Trace]], Any] = {}
    with deferred_interrupt() as check:

        def pulse() -> None:
            if tick is not None:
                tick(job.underway())
            check()

        try:
            _feed(pool, waiting, running, workers, stop, deliver, pulse, _asked(job, begin))
        except BrokenProcessPool:
            check()
            warnings.warn(
                "the worker processes ended early; the sweep goes on in this process", RuntimeWarning, stacklevel=3
            )
            return [*running.values(), *reversed(waiting)]
        finally:
            _end(pool)
    return []


def _feed(
    pool: ProcessPoolExecutor,
    waiting: list[Any],
    running: dict[Future[list[Trace]], Any],
    workers: int,
    stop: Stop | None,
    deliver: Callable[[list[Trace]], None],
    pulse: Callable[[], None],
    begin: Callable[[Any], bool],
) -> None:
    """Hand out the tasks and take their traces, until there are none left or it is told to stop."""
    while waiting or running:
        while waiting and len(running) < 2 * workers:  # a short queue: results are taken before more is asked for
            if begin(waiting[-1]):
                with hidden_main():
                    running[pool.submit(_do, waiting[-1])] = waiting[-1]
            waiting.pop()
        done, _ = wait(running, timeout=_WAIT_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            traces = future.result()
            del running[future]
            deliver(traces)
        pulse()
        if stop is not None and stop():
            return


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Ctrl-C raises where ``check`` is called, and at the end.

    Raised anywhere, it could hit a callback of the pool, where Python drops it, or the delivery of a result.
    """
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


def _asked(job: Job, begin: Begin | None) -> Callable[[Any], bool]:
    return lambda task: begin is None or begin(job.runs_of(task))


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers at once, also in the middle of a task: nothing they hold is worth waiting for."""
    processes, results = list((pool._processes or {}).values()), pool._result_queue
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
    # A worker that was ended while it sent a result leaves half of it, for whose rest Python would wait at its exit:
    # with this end closed as well, nobody can send it any more.
    results._writer.close()  # type: ignore[attr-defined]


def _start(pickled: bytes) -> None:
    """Set a worker up: Ctrl-C is for the parent, which ends its workers; without a parent nobody takes the results."""
    global _job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _job = pickle.loads(pickled)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(task: Any) -> list[Trace]:
    assert _job is not None
    return _job.do(task)
