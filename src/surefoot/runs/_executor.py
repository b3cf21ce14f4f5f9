"""The executor: takes runs to steps, in this process, in processes of this machine, or on a Dask cluster.

On this machine each worker is an executor of joblib's loky with one process. Loky starts processes without importing
the caller's script again, sends functions and lambdas with cloudpickle, and notices when a process dies; one process
each means that a death tells which task it has cost, and that the others go on. (joblib's ``Parallel`` would give up
all tasks when one process dies.)
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

from surefoot._base import checks
from surefoot._base.processes import cores, keep_memory
from surefoot.runs._lane import Lane, Told
from surefoot.runs._run import RunError
from surefoot.runs._states import CheckpointError
from surefoot.runs._types import Trace
from surefoot.runs._work import Piece, Work

_PAYS_SECONDS = 4.0
"""Seconds of a whole run from which on other processes pay: about twice what it takes until they are ready."""
_LOOK_SECONDS = 0.2
"""Seconds of computing after which it is known how long a whole run takes."""
_WAIT_SECONDS = 0.2

Task = Sequence[Piece]
"""Runs that are advanced in one go."""


class ClusterError(RuntimeError):
    """A Dask cluster cannot be reached or used, or was lost on the way."""


class WorkerDied(RuntimeError):
    """A worker process ended before its task was done."""


class CannotTravel(TypeError):
    """Something cannot be sent to other processes; the message says why."""


class Answer(NamedTuple):
    """The result of a task, or its error."""

    task: Task
    value: Any
    """One :class:`Told` per run; None with an error."""
    error: BaseException | None = None


class Pool(Protocol):
    """Workers: loky's processes, or those of a Dask cluster."""

    def free(self) -> int:
        """How many more tasks they can be given now; so the number of tasks under way is bounded."""

    def submit(self, task: Task) -> None:
        """Let a worker do a task."""

    def completed(self, seconds: float) -> list[Answer]:
        """The answers that have come, or that come within some seconds."""

    def close(self) -> None:
        """End the workers, also in the middle of a task."""


class Executor:
    """Takes runs to steps; the options are those of ``Study.run``, and are checked before any work starts.

    A worker that dies costs its task alone: the others go on, then the task is tried once more with nothing beside it,
    and if its worker dies again, the run is named in an error once all others are done.
    """

    def __init__(
        self,
        engine: str = "auto",
        processes: int | None = None,
        address: str | None = None,
        cpus: int | None = None,
        gpus: int | None = None,
    ) -> None:
        for option, value in (("processes", processes), ("cpus", cpus), ("gpus", gpus)):
            if value is not None:
                checks.whole(option, value, 1)
        if engine == "auto":
            for option, given in (("address", address), ("cpus", cpus), ("gpus", gpus)):
                if given is not None:
                    raise ValueError(f"{option} is for engine='dask', got {given!r} with engine='auto'")
        elif engine != "dask":
            raise ValueError(f"engine must be 'auto' or 'dask', got {engine!r}")
        elif address is None and gpus is not None:
            raise ValueError(f"gpus is for an existing cluster: give its address beside gpus={gpus}")
        elif address is not None and processes is not None:
            raise ValueError(f"processes is for a cluster that is started here, got {processes} beside an address")
        elif address is not None and (not isinstance(address, str) or not address):
            raise ValueError(f"address must be that of a Dask scheduler, as in 'tcp://10.0.0.1:8786', got {address!r}")
        else:
            import surefoot.runs._dask  # noqa: F401  # an extra that is missing is reported before any work starts
        self.is_dask = engine == "dask"
        self._processes, self._address, self._cpus, self._gpus = processes, address, cpus, gpus
        self._pool: Pool | None = None
        self._spent, self._steps, self._is_warm = 0.0, 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def advance(
        self,
        work: Work,
        lanes: Sequence[Lane],
        step: int,
        finished: Callable[[list[Trace]], None] | None = None,
        tick: Callable[[], None] | None = None,
    ) -> None:
        """Take runs to a step; what is recorded already is not computed again.

        Args:
            work: What takes them there, the same at every call.
            lanes: The runs.
            step: Where to.
            finished: Receives what a study keeps of runs that have come to their end.
            tick: Called now and then while tasks are under way.
        """
        groups = work.groups([lane for lane in lanes if lane.is_behind(step)])
        lane_of = {lane.key: lane for group in groups for lane in group}
        tasks = [[Piece(lane.key, lane.recorded, step) for lane in group] for group in groups]
        for task, reports in self.run(work, tasks, tick or (lambda: None)):
            for piece, told in zip(task, reports, strict=True):
                lane_of[piece.key].take(told)
            traces = [told.trace for told in reports if told.trace is not None]
            if traces and finished is not None:
                finished(traces)
        for lane in lanes:
            lane.ask(step)

    def run(
        self, work: Work, tasks: Sequence[Task], tick: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Task, list[Told]]]:
        """Do tasks, and give the result of each as soon as it is there; an interruption saves the runs at hand."""
        try:
            yield from self._run(work, tasks, tick)
        except BaseException:
            work.leave()
            raise

    def _run(self, work: Work, tasks: Sequence[Task], tick: Callable[[], None]) -> Iterator[tuple[Task, list[Told]]]:
        waiting, busy = deque(tasks), 0
        again: deque[Task] = deque()
        tried: set[int] = set()
        lost: list[Task] = []
        while waiting or again or busy:
            if self._pool is None:
                self._pool = self._started(work, waiting or again)
            if self._pool is None:
                task = waiting.popleft() if waiting else again.popleft()
                yield task, self._done_here(work, task)
                tick()
                continue
            while waiting and self._pool.free():
                self._pool.submit(waiting.popleft())
                busy += 1
            if not waiting and not busy:  # a task whose worker has died is tried once more, alone
                self._pool.submit(again.popleft())
                busy += 1
            for task, value, error in sorted(self._pool.completed(_WAIT_SECONDS), key=lambda a: a.error is not None):
                busy -= 1
                if error is None:
                    yield task, value
                elif isinstance(error, WorkerDied):
                    (lost if id(task) in tried else again).append(task)
                    tried.add(id(task))
                elif isinstance(error, CannotTravel) and not self.is_dask:
                    self._stay(str(error))
                    waiting, busy = deque(tasks), 0  # it was the first answer
                    break
                elif isinstance(error, RunError | ClusterError | CheckpointError):
                    raise error
                else:
                    raise RunError(f"the run at {named(task)} raised {error}") from error
            tick()
        if lost:
            names = "; ".join(named(task) for task in lost)
            raise RunError(
                f"the worker process ended twice (out of memory?) while it computed {names}. All other runs are done"
            )

    def _done_here(self, work: Work, task: Task) -> list[Told]:
        begin = time.process_time()
        reports = work.do(task)
        if self._is_warm:  # the first steps of a process load libraries
            self._spent += time.process_time() - begin
            self._steps += sum(piece.end - piece.known for piece in task)
        self._is_warm = True
        return reports

    def _started(self, work: Work, tasks: Sequence[Task]) -> Pool | None:
        """Workers, if they pay off and can be started."""
        if work.stays:
            if self.is_dask or (self._processes or 1) > 1:
                _warn("runs that are advanced together as one computation stay in this process")
            self._become_single()
            return None
        if self.is_dask:
            from surefoot.runs._dask import DaskPool

            count = self._processes or (max(1, cores() // self._cpus) if self._cpus else work.workers(tasks))
            resources = {name: units for name, units in (("CPU", self._cpus), ("GPU", self._gpus)) if units is not None}
            copy = work.copy(count)
            try:
                payload = packed(copy)
            except CannotTravel as error:
                raise TypeError(f"what makes the runs cannot be sent to other processes: {error}") from error
            return DaskPool(copy, payload, min(count, len(tasks)), address=self._address, resources=resources)
        count = self._processes or work.workers(tasks)
        if work.takes_all:
            count = min(count, len(tasks))
        if count == 1:
            return None
        if not work.takes_all and self._processes is None:
            run_seconds = self._spent / max(self._steps, 1) * work.horizon
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():  # one process per GPU; processes= overrides this
                self._become_single()
                return None
            if self._spent < _LOOK_SECONDS or max(run_seconds, self._spent) < _PAYS_SECONDS:
                return None
        try:
            pool = LokyPool(packed(work.copy(count)), count)
        except CannotTravel as error:
            self._stay(f"what makes the runs cannot be sent to others ({error})")
            return None
        work.leave()  # the workers go on with what is at hand here
        return pool

    def _stay(self, reason: str) -> None:
        """Go on in this process alone, and say why."""
        _warn(f"all runs stay in one process: {reason}")
        self._close()
        self._become_single()

    def _become_single(self) -> None:
        self.is_dask, self._processes = False, 1

    def _close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class LokyPool:
    """Worker processes of this machine, each an executor of loky with one process and one task at a time.

    Args:
        payload: The pickled work, which goes to each of them once.
        count: How many.
    """

    def __init__(self, payload: bytes, count: int) -> None:
        self._payload = payload
        self._idle = [self._worker() for _ in range(count)]
        self._busy: dict[Any, tuple[Task, Any]] = {}

    def _worker(self) -> Any:
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        return ProcessPoolExecutor(1, initializer=_begin, initargs=(self._payload, os.getpid()))

    def free(self) -> int:
        """How many workers have nothing to do."""
        return len(self._idle)

    def submit(self, task: Task) -> None:
        """Let a worker do a task."""
        worker = self._idle.pop()
        self._busy[worker.submit(_do, task)] = task, worker

    def completed(self, seconds: float) -> list[Answer]:
        """The answers that have come, or that come within some seconds."""
        done, _ = concurrent.futures.wait(self._busy, seconds, concurrent.futures.FIRST_COMPLETED)
        answers = []
        for future in done:
            task, worker = self._busy.pop(future)
            error = future.exception()
            if isinstance(error, concurrent.futures.BrokenExecutor):
                worker.shutdown(kill_workers=True)
                worker, error = self._worker(), WorkerDied("a worker process ended early (out of memory?)")
            self._idle.append(worker)
            value, error = (None, error) if error is not None else future.result()
            answers.append(Answer(task, value, error))
        return answers

    def close(self) -> None:
        """End the workers: nothing they hold is worth waiting for."""
        for worker in (*self._idle, *(worker for _, worker in self._busy.values())):
            worker.shutdown(kill_workers=True)


def packed(value: Any) -> bytes:
    """Pickle something for other processes."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # objects may raise anything
        raise CannotTravel(f"{type(error).__name__}: {error}") from error


_work: Any = None
"""The work of a worker process: its pickled form, until the first task asks for it."""


def _begin(payload: bytes, parent: int) -> None:
    """Prepare a worker: Ctrl-C is for the parent, which ends its workers; without a parent nobody takes answers."""
    global _work
    _work = payload
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_memory()
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def _end_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _do(task: Task) -> tuple[Any, BaseException | None]:
    """Do a task in a worker; errors come as values, with their cause, which pickling forgets."""
    global _work
    try:
        if isinstance(_work, bytes):
            try:
                _work = pickle.loads(_work)
            except Exception as error:
                raise CannotTravel(f"{type(error).__name__}: {error}") from error
        return _work.do(task), None
    except Exception as error:
        return None, sendable(error)


def sendable(error: Exception) -> Exception:
    """An error as another process can raise it, with its cause."""
    try:
        wrapped = _WithCause(error, error.__cause__)
        pickle.loads(packed(wrapped))  # which some errors do not survive
        return wrapped
    except Exception:
        return RunError(str(error)) if isinstance(error, RunError) else RuntimeError(f"{type(error).__name__}: {error}")


class _WithCause(Exception):
    """An error with its cause, which pickling forgets; it comes out as that error."""

    def __reduce__(self) -> Any:
        return _joined, self.args


def _joined(error: BaseException, cause: BaseException | None) -> BaseException:
    error.__cause__ = cause
    return error


def named(task: Task) -> str:
    """What a task is called in messages."""
    beside = f" and {len(task) - 1} runs beside it" if len(task) > 1 else ""
    return f"{task[0].key}{beside}"


def _warn(text: str) -> None:
    logging.getLogger("surefoot").warning(text)
