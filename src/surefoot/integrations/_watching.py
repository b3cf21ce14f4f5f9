"""A monitor inside a trainer: attaching it, asking it for an end, and its numbers with names for all loggers."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from surefoot.monitor import StabilityMonitor, State, Verdict

_log = logging.getLogger(__name__)

_STATES = {State.TOO_SMALL: -1.0, State.HOLDS: 0.0, State.AT_THE_EDGE: 1.0, State.TOO_LARGE: 2.0}
"""The verdict as a number: from too small to too large."""
_LONGER = 1.1
"""The run is judged again once it is longer by this factor."""


class Numbers:
    """What a monitor has to show since it was asked last, under names such as ``stability/size/sps``.

    What a step costs does not depend on the length of the run. The verdict and the noise of the bound do: they are
    asked for again once the run is a tenth longer, so that a whole run pays for them some eleven times its length.
    Numbers that are not finite are left out.

    Args:
        monitor: The monitor.
    """

    def __init__(self, monitor: StabilityMonitor) -> None:
        if not isinstance(monitor, StabilityMonitor):
            raise TypeError(f"monitor must be a StabilityMonitor, got {type(monitor).__name__}")
        self.monitor = monitor
        self.verdict: Verdict | None = None
        """The last verdict."""
        self._shown = 0
        self._judged = 0
        self._judgement: dict[str, float] = {}

    def steps(self) -> list[tuple[int, dict[str, float]]]:
        """The measured steps that were not asked for before."""
        columns = self.monitor.scalars(self._shown)
        numbers = columns.pop("step").astype(int).tolist()
        self._shown += len(numbers)
        lists = {f"stability/{name}": values.tolist() for name, values in columns.items()}
        return [
            (step, {name: values[place] for name, values in lists.items() if math.isfinite(values[place])})
            for place, step in enumerate(numbers)
        ]

    def newest(self, *, over: bool = False) -> dict[str, float]:
        """The last step, with the judgement."""
        columns = self.monitor.scalars(-1)
        columns.pop("step")
        numbers = {f"stability/{name}": float(values[-1]) for name, values in columns.items() if len(values)}
        return {name: value for name, value in numbers.items() if math.isfinite(value)} | self.judgement(over=over)

    def judgement(self, *, over: bool = False) -> dict[str, float]:
        """The verdict as numbers (``stability/state``: −1 too small, 0 holds, 1 at the edge, 2 too large), the noise.

        Args:
            over: Whether the run is over, so that it is judged in any case.
        """
        steps = self.monitor.steps
        if steps >= max(_LONGER * self._judged, 1) or (over and steps > self._judged):
            self._judged, self.verdict = steps, self.monitor.verdict()
            state, noise = _STATES.get(self.verdict.state, math.nan), self.monitor.bound().noise
            low, high = self.verdict.lr_range or (math.nan, math.nan)
            numbers = {"state": state, "noise": noise, "lr_low": low, "lr_high": high}
            self._judgement = {f"stability/{name}": n for name, n in numbers.items() if math.isfinite(n)}
        return self._judgement


def attached(optimizer: Optimizer, steps: float, options: Mapping[str, Any]) -> StabilityMonitor:
    """A monitor of the optimizer; its horizon are the steps that a trainer plans, unless ``options`` say more."""
    planned = {"horizon": int(steps)} if "schedule" not in options and 0 < steps < math.inf else {}
    return StabilityMonitor(optimizer, **{**planned, **options}).attach()


def stops(monitor: StabilityMonitor) -> bool:
    """Whether a stop rule has held; if so, it is logged."""
    if monitor.stopped is not None:
        _log.warning("training ends at step %d: %s", monitor.steps, monitor.stopped.reason)
    return monitor.should_stop
