"""Processes for tests, forked from one that has imported torch and this package: they start in milliseconds.

A fresh Python needs four seconds of a core until it can train a network. Tests of what a process does take theirs from
here; tests of how one starts (the command, plain scripts, imports) start Python themselves.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType
from typing import Any, Self
from unittest import mock

ENVIRONMENT = dict(os.environ)
"""As it was before any test has changed it."""
_READY = multiprocessing.get_context("forkserver")
_READY.set_forkserver_preload(
    [
        "cloudpickle",
        "distributed",
        "surefoot.monitor",
        "surefoot.optim",
        "surefoot.search",
        "surefoot.study",
        "torch._dynamo",
        "torch.distributed.fsdp",
        "xarray",
    ]
)
_get_context = multiprocessing.get_context


def ready() -> Any:
    """The context whose processes are forked from a ready one, which the first call starts."""
    with mock.patch.dict(os.environ, ENVIRONMENT, clear=True):
        forkserver.ensure_running()
    return _READY


@contextmanager
def ready_when_spawned() -> Iterator[None]:
    """Whoever asks for spawned processes in this context gets ready ones."""
    with mock.patch.object(
        multiprocessing, "get_context", lambda method=None: ready() if method == "spawn" else _get_context(method)
    ):
        yield


def run_ranks(worker: Callable[..., None], arguments: tuple[Any, ...], ranks: int, seconds: float = 600) -> None:
    """Call a function with each rank and the arguments, each rank in a process of its own, and wait for all."""
    import torch.multiprocessing

    ready()
    started = torch.multiprocessing.start_processes(
        worker, arguments, nprocs=ranks, join=False, start_method="forkserver"
    )
    deadline = time.monotonic() + seconds
    while not started.join(timeout=1):
        if time.monotonic() > deadline:
            for process in started.processes:
                process.kill()
            raise AssertionError(f"the ranks are still at work after {seconds} seconds")


def wait_until(condition: Callable[[], object], process: Any = None, seconds: float = 120) -> None:
    """Look again and again until a condition holds; the process that brings it about must not end before."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, "it has ended before"
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.01)


class Program:
    """Python source at work in a process of its own, like ``subprocess.Popen([sys.executable, "-c", source, ...])``.

    ``session`` makes it the head of a process group. What it prints must fit into a pipe. No exit handlers are called.
    """

    def __init__(self, source: str, *arguments: object, session: bool = False) -> None:
        reader, writer = _READY.Pipe(duplex=False)
        handle, self._errors = tempfile.mkstemp()
        os.close(handle)
        words = [str(argument) for argument in arguments]
        self._process = ready().Process(
            target=_run, args=(source, words, writer, self._errors, dict(os.environ), session)
        )
        self._process.start()
        writer.close()
        self.stdout = os.fdopen(os.dup(reader.fileno()))
        reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for its end, which has to come soon: what is at work for long is killed, and an error."""
        self._process.join(300)
        late = self.returncode is None
        if late:
            self.kill()
            self._process.join()
        self.stdout.close()
        Path(self._errors).unlink()
        assert not late, "still at work after 300 seconds"

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def returncode(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    poll = returncode.fget

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        assert self.returncode is not None, f"still at work after {timeout} seconds"
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it has printed and what it has complained about, once it has ended."""
        self.wait(timeout)
        return self.stdout.read(), Path(self._errors).read_text()


def _run(
    source: str, arguments: list[str], output: Any, errors: str, environment: dict[str, str], session: bool
) -> None:
    gc.freeze()  # what is shared with others is no garbage
    if session:
        os.setsid()
    os.dup2(output.fileno(), 1)
    with open(errors, "wb") as file:
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(source, main.__dict__)
