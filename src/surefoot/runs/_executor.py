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
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, cast

from surefoot._base import checks
from surefoot._base.arguments import one_of
from surefoot._base.processes import cores, keep_memory
from surefoot.problems import ArrayProblem, NetworkProblem, Problem
from surefoot.runs._methods import Method
from surefoot.runs._run import RunError
from surefoot.runs._states import CheckpointError, States
from surefoot.runs._sweep import ProblemRun, SweepWork
from surefoot.runs._types import Record, Settings, Trace
from surefoot.runs._work import RunWork, Stop, Task, named

if TYPE_CHECKING:
    from surefoot.runs._dask import DaskPool
    from surefoot.runs._torch_run import TorchRun

Work = SweepWork | RunWork
"""What takes runs to steps, in one process; a copy goes to every other one."""


def is_network(problem: Problem) -> bool:
    """Whether runs train a network with torch."""
    return isinstance(problem, NetworkProblem)


def work_of(problem: Problem, methods: Sequence[Method], settings: Settings, states: States) -> Work:
    """The work of computing a study's runs."""
    if isinstance(problem, ArrayProblem):
        return SweepWork(problem, {method.name: method for method in methods}, settings)
    factories = {method.name: factory_of(problem, method, settings) for method in methods}
    return RunWork(factories, settings.steps, states, takes_all=True)


def factory_of(problem: Problem, method: Method, settings: Settings) -> ProblemRun | TorchRun:
    """The factory of single runs of a method of a study."""
    if isinstance(problem, ArrayProblem):
        return ProblemRun.of_study(problem, method, settings)
    from surefoot.runs._torch_run import TorchRun

    return TorchRun.of_study(cast(NetworkProblem, problem), method, settings)


Answer = tuple[Task, list[Record], BaseException | None]
"""A task that has ended: with its records, or with an error."""

_PAYS_SECONDS = 4.0
"""Seconds of a whole run from which on other processes pay: about twice what it takes until they are ready."""
_LOOK_SECONDS = 0.2
"""Seconds of computing after which it is known how long a whole run takes."""
_WAIT_SECONDS = 0.2


class ClusterError(RuntimeError):
    """A Dask cluster cannot be reached or used, or was lost on the way."""


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
        for option, given in (("address", address), ("cpus", cpus), ("gpus", gpus)):
            if engine == "auto" and given is not None:
                raise ValueError(f"{option} is for engine='dask', got {given!r} with engine='auto'")
        one_of("engine", engine, ("auto", "dask"))
        if address is None and gpus is not None:
            raise ValueError(f"gpus is for an existing cluster: give its address beside gpus={gpus}")
        if address is not None and processes is not None:
            raise ValueError(f"processes is for a cluster that is started here, got {processes} beside an address")
        if address is not None and (not isinstance(address, str) or not address):
            raise ValueError(f"address must be that of a Dask scheduler, as in 'tcp://10.0.0.1:8786', got {address!r}")
        if engine == "dask":
            import surefoot.runs._dask  # noqa: F401  # an extra that is missing is reported before any work starts
        self.is_dask = engine == "dask"
        self._processes, self._address, self._cpus, self._gpus = processes, address, cpus, gpus
        self._pool: LokyPool | DaskPool | None = None
        self._spent, self._steps, self._is_warm = 0.0, 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()

    def advance(
        self,
        work: Work,
        records: Sequence[Record],
        step: int,
        finished: Callable[[list[Trace]], None] | None = None,
    ) -> None:
        """Take runs to a step, from where they are; an interruption saves those in memory.

        Args:
            work: What takes them there, the same at every call.
            records: The runs.
            step: Where to.
            finished: Receives what a study keeps of runs that have ended.
        """
        behind = [record for record in records if record.is_behind(step)]
        record_of, waiting = {record.key: record for record in behind}, deque(work.tasks(behind, step))
        again, lost, busy = deque[Task](), list[Task](), 0
        tried: set[int] = set()
        try:
            while waiting or again or busy:
                if self._pool is None:
                    self._pool = self._started(work, waiting)
                if (pool := self._pool) is None:
                    task, begin = waiting.popleft(), time.process_time()
                    with _interrupt_noted() as is_interrupted:
                        answers: list[Answer] = [(task, work.do(task, is_interrupted), None)]
                    self._note(task, time.process_time() - begin)
                else:
                    while waiting and pool.free():
                        pool.submit(waiting.popleft())
                        busy += 1
                    if not waiting and not busy:  # a task whose worker has died is tried once more, alone
                        pool.submit(again.popleft())
                        busy += 1
                    answers = sorted(pool.completed(_WAIT_SECONDS), key=lambda answer: answer[2] is not None)
                    busy -= len(answers)
                for task, found, error in answers:
                    if isinstance(error, concurrent.futures.BrokenExecutor):
                        (lost if id(task) in tried else again).append(task)
                        tried.add(id(task))
                        continue
                    if error is not None:
                        raise error
                    for record in found:
                        record_of[record.key].take(record)
                    traces = [record.trace for record in found if record.trace is not None]
                    if traces and finished is not None:
                        finished(traces)
                if pool is None and is_interrupted():
                    raise KeyboardInterrupt
        except BaseException as error:
            work.leave()
            if isinstance(error, concurrent.futures.CancelledError):
                raise KeyboardInterrupt from None
            raise
        for record in records:
            record.done = max(record.done, min(step, record.taken))
        if lost:
            names = "; ".join(map(named, lost))
            raise RunError(
                f"the worker process ended twice (out of memory?) while it computed {names}. All other runs are done"
            )

    def _note(self, task: Task, seconds: float) -> None:
        """Note how long some steps have taken in this process."""
        if self._is_warm:  # the first steps of a process load libraries
            self._spent += seconds
            self._steps += task[2] - task[1]
        self._is_warm = True

    def _started(self, work: Work, tasks: Sequence[Task]) -> LokyPool | DaskPool | None:
        """Workers, if they pay off and can be started."""
        if self.is_dask:
            from surefoot.runs._dask import DaskPool

            count = self._processes or (max(1, cores() // self._cpus) if self._cpus else work.workers(tasks))
            resources = {name: units for name, units in (("CPU", self._cpus), ("GPU", self._gpus)) if units is not None}
            copy = work.copy(count)
            try:
                payload = packed(copy)
            except pickle.PickleError as error:
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
                self._processes = 1
                return None
            if self._spent < _LOOK_SECONDS or max(run_seconds, self._spent) < _PAYS_SECONDS:
                return None
        try:
            pool = LokyPool(packed(work.copy(count)), count)
        except pickle.PickleError as error:
            text = "all runs stay in one process: what makes the runs cannot be sent to others (%s)"
            logging.getLogger("surefoot").warning(text, error)
            self._processes = 1
            return None
        work.leave()  # the workers go on with what is at hand here
        return pool


class LokyPool:
    """Worker processes of this machine, each an executor of loky with one process and one task at a time.

    Args:
        payload: The pickled work, which goes to each of them once.
        count: How many.
    """

    def __init__(self, payload: bytes, count: int) -> None:
        self._payload = payload
        self._workers: list[Any] = []
        """All of them: an interruption may come while one is neither idle nor busy."""
        self._idle = [self._worker() for _ in range(count)]
        self._busy: dict[Any, tuple[Task, Any]] = {}

    def _worker(self) -> Any:
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        worker = ProcessPoolExecutor(1, initializer=_begin, initargs=(self._payload, os.getpid()))
        self._workers.append(worker)
        return worker

    def free(self) -> int:
        """How many workers have nothing to do; so the number of tasks under way is bounded."""
        return len(self._idle)

    def submit(self, task: Task) -> None:
        """Let a worker do a task."""
        worker = self._idle.pop()
        self._busy[worker.submit(_do, task)] = task, worker

    def completed(self, seconds: float) -> list[Answer]:
        """The tasks that are done now or within some seconds: with their records, or with an error."""
        done, _ = concurrent.futures.wait(self._busy, seconds, concurrent.futures.FIRST_COMPLETED)
        answers = []
        for future in done:
            task, worker = self._busy.pop(future)
            error = future.exception()
            if isinstance(error, concurrent.futures.BrokenExecutor):
                worker.shutdown(kill_workers=True)
                self._workers.remove(worker)
                worker = self._worker()
            self._idle.append(worker)
            answers.append((task, [] if error else future.result(), error))
        return answers

    def close(self) -> None:
        """End the workers, also in the middle of a task."""
        for worker in self._workers:
            worker.shutdown(kill_workers=True)


def packed(value: Any) -> bytes:
    """Pickle something for other processes."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # objects may raise anything
        raise pickle.PicklingError(f"{type(error).__name__}: {error}") from error


_work: Any = None
"""The work of a worker process: its pickled form, until the first task asks for it."""


def _begin(payload: bytes, parent: int) -> None:
    """Prepare a worker: Ctrl-C is for the parent, which ends its workers; without a parent nobody takes results."""
    global _work
    _work = payload
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_memory()
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def _end_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _do(task: Task) -> list[Record]:
    """Do a task in a worker."""
    global _work
    try:
        if isinstance(_work, bytes):
            _work = pickle.loads(_work)
        return attempt(_work, task)
    except RunError as error:
        if isinstance(error.__cause__, MemoryError) or "allocate memory" in str(error):
            os._exit(1)  # a process without memory is as good as dead: its task is tried once more in another one
        raise


def attempt(work: Work, task: Task, stop: Stop | None = None) -> list[Record]:
    """Do a task far from its caller, whom errors of other classes than ours may not reach."""
    try:
        return work.do(task, stop)
    except (RunError, CheckpointError):
        raise
    except Exception as error:
        raise RunError(f"the run at {named(task)} raised {type(error).__name__}: {error}") from error


@contextmanager
def _interrupt_noted() -> Iterator[Stop]:
    """Let Ctrl-C wait until a run can be saved, so that no step is taken twice; a second one does not wait."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    is_ours = threading.current_thread() is threading.main_thread()
    is_ours = is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
