"""Tasks of a sweep on a Dask cluster. Only this process hands over results.

The job and all its tasks go to every worker once, as a plugin, which Dask also gives to workers that come later; what
is submitted is the number of a task. A task whose worker is lost is done again by another one: from its checkpoint if
the folder beside the store is shared, else from the start.
"""

from __future__ import annotations

import logging
import pkgutil
import platform
import signal
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

try:
    import cloudpickle
    import dask
    from distributed import Client, Future, LocalCluster, Worker, WorkerPlugin, as_completed, get_worker
    from distributed.scheduler import KilledWorker
except ImportError as error:
    raise ImportError(f"engine='dask' needs a package ({error}): pip install 'surefoot[dask]'") from error

from surefoot._spawn import hidden_main
from surefoot.runs._execute import Begin, ClusterError, Job, RunFailed, cores
from surefoot.runs._nouns import Trace
from surefoot.runs._processes import deferred_interrupt

_CONNECT_SECONDS = 10
_WAIT_SECONDS = 0.05
_TICK_SECONDS = 1.0
_LONELY_SECONDS = 60.0
"""Without any worker for so long, a warning tells why nothing happens."""

_QUIET: dict[str, Any] = {
    "distributed.nanny.pre-spawn-environ": {"PYTHONHASHSEED": "random"},  # as it is anyway
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
}
"""Of workers that are started here. By default their memory goes back to the system at every chance (by variables that
Dask sets in the parent, for good), and threads beside the training wake up every few milliseconds: both slow it down by
tens of percent where its steps are short."""

_PROBES: dict[str, tuple[Any, ...]] = {
    "surefoot": (pkgutil.resolve_name, "surefoot._version:__version__"),
    "Python": (platform.python_version,),
    "NumPy": (pkgutil.resolve_name, "numpy:__version__"),
    "torch": (pkgutil.resolve_name, "torch:__version__"),
}
"""What tells the versions that numbers depend on: functions of Python itself, which any worker can be asked to call."""


def run_on_dask(
    job: Job,
    tasks: Sequence[Any],
    deliver: Callable[[list[Trace]], None],
    *,
    address: str | None = None,
    processes: int | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    tick: Callable[[float], None] | None = None,
    begin: Begin | None = None,
) -> None:
    """Do all tasks on a Dask cluster.

    Args:
        job: What they are tasks of.
        tasks: Of ``job.tasks``.
        deliver: Takes the traces of a task that is done; always called in this process and thread.
        address: Of the scheduler of an existing cluster; without one, a cluster of processes of this machine is started
            that listens on 127.0.0.1 only.
        processes: Workers of the cluster that is started, by default as many as the machine has room for.
        cpus: ``CPU`` that a task takes of what its worker offers; on this machine, cores a worker.
        gpus: ``GPU`` that a task takes of what its worker offers.
        tick: Told now and then how much of the unfinished tasks is done, in runs.
        begin: Asked about every task before any is begun; those for which it says no are left out.

    Raises:
        ClusterError: The scheduler cannot be reached, a worker does not fit, or a task keeps losing its worker.
        RunFailed: A task raised.
    """
    tasks = [task for task in tasks if begin is None or begin(job.runs_of(task))]
    if not tasks:
        return
    try:
        payload = cloudpickle.dumps((job, list(tasks)))
    except Exception as error:
        raise TypeError(f"the study cannot be sent to other processes: {error}") from error
    if processes is None:
        processes = job.workers(tasks) if cpus is None else max(1, cores() // cpus)
    resources = {name: count for name, count in (("CPU", cpus), ("GPU", gpus)) if count is not None}
    sent = _Sent(payload, _versions(job), job.problem.fingerprint(), ignores_interrupt=address is None)
    with deferred_interrupt() as check, _connected(address, min(processes, len(tasks)), resources) as client:
        _check_workers(client, sent.versions, resources)
        client.register_plugin(sent)
        waiting = {
            client.submit(_do, sent.name, number, key=(sent.name, number), pure=False, resources=resources): task
            for number, task in enumerate(tasks)
        }
        try:
            _take(client, job, waiting, deliver, tick, check)
        finally:
            with suppress(Exception):  # whatever went wrong before says more
                client.cancel(list(waiting))
                client.unregister_worker_plugin(sent.name)


@contextmanager
def _connected(address: str | None, processes: int, resources: dict[str, int]) -> Iterator[Any]:
    """A client of the cluster at an address, or of one that lives as long as this context."""
    if address is None:
        with (
            dask.config.set(_QUIET),
            hidden_main(),  # all the time: a worker that is lost is started anew
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


def _take(
    client: Any,
    job: Job,
    waiting: dict[Future[Any], Any],
    deliver: Callable[[list[Trace]], None],
    tick: Callable[[float], None] | None,
    check: Callable[[], None],
) -> None:
    """Take the results of the tasks as they come, until none is waited for."""
    completed = as_completed(list(waiting), loop=client.loop, with_results=True, raise_errors=False)
    ticked = seen = time.monotonic()
    while waiting:
        for future, result in completed.next_batch(block=False):
            task = waiting.pop(future)
            future.release()  # else it would be computed again if its worker were lost now
            deliver(result if isinstance(result, list) else _raised(client, job, task, result))
        check()
        now = time.monotonic()
        if now - ticked > _TICK_SECONDS:
            ticked = now
            if tick is not None:
                tick(job.underway())
            if seen and client.nthreads():
                seen = 0.0
            elif seen and now - seen > _LONELY_SECONDS:
                seen = 0.0
                message = f"the scheduler {client.scheduler.address} has no workers; the runs wait for one"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
        if not completed.has_ready():
            time.sleep(_WAIT_SECONDS)


def _raised(client: Any, job: Job, task: Any, result: Any) -> Any:
    """Raise what tells why a task has no result."""
    runs = job.runs_of(task)
    name = f"{runs[0].method.name}, lr={runs[0].lr:g}, seed {runs[0].seed}"
    if len(runs) > 1:
        name += f" and {len(runs) - 1} runs beside it"
    error = result[1] if isinstance(result, tuple) else result
    if isinstance(error, ClusterError):
        raise error
    if isinstance(error, KilledWorker):
        raise ClusterError(
            f"the run {name} lost its worker {error.allowed_failures + 1} times, the last one was "
            f"{error.last_worker.address} (out of memory?); finished runs are kept"
        ) from error
    if isinstance(result, tuple):
        raise RunFailed(f"the run {name} raised {type(error).__name__}: {error}; finished runs are kept") from error
    raise ClusterError(
        f"the scheduler {client.scheduler.address} was lost, or has dropped the run {name}; finished runs are kept: "
        "run the same study again to go on"
    ) from error


def _versions(job: Job) -> dict[str, str]:
    """The versions in this process of what the numbers of a job depend on."""
    names = [name for name in _PROBES if name != "torch" or job.needs_torch]
    return {name: _relevant(name, _PROBES[name][0](*_PROBES[name][1:])) for name in names}


def _relevant(name: str, version: Any) -> str:
    """What has to be equal of a version: builds for other devices are alike, and so are patches of Python."""
    text = str(version).partition("+")[0]
    return text.rpartition(".")[0] if name == "Python" else text


def _check_workers(client: Any, versions: dict[str, str], resources: dict[str, int]) -> None:
    """Refuse a cluster with a worker that does not fit, or without one that offers what a run takes."""
    workers = client.scheduler_info()["workers"]
    for address, worker in workers.items():
        _check_threads(address, worker["nthreads"])
    for name, ours in versions.items():
        for address, theirs in client.run(*_PROBES[name], on_error="return").items():
            found = f"none ({theirs})" if isinstance(theirs, Exception) else _relevant(name, theirs)
            _check_version(address, name, ours, found)
    offers = [worker["resources"] for worker in workers.values()]
    for name, count in resources.items():
        if offers and not any(offer.get(name, 0) >= count for offer in offers):
            raise ClusterError(
                f"a run takes {count} {name}, but no worker offers that many: start workers with "
                f"--resources '{name}={count}'"
            )


def _check_threads(address: str, threads: int) -> None:
    if threads != 1:
        raise ClusterError(
            f"the worker {address} has {threads} threads, but every run needs a process of its own: start it with "
            f"--nthreads 1 --nworkers {threads}"
        )


def _check_version(address: str, name: str, ours: str, theirs: str) -> None:
    if ours != theirs:
        raise ClusterError(
            f"the worker {address} has {name} {theirs}, this process has {ours}: its numbers could differ; "
            "install the same version on both"
        )


class _Sent(WorkerPlugin):
    """What every worker holds of a sweep."""

    def __init__(self, payload: bytes, versions: dict[str, str], fingerprint: str, ignores_interrupt: bool) -> None:
        self.name = f"surefoot-{uuid.uuid4().hex}"
        self.payload, self.versions, self.fingerprint = payload, versions, fingerprint
        self.ignores_interrupt = ignores_interrupt

    def setup(self, worker: Worker) -> None:
        """Ctrl-C is for the process that started the cluster, which then ends it."""
        if self.ignores_interrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    @cached_property
    def content(self) -> tuple[Job, list[Any]]:
        """The job and its tasks, once it is sure that this worker fits: it may have come after all others."""
        worker = get_worker()
        _check_threads(worker.address, worker.state.nthreads)
        for name, ours in self.versions.items():
            _check_version(worker.address, name, ours, _relevant(name, _PROBES[name][0](*_PROBES[name][1:])))
        job: Job
        job, tasks = cloudpickle.loads(self.payload)
        if job.problem.fingerprint() != self.fingerprint:
            raise ClusterError(
                f"the worker {worker.address} has other data or other code of the problem {job.problem.name!r}: "
                "its numbers would differ"
            )
        return job, tasks


def _do(name: str, number: int) -> list[Trace]:
    """Do a task, on a worker."""
    worker = get_worker()
    key = worker.get_current_task()
    sent = worker.plugins[name]
    assert isinstance(sent, _Sent)
    job, tasks = sent.content

    def stop() -> bool:
        """Whether nobody waits for the result any more: the client has ended, or was killed."""
        state = worker.state.tasks.get(key)
        return state is None or state.state == "cancelled"

    return job.do(tasks[number], stop)
