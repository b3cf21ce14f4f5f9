"""Runs that can be advanced, saved and resumed: convex sweeps and trainings, one store, and one executor.

A study takes every run to its end; a search decides which runs go on. Both use what is here: what a run is
(:class:`Run`), how the methods are named, where finished and unfinished runs are kept (:class:`Store`,
:class:`States`), and in which process they are computed (:class:`Executor`). What needs torch is loaded when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from surefoot._base.progress import Tell, reporter, tell
from surefoot.runs._executor import ClusterError, Executor, Work, factory_of, is_network, work_of
from surefoot.runs._methods import EXACT, Method, has_level, parse_method, parse_methods
from surefoot.runs._run import Floats, Progress, Run, RunError, RunFactory, SearchError
from surefoot.runs._states import CheckpointError, States
from surefoot.runs._store import Store, StoreError, StudyEntry
from surefoot.runs._sweep import IDENTITY_RULE, NUMERICS_VERSION, ProblemRun, SweepWork
from surefoot.runs._types import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Key, Record, Settings, Trace
from surefoot.runs._work import RunWork

if TYPE_CHECKING:
    from surefoot.runs._torch_run import TorchRun

__all__ = [
    "EPOCH_FIELDS", "EXACT", "FINAL_FIELDS", "IDENTITY_RULE", "NUMERICS_VERSION", "STEP_FIELDS", "CheckpointError",
    "ClusterError", "Executor", "Floats", "Key", "Method", "ProblemRun", "Progress",
    "Record", "Run", "RunError", "RunFactory", "RunWork", "SearchError", "Settings", "States", "Store",
    "StoreError", "StudyEntry", "SweepWork", "Tell", "TorchRun", "Trace", "Work", "factory_of", "has_level",
    "is_network", "parse_method", "parse_methods", "reporter", "tell", "work_of",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "TorchRun":  # convex studies do without torch
        return importlib.import_module("surefoot.runs._torch_run").TorchRun
    raise AttributeError(f"module 'surefoot.runs' has no attribute {name!r}")
