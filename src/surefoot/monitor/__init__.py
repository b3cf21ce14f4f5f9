"""Watching training: counterfactual indices, a live bound, a verdict, and rules that end hopeless runs.

>>> import torch
>>> from surefoot.monitor import DeltaExplosion, NonFinite, StabilityMonitor
>>> model = torch.nn.Linear(3, 1)
>>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
>>> with StabilityMonitor(optimizer, horizon=100, stop=[NonFinite(), DeltaExplosion()]) as monitor:
...     loss = model(torch.ones(2, 3)).square().mean()
...     loss.backward()
...     monitor.record(loss)
...     optimizer.step()
>>> monitor.should_stop
False

The stop rules are functions of numbers; the monitor, and torch, are loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surefoot.monitor._verdict import State, Verdict
from surefoot.rules import Dead, DeltaExplosion, History, NonFinite, PartialBound, Stop, StopRule, first_stop

if TYPE_CHECKING:
    from surefoot.monitor._monitor import StabilityMonitor

__all__ = [
    "Dead",
    "DeltaExplosion",
    "History",
    "NonFinite",
    "PartialBound",
    "StabilityMonitor",
    "State",
    "Stop",
    "StopRule",
    "Verdict",
    "first_stop",
]


def __getattr__(name: str) -> Any:
    if name == "StabilityMonitor":
        from surefoot.monitor._monitor import StabilityMonitor

        return StabilityMonitor
    raise AttributeError(f"module 'surefoot.monitor' has no attribute {name!r}")
