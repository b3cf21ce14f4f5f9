"""Worker processes of this machine. Each holds a copy of what it serves, and does one task after the other.

They are spawned, not forked: no copies of threads and locks of other libraries. What they serve goes to them with
cloudpickle, so that functions and classes of the caller's script, lambdas and closures travel, too.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from surefoot._base.spawn import hidden_main, keep_memory

if TYPE_CHECKING:
    from surefoot.runs._work import Work

_END_SECONDS = 1.0
_READY = b"ready"


Stop = Callable[[], bool]
"""Asked now and then whether work should end."""


class Stopped(Exception):
    """Work was asked to stop."""


class CannotTravel(TypeError):
    """Something cannot be sent to other processes; the message says why."""


class WorkerDied(RuntimeError):
    """A worker process ended before its task was done."""


class Answer(NamedTuple):
    """The result of a task, or its error."""

    task: Any
    value: Any
    error: BaseException | None = None
    """What the task raised, or :class:`WorkerDied`."""


class Workers:
    """Some worker processes of this machine, until they are closed.

    Args:
        server: What each of them holds a copy of.
        count: How many.

    Raises:
        CannotTravel: The server cannot be pickled.
    """

    def __init__(self, server: Work, count: int) -> None:
        payload = packed(server)
        self._up: set[int] = set()
        self._tasks: list[deque[Any]] = [deque() for _ in range(count)]
        context = multiprocessing.get_context("spawn")
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        try:
            with hidden_main():
                for _ in range(count):
                    ours, theirs = context.Pipe()
                    self._connections.append(ours)
                    # No daemons: those may not have processes of their own, which load data.
                    self._processes.append(context.Process(target=_serve, args=(theirs,), name="surefoot-worker"))
                    self._processes[-1].start()
                    theirs.close()
            for connection in self._connections:  # once all of them are starting
                with suppress(OSError):  # a dead one is noticed when its answer is missing
                    connection.send_bytes(payload)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._processes)

    @property
    def ready(self) -> list[int]:
        """The workers that have come up, which takes a second or two; a dead one is noticed later."""
        if len(self._up) < len(self):
            heard = wait(self._connections, 0)
            self._up |= {number for number, connection in enumerate(self._connections) if connection in heard}
        return sorted(self._up)

    def give(self, worker: int, task: Any) -> None:
        """Let a worker do a task; it has to be small."""
        self._tasks[worker].append(task)
        with suppress(OSError):  # a dead one is noticed when its answer is missing
            self._connections[worker].send_bytes(pickle.dumps(task))

    def take(self, seconds: float) -> list[Answer]:
        """The answers that have come, or that come within some seconds."""
        answers: list[Answer] = []
        deadline = time.monotonic() + seconds
        while waiting := {self._connections[number]: number for number, tasks in enumerate(self._tasks) if tasks}:
            heard = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            for connection in heard:
                number = waiting[connection]  # type: ignore[index]
                try:
                    content = self._connections[number].recv_bytes()
                    if content == _READY:  # no answer, and the task may take hours
                        self._up.add(number)
                        continue
                    value, error = pickle.loads(content)
                except (EOFError, OSError):
                    value, error = None, WorkerDied("a worker process ended early (out of memory?)")
                answers.append(Answer(self._tasks[number].popleft(), value, error))
            if answers or not heard:
                break
        return answers

    def close(self) -> None:
        """End the workers, also in the middle of a task: nothing they hold is worth waiting for."""
        for connection in self._connections:
            connection.close()  # this ends the workers that wait
        for process, tasks in zip(self._processes, self._tasks, strict=False):
            if process.pid is None:
                continue
            if not tasks:
                process.join(_END_SECONDS)
            if process.is_alive():
                process.terminate()
            process.join()


def packed(server: Any) -> bytes:
    """Pickle something for other processes."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(server))
    except Exception as error:  # objects may raise anything
        raise CannotTravel(f"{type(error).__name__}: {error}") from error


def _serve(connection: Connection) -> None:
    """The life of a worker: Ctrl-C is for the parent, which ends its workers; without a parent nobody takes answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    server: Any = None
    failed: BaseException | None = None
    with suppress(EOFError, OSError):
        payload = connection.recv_bytes()
        try:
            server = pickle.loads(payload)
        except Exception as error:
            failed = CannotTravel(f"{type(error).__name__}: {error}")
        connection.send_bytes(_READY)
        while True:
            task = pickle.loads(connection.recv_bytes())
            connection.send_bytes(_answer(server, task, failed))


def _answer(server: Any, task: Any, failed: BaseException | None) -> bytes:
    """A pickled pair: what came of a task, and what it raised, with its cause."""
    try:
        if failed is not None:
            raise failed
        return packed((server.do(task), None))
    except Exception as error:
        try:
            content = packed((None, _Raised(error, error.__cause__)))
            pickle.loads(content)  # which some errors do not survive
            return content
        except Exception:
            return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))


class _Raised(Exception):
    """An error with its cause, which pickling forgets; it comes out as that error."""

    def __reduce__(self) -> Any:
        return _joined, self.args


def _joined(error: BaseException, cause: BaseException | None) -> BaseException:
    error.__cause__ = cause
    return error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
