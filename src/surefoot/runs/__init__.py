"""Runs that can be advanced, put aside and taken up again, wherever there is room for them."""

from surefoot.runs._bench import Advanced, Bench, DamagedState, Piece, RunKey, stem_of
from surefoot.runs._lane import Lane
from surefoot.runs._run import Floats, Progress, Run, RunError, RunFactory, SearchError
from surefoot.runs._runner import Runner, cuts_of
from surefoot.runs._threads import cores, one_thread
from surefoot.runs._workers import Answer, CannotTravel, WorkerDied, Workers

__all__ = [
    "Advanced",
    "Answer",
    "Bench",
    "CannotTravel",
    "DamagedState",
    "Floats",
    "Lane",
    "Piece",
    "Progress",
    "Run",
    "RunError",
    "RunFactory",
    "RunKey",
    "Runner",
    "SearchError",
    "WorkerDied",
    "Workers",
    "cores",
    "cuts_of",
    "one_thread",
    "stem_of",
]
