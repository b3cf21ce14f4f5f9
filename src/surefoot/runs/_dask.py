"""Workers of a Dask cluster as a pool.

The work goes to every worker once, as a plugin, which Dask also gives to workers that come later. A task whose worker
is lost is done again by another one: runs go on from their files if the folder of states is shared, else from the
start.
"""

from __future__ import annotations

import logging
import math
import platform
import signal
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from importlib import metadata
from types import ModuleType
from typing import Any

from surefoot._base.missing import missing
from surefoot._version import __version__

try:
    import cloudpickle
    import dask
    from distributed import Client, Future, LocalCluster, Worker, WorkerPlugin, as_completed, get_worker
    from distributed.scheduler import KilledWorker
except ImportError as error:
    raise missing("engine='dask'", error, "dask") from error

from surefoot.runs._executor import Answer, ClusterError, Work, attempt
from surefoot.runs._run import RunError
from surefoot.runs._states import CheckpointError
from surefoot.runs._types import Record
from surefoot.runs._work import Task, named

_CONNECT_SECONDS = 10
_LONELY_SECONDS = 60.0
"""Without any worker for so long, a warning says why nothing happens."""

_QUIET: dict[str, Any] = {
    "distributed.nanny.pre-spawn-environ": {"PYTHONHASHSEED": "random"},  # as it is anyway
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
}
"""Settings of workers that are started here. By default their memory goes back to the system at every chance (by
variables that Dask sets in the parent, for good), and threads beside the training wake up every few milliseconds: both
slow it down by tens of percent where its steps are short."""


class DaskPool:
    """The workers of a Dask cluster; what was started for it ends with :meth:`close`.

    Any worker may do any task, and workers that join a cluster later get tasks, too.

    Args:
        work: What each worker holds a copy of.
        payload: The same, pickled.
        count: Workers of the cluster that is started here.
        address: Of the scheduler of an existing cluster; without one, a cluster of processes of this machine is started
            that listens on 127.0.0.1 only.
        resources: What a task takes of what its worker offers.

    Raises:
        ClusterError: The scheduler cannot be reached, or a worker does not fit.
    """

    def __init__(
        self, work: Work, payload: bytes, count: int, *, address: str | None, resources: dict[str, int]
    ) -> None:
        self._resources, self._last = resources, 0
        self._sent = _Sent(payload, work.fingerprint(), ignores_interrupt=address is None)
        self._tasks: dict[Future[Any], Task] = {}
        with ExitStack() as opened:
            self._client = opened.enter_context(_connected(address, count, resources))
            _check_resources(self._client, resources)
            self._client.register_plugin(self._sent)
            self._completed = as_completed([], loop=self._client.loop, with_results=True, raise_errors=False)
            self._count, self._looked, self._lonely_since = 0, 0.0, time.monotonic()
            self._open = opened.pop_all()

    def free(self) -> int:
        """How many tasks more the workers can be given: two for each, one to do and one to begin with after it."""
        now = time.monotonic()
        if now - self._looked > 1.0:
            self._looked = now
            with suppress(Exception):  # a scheduler that is lost shows in the tasks that it has dropped
                self._count = len(self._client.nthreads()) if self._client.status == "running" else self._count
            if self._count:
                self._lonely_since = now
            elif now - self._lonely_since > _LONELY_SECONDS:
                self._lonely_since = math.inf
                address = self._client.scheduler.address
                warnings.warn(f"the scheduler {address} has no workers: runs wait for one", stacklevel=2)
        return 2 * max(1, self._count) - len(self._tasks)

    def submit(self, task: Task) -> None:
        """Let a worker do a task."""
        self._last += 1
        key = f"{self._sent.name}-{self._last}"
        future = self._client.submit(_do, self._sent.name, task, key=key, pure=False, resources=self._resources)
        self._tasks[future] = task
        self._completed.add(future)

    def completed(self, seconds: float) -> list[Answer]:
        """The tasks that are done now or within some seconds: with their records, or with an error."""
        deadline = time.monotonic() + seconds
        while self._tasks and not self._completed.has_ready() and time.monotonic() < deadline:
            time.sleep(0.02)
        answers: list[Answer] = []
        for future, result in self._completed.next_batch(block=False) if self._completed.has_ready() else []:
            task = self._tasks.pop(future)
            future.release()  # else it would be computed again if its worker were lost now
            is_done = isinstance(result, list)  # else it is an error with its class and traceback
            answers.append((task, result, None) if is_done else (task, [], self._lost(task, result)))
        return answers

    def close(self) -> None:
        """Drop what is not done, and leave the cluster."""
        with suppress(Exception):  # whatever went wrong before says more
            self._client.cancel(list(self._tasks))
            self._client.unregister_worker_plugin(self._sent.name)
        self._open.close()

    def _lost(self, task: Task, result: Any) -> BaseException:
        """Why a task has no result."""
        error: Any = result[1] if isinstance(result, tuple) else result
        failure: BaseException
        if isinstance(error, RunError | CheckpointError | ClusterError):
            return error
        if isinstance(error, KilledWorker):
            failure = BrokenExecutor(f"the run {named(task)} lost its worker {error.allowed_failures + 1} times")
        else:
            failure = ClusterError(
                f"the scheduler {self._client.scheduler.address} was lost, or has dropped the run {named(task)}; "
                "finished runs are kept: run the same study again to go on"
            )
        failure.__cause__ = error if isinstance(error, BaseException) else None
        return failure


@contextmanager
def _connected(address: str | None, processes: int, resources: dict[str, int]) -> Iterator[Any]:
    """A client of the cluster at an address, or of one that lives as long as this context."""
    if address is None:
        with (
            dask.config.set(_QUIET),
            _hidden_main(),  # all the time: a worker that is lost is started anew
            LocalCluster(
                n_workers=processes,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                memory_limit=0,
                resources=resources,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except ValueError as error:
        raise ValueError(f"address must be like 'tcp://10.0.0.1:8786', got {address!r}: {error}") from error
    except Exception as error:  # whoever answers there may say anything
        raise ClusterError(f"no Dask scheduler can be reached at {address!r}: {error}") from error
    with client:
        yield client


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Start workers inside this context: Python's spawn would run the caller's script again in each of them."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _check_resources(client: Any, resources: dict[str, int]) -> None:
    """Refuse a cluster where no worker offers what a run takes."""
    for name, count in resources.items():
        offers = client.run(_offered, name).values()
        if offers and max(offers) < count:
            raise ClusterError(
                f"a run takes {count} {name}, but no worker offers that many: start workers with "
                f"--resources '{name}={count}'"
            )


def _offered(name: str, dask_worker: Worker) -> float:
    return dask_worker.state.total_resources.get(name, 0)


def _versions() -> dict[str, str]:
    """What has to be equal in two processes for equal numbers; builds for other devices are alike."""
    packages = {name: metadata.version(name).partition("+")[0] for name in ("numpy", "torch")}
    return {"surefoot": __version__, "Python": platform.python_version().rpartition(".")[0], **packages}


class _Sent(WorkerPlugin):
    """The plugin with which every worker holds the work of a sweep."""

    def __init__(self, payload: bytes, fingerprint: str, ignores_interrupt: bool) -> None:
        self.name = f"surefoot-{uuid.uuid4().hex}"
        self.payload, self.versions, self.fingerprint = payload, _versions(), fingerprint
        self.ignores_interrupt = ignores_interrupt

    def setup(self, worker: Worker) -> None:
        """Check that a worker fits; Ctrl-C is for the process that started the cluster, which then ends it."""
        if self.ignores_interrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.check(worker)

    def check(self, worker: Worker) -> None:
        """Refuse a worker whose numbers could differ, or that does not do one task at a time."""
        if (threads := worker.state.nthreads) != 1:
            raise ClusterError(
                f"the worker {worker.address} has {threads} threads, but every run needs a process of its own: start "
                f"it with --nthreads 1 --nworkers {threads}"
            )
        for name, version in _versions().items():
            if version != self.versions[name]:
                raise ClusterError(
                    f"the worker {worker.address} has {name} {version}, this process has {self.versions[name]}: its "
                    "numbers could differ; install the same version on both"
                )

    @cached_property
    def work(self) -> Work:
        """The work; a worker that does not fit, and has come after all others, is refused here."""
        worker = get_worker()
        self.check(worker)
        work: Work = cloudpickle.loads(self.payload)
        if work.fingerprint() != self.fingerprint:
            raise ClusterError(
                f"the worker {worker.address} has other data or other code of the problem: its numbers would differ"
            )
        return work


def _do(name: str, task: Task) -> list[Record]:
    """Do a task, on a worker."""
    worker = get_worker()
    key = worker.get_current_task()
    sent = worker.plugins[name]
    assert isinstance(sent, _Sent)

    def stop() -> bool:
        """Whether nobody waits for the result any more: the client has ended, or was killed."""
        state = worker.state.tasks.get(key)
        return state is None or state.state == "cancelled"

    return attempt(sent.work, task, stop)
