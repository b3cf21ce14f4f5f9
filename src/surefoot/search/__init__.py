"""The best learning rate of a grid for the price of a few runs.

>>> from surefoot.problems import LinearRegression
>>> from surefoot.search import ProblemRun, tune
>>> runs = ProblemRun(LinearRegression(), "sgd", batch_size=5)
>>> found = tune(runs, [0.001, 0.01, 0.1, 1.0, 10.0], horizon=100)
>>> found.lr, found.cost < 0.6
(0.1, True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surefoot import runs
from surefoot.runs import ProblemRun, Progress, Run, RunError, RunFactory, SearchError
from surefoot.search._found import Found, Row, Table
from surefoot.search._tune import NoRateWorks, tune

if TYPE_CHECKING:
    from surefoot.runs import TorchRun

__all__ = [
    "Found", "NoRateWorks", "ProblemRun", "Progress", "Row", "Run", "RunError", "RunFactory", "SearchError", "Table",
    "TorchRun", "tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "TorchRun":  # searches on convex problems do without torch
        return runs.TorchRun
    raise AttributeError(f"module 'surefoot.search' has no attribute {name!r}")
