"""The trace of a monitor in TensorBoard."""

from __future__ import annotations

import math
import os
from typing import Any, Self

from surefoot.integrations._missing import missing
from surefoot.monitor import StabilityMonitor

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise missing("tensorboard", error) from error

_SINGLE = ("loss", "grad_sq", "rate", "size", "delta", "noise", "delta_low", "delta_high", "update_norm", "distance")


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
        steps = fresh.step.values.tolist()
        for name in _SINGLE:
            if name in fresh:
                self._add(name, steps, fresh[name].values.tolist())
        for algorithm in fresh.algorithm.values.tolist():
            chosen = fresh.sel(algorithm=algorithm)
            for name in ("size", "delta"):
                self._add(f"{name}/{algorithm}", steps, chosen[f"counterfactual_{name}"].values.tolist())
        if steps:
            self._writer.add_text("stability/verdict", str(self._monitor.verdict()), steps[-1])

    def _add(self, name: str, steps: list[int], values: list[float]) -> None:
        for step, value in zip(steps, values, strict=True):
            if math.isfinite(value):
                self._writer.add_scalar(f"stability/{name}", value, step)

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
