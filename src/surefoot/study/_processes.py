"""Chunks of a sweep in several processes. Only this process hands over results."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from surefoot.problems import Problem
from surefoot.problems._threads import one_blas_thread
from surefoot.study._chunk import Chunk, Settings, advance
from surefoot.study._runs import Trace

_WAIT_SECONDS = 0.2
_problem: Problem | None = None


def run_parallel(
    problem: Problem,
    chunks: list[Chunk],
    settings: Settings,
    workers: int,
    stop: Callable[[], bool] | None,
    deliver: Callable[[list[Trace]], None],
) -> bool:
    """Run the chunks in worker processes; False, and nothing done, if they cannot be sent there (say, a lambda)."""
    try:
        pickled = pickle.dumps(problem)
        pickle.dumps(chunks)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    context = multiprocessing.get_context("spawn")  # no forked copies of threads and locks of other libraries
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(pickled,))
    try:
        waiting = list(reversed(chunks))
        running: set[Future[list[Trace]]] = set()
        while waiting or running:
            while waiting and len(running) < 2 * workers:  # a short queue: results are taken before more is asked for
                running.add(pool.submit(_run, waiting.pop(), settings))
            done, running = wait(running, timeout=_WAIT_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                deliver(future.result())
            if stop is not None and stop():
                break
    finally:
        _end(pool)
    return True


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers at once, also in the middle of a chunk: nothing they hold is worth waiting for."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _start(pickled: bytes) -> None:
    """Set a worker up: Ctrl-C is for the parent, which ends its workers."""
    global _problem
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _problem = pickle.loads(pickled)


def _run(chunk: Chunk, settings: Settings) -> list[Trace]:
    assert _problem is not None
    with one_blas_thread():
        return advance(_problem, chunk, settings)
