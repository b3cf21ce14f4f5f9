"""The trace of a monitor in TensorBoard."""

from __future__ import annotations

import os
from typing import Any, Self

from surefoot._base.missing import missing
from surefoot.integrations._watching import by_step, of_verdict
from surefoot.monitor import StabilityMonitor

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise missing(__name__, error, "tensorboard") from error


class TensorBoardWriter:
    """Writes what a monitor has seen as scalars: ``stability/loss``, ``stability/delta``, ``stability/size/sps``, ….

    Call :meth:`write` now and then (it reads the device), or use it as a context manager, which writes at the end. Only
    steps that were not written before are added. Numbers that are not finite are left out; the verdict is a text.

    Args:
        monitor: The monitor.
        log_dir: Where the events go; or ``writer``.
        writer: A ``SummaryWriter`` of yours, which stays open.

    .. code-block:: python

        with StabilityMonitor(optimizer) as monitor, TensorBoardWriter(monitor, "runs/first") as board:
            for batch in loader:
                ...
    """

    def __init__(
        self,
        monitor: StabilityMonitor,
        log_dir: str | os.PathLike[str] | None = None,
        *,
        writer: SummaryWriter | None = None,
    ) -> None:
        if (log_dir is None) == (writer is None):
            raise ValueError(f"give one of log_dir and writer, got log_dir={log_dir!r} and writer={writer!r}")
        self._monitor = monitor
        self._owned = writer is None
        self._writer: Any = SummaryWriter(str(log_dir)) if writer is None else writer
        self._written = 0

    def write(self) -> None:
        """Add the steps that are new."""
        trace = self._monitor.trace()
        fresh = trace.isel(step=slice(self._written, None))
        self._written = trace.sizes["step"]
        for step, numbers in by_step(fresh):
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)
        if fresh.sizes["step"]:
            verdict, last = self._monitor.verdict(), int(fresh.step.values[-1])
            self._writer.add_text("stability/verdict", str(verdict), last)
            for name, value in of_verdict(verdict).items():
                self._writer.add_scalar(name, value, last)

    def close(self) -> None:
        """Write what is left; a writer that was not given from outside is closed."""
        self.write()
        if self._owned:
            self._writer.close()
        else:
            self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
