"""The trace of a monitor in TensorBoard."""

from __future__ import annotations

import os
from typing import Any, Self

from surefoot._base.missing import missing
from surefoot.integrations._watching import Numbers
from surefoot.monitor import StabilityMonitor

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise missing(__name__, error, "tensorboard") from error


class TensorBoardWriter:
    """Writes a monitor's numbers as scalars: ``stability/loss``, ``stability/delta``, ``stability/size/sps``, ….

    Call :meth:`write` now and then (it reads the device), or use it as a context manager, which writes at the end. Only
    steps that were not written before are added; the verdict, as text and as ``stability/state``, and the noise of the
    bound whenever the run is a tenth longer, and at the end. Numbers that are not finite are left out.

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
        self._numbers = Numbers(monitor)
        self._owned = writer is None
        self._writer: Any = SummaryWriter(str(log_dir)) if writer is None else writer

    def write(self, *, over: bool = False) -> None:
        """Add the steps that are new.

        Args:
            over: Whether the run is over, so that the verdict is added in any case.
        """
        before = self._numbers.verdict
        for step, numbers in self._numbers.steps():
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)
        judgement = self._numbers.judgement(over=over)
        if self._numbers.verdict is not before:
            last = self._numbers.monitor.steps - 1
            self._writer.add_text("stability/verdict", str(self._numbers.verdict), last)
            for name, value in judgement.items():
                self._writer.add_scalar(name, value, last)

    def close(self) -> None:
        """Write what is left; a writer that was not given from outside is closed."""
        self.write(over=True)
        if self._owned:
            self._writer.close()
        else:
            self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
