"""Runs that can be advanced, put aside and taken up again: tiles and trainings, one store, and who computes them.

A study takes every run to its end; a search says who goes on. Both rest on this room: what a run is (:class:`Run`), how
the methods are named, where finished runs and what others go on from are kept, and in which process they are computed.
What needs torch is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from surefoot._base.progress import Tell, reporter, tell
from surefoot.runs._bench import Bench, cuts_of
from surefoot.runs._best_bound import best_of, cut, forget_best, tell_best
from surefoot.runs._connection import StoreError
from surefoot.runs._engine import IDENTITY_RULE, NUMERICS_VERSION, Chunks
from surefoot.runs._keeper import Keeper, StoreKeeper
from surefoot.runs._kinds import factory_of, is_network, work_of
from surefoot.runs._lane import Lane
from surefoot.runs._methods import EXACT, Method, has_level, parse_method, parse_methods
from surefoot.runs._place import ClusterError, Place
from surefoot.runs._problem_run import ProblemRun
from surefoot.runs._rescue import Rescued, rescue
from surefoot.runs._run import Floats, Progress, Run, RunError, RunFactory, SearchError
from surefoot.runs._run_files import CheckpointError, RunFiles
from surefoot.runs._runner import Runner
from surefoot.runs._store import Store, StudyEntry
from surefoot.runs._types import (
    EPOCH_FIELDS,
    FINAL_FIELDS,
    STEP_FIELDS,
    Key,
    RunPlan,
    Settings,
    Trace,
)
from surefoot.runs._work import Work

if TYPE_CHECKING:
    from surefoot.runs._torch_run import TorchRun
    from surefoot.runs._training import NetworkRun, NetworkRuns

_NEED_TORCH = {
    "NetworkRun": "surefoot.runs._training",
    "NetworkRuns": "surefoot.runs._training",
    "TorchRun": "surefoot.runs._torch_run",
}

__all__ = [
    "EPOCH_FIELDS", "EXACT", "FINAL_FIELDS", "IDENTITY_RULE", "NUMERICS_VERSION", "STEP_FIELDS", "Bench",
    "CheckpointError", "Chunks", "ClusterError", "Floats", "Keeper", "Key", "Lane", "Method", "NetworkRun",
    "NetworkRuns", "Place", "ProblemRun", "Progress", "Rescued", "Run", "RunError", "RunFactory", "RunFiles", "RunPlan",
    "Runner", "SearchError", "Settings", "Store", "StoreError", "StoreKeeper", "StudyEntry", "Tell", "TorchRun",
    "Trace", "Work", "best_of", "cut", "cuts_of", "factory_of", "forget_best", "has_level", "is_network",
    "parse_method", "parse_methods", "reporter", "rescue", "tell", "tell_best", "work_of",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return getattr(importlib.import_module(_NEED_TORCH[name]), name)
    raise AttributeError(f"module 'surefoot.runs' has no attribute {name!r}")
