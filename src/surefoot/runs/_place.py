"""Where runs are computed: in this process, in several of this machine, or on a Dask cluster."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from surefoot._base import checks
from surefoot._base.spawn import cores
from surefoot.runs._workers import Workers

if TYPE_CHECKING:
    from surefoot.runs._dask import DaskWorkers
    from surefoot.runs._work import Work


class ClusterError(RuntimeError):
    """A Dask cluster cannot be reached or used, or was lost on the way."""


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
                checks.whole(option, getattr(self, option), 1)
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
        """Whether runs are computed on a Dask cluster."""
        return self.engine == "dask"

    def count(self, paying: int) -> int:
        """How many processes are started here, where ``paying`` of them would pay off."""
        if self.processes is not None:
            return self.processes
        return max(1, cores() // self.cpus) if self.cpus is not None else paying

    def pool(self, server: Work, count: int, named: Callable[[Any], str]) -> Workers | DaskWorkers:
        """Processes that do the tasks of a server; ``named`` says for messages which runs a task has."""
        if not self.is_dask:
            return Workers(server, count)
        from surefoot.runs._dask import DaskWorkers

        resources = {name: units for name, units in (("CPU", self.cpus), ("GPU", self.gpus)) if units is not None}
        return DaskWorkers(server, count, address=self.address, resources=resources, named=named)


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C raise where the yielded function is called, and at the end: not while a result is delivered."""
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
