"""Times of steps that take turns, and how much the machine was shared meanwhile."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TASKS = Path("/proc/self/task")


def waited() -> float:
    """Seconds that the threads of this process have waited for a processor; 0 where the system does not say."""
    seconds = 0.0
    for task in os.listdir(_TASKS) if _TASKS.exists() else ():
        try:
            seconds += 1e-9 * int((_TASKS / task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):  # a thread that has ended
            continue
    return seconds


class Turns:
    """Shortest times of steps that take turns.

    ``clock`` may be ``time.thread_time``, the processor time of a single thread, for a machine that has other work.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.taken = self.quiet = 0

    def best(self, steps: dict[str, Callable[[], Any]], repeats: int, patience: float = 0.0) -> dict[str, float]:
        """The shortest time of each step in so many turns.

        With ``patience``, up to so many seconds more, until a turn of each was quiet: no thread had to wait.
        """
        times, quiet = dict.fromkeys(steps, math.inf), dict.fromkeys(steps, 0)
        for step in steps.values():
            step()
        turn, end = 0, time.monotonic() + patience
        while turn < repeats or (not all(quiet.values()) and time.monotonic() < end):
            turn += 1
            for name, step in steps.items():
                before, start = waited(), self.clock()
                step()
                seconds = self.clock() - start
                times[name] = min(times[name], seconds)
                alone = waited() - before <= 0.02 * seconds + 1e-5
                quiet[name] += alone
                self.taken, self.quiet = self.taken + 1, self.quiet + alone
        return times

    def __str__(self) -> str:
        """How quiet the machine was."""
        return f"{self.quiet} of {self.taken} turns were undisturbed by other processes"
