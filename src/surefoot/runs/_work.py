"""Single runs at work in one process: begun, advanced, and saved as files."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot._base.processes import cores
from surefoot._base.randomness import global_random
from surefoot.problems import one_blas_thread
from surefoot.runs._run import Run, RunError, RunFactory
from surefoot.runs._states import States
from surefoot.runs._types import Key, Record

_SAVE_SECONDS = 1.0
_SAVE_SHARE = 0.01
"""The least time between two times that a run is saved on its way, and the share of the time that this may take."""
_LOOK_SECONDS = 0.1
"""About the time between two looks at the clock, and at whether to stop."""

Stop = Callable[[], bool]
"""Asked now and then whether work should end."""


Task = tuple[Sequence[Key], int, int]
"""Runs that one worker advances together, the steps that the caller knows of, and the step to take them to."""


def named(task: Task) -> str:
    """What a task is called in messages."""
    first, *others = task[0]
    return f"{first} and {len(others)} runs beside it" if others else str(first)


class RunWork:
    """The runs of some factories; a few are in memory, the others wait as files.

    Args:
        factories: The factories, by method.
        horizon: T, the steps of a whole run.
        states: Where runs wait; if this is the folder of a store, runs are also saved on their way, now and then.
        max_states: Runs in memory; the one that was used longest ago is saved.
        takes_all: Whether all runs are taken to their end at once, as in a study, and then needed no more.
    """

    def __init__(
        self,
        factories: Mapping[str, RunFactory],
        horizon: int,
        states: States,
        max_states: int = 1,
        *,
        takes_all: bool = False,
    ) -> None:
        self.factories, self.horizon, self.states, self.max_states = factories, horizon, states, max_states
        self.takes_all = takes_all
        self._hands_over = False
        """Whether runs are saved after every task, because another process may go on with them."""
        self._live: OrderedDict[Key, tuple[Run, Record]] = OrderedDict()
        self._pause = _SAVE_SECONDS
        self._pace: dict[str, int] = {}
        """Steps of a method's runs that take about as long as it may last between two looks."""

    def fingerprint(self) -> str:
        """The fingerprints of the factories that have one."""
        return " ".join(str(getattr(factory, "fingerprint", str)()) for factory in self.factories.values())

    def workers(self, _: Sequence[Task]) -> int:
        """How many processes pay off."""
        return min(getattr(factory, "workers", cores)() for factory in self.factories.values())

    def copy(self, count: int) -> RunWork:
        """A copy without runs for one of ``count`` processes, which together have as many runs in memory."""
        most = max(1, self.max_states // count)
        copy = RunWork(self.factories, self.horizon, self.states, most, takes_all=self.takes_all)
        copy._hands_over = not self.takes_all
        return copy

    def leave(self) -> None:
        """Save the runs in memory, so that other processes go on with them."""
        while self._live:
            self._save(*self._live.popitem(last=False)[1])

    def tasks(self, records: Sequence[Record], step: int) -> list[Task]:
        """One task per run."""
        return [([record.key], record.taken, step) for record in records]

    def do(self, task: Task, stop: Stop | None = None) -> list[Record]:
        """Take the run of a task to its step; ``CancelledError`` if ``stop`` says so."""
        if stop is not None and stop():
            raise CancelledError
        (key,), known, step = task
        try:
            # Trainings in other threads wait: torch's number of threads and random numbers are those of the process.
            keeps_threads = getattr(self.factories[key.method], "keeps_threads", False)
            with _alone(), nullcontext() if keeps_threads else _one_thread():
                run, record = self._in_memory(key, known)
                self._advance(run, record, step, stop)
                return [self._answer(run, record)]
        except BaseException:
            self._live.pop(key, None)  # nobody knows where it is
            raise

    def run_of(self, record: Record) -> Run | None:
        """A run where its record stands; None if it has left no state."""
        key = record.key
        is_live = key in self._live and self._live[key][1].taken >= record.taken
        if not is_live and self.states.load(Record(key, self.horizon)) is None:
            return None
        with _alone(), _one_thread():
            run, own = self._in_memory(key, record.taken)
            self._advance(run, own, record.taken, None)  # what is saved may be of an earlier step
        return run

    def _in_memory(self, key: Key, known: int) -> tuple[Run, Record]:
        """A run, from memory, from its file, or new; if it has taken fewer steps than known, its state was lost."""
        if key not in self._live or self._live[key][1].taken < known:
            record = Record(key, self.horizon)
            state = self.states.load(record)
            record = record if state is not None else Record(key, self.horizon)
            with _named(Record(key, self.horizon)):
                run = self.factories[key.method](key.lr, key.seed)
            if not isinstance(run, Run):
                raise TypeError(
                    "run_factory(lr, seed) must return a surefoot.search.Run, with advance(k), state_dict() and "
                    f"load_state_dict(state), got {run!r}"
                )
            if state is not None:
                with _named(record):
                    run.load_state_dict(state)
            record.trace = run.trace() if record.ended else None
            self._live[key] = run, record
        self._live.move_to_end(key)
        found = self._live[key]
        while len(self._live) > self.max_states:
            self._save(*self._live.popitem(last=False)[1])
        return found

    def _advance(self, run: Run, record: Record, end: int, stop: Stop | None) -> None:
        """Take a run to a step, in parts between which it can be saved, or stopped."""
        last, lasts = time.monotonic(), self.states.lasts
        while record.is_behind(end):
            k = end - record.taken
            if run.divides and (lasts or stop is not None):
                k = min(k, self._pace.get(record.key.method, 1))
            begin = time.monotonic()
            with _named(record):
                progress = run.advance(k)
            _read(run, record, progress, k)
            now = time.monotonic()
            self._pace[record.key.method] = max(1, min(2 * k, int(k * _LOOK_SECONDS / max(now - begin, 1e-9))))
            stops = stop is not None and stop() and not record.ended
            if lasts and (stops or (now - last > self._pause and not record.ended)):
                self._save(run, record)
                last = time.monotonic()
                self._pause = max(_SAVE_SECONDS, (last - now) / _SAVE_SHARE)
            if stops:
                raise CancelledError

    def _answer(self, run: Run, record: Record) -> Record:
        if self._hands_over or (self.states.lasts and not self.takes_all):
            self._save(run, record)
        if record.lost_at is not None or (self.takes_all and record.ended):
            self._live.pop(record.key, None)
        return replace(record, losses=np.empty(0)) if self.takes_all and record.trace is not None else replace(record)

    def _save(self, run: Run, record: Record) -> None:
        if record.taken > record.saved:
            record.saved = record.taken
            self.states.save(record, None if record.lost_at is not None else run.state_dict())


def _read(run: Run, record: Record, progress: Any, k: int) -> None:
    """Record what a run has returned about k steps, checked."""
    try:
        losses, deltas = (np.array(values, float) for values in progress)
        fits = losses.ndim == 1 and losses.shape == deltas.shape and 1 <= len(losses) <= k
    except (TypeError, ValueError, RuntimeError):  # the last of torch, for a loss that would be differentiated
        fits = False
    if not fits:
        raise RunError(
            f"{record.key}: advance({k}) must return two sequences of {k} numbers, the losses and the stability "
            f"indices, got {progress!r}"
        )
    bad = ~(np.isfinite(losses) & np.isfinite(deltas))
    lost = bool(bad.any())
    if lost:
        losses = losses[: int(bad.argmax()) + 1]
        losses[-1] = np.inf
    with _named(record):
        trace, evaluation = run.trace(), None
        if not lost and len(losses) < k and trace is None:
            raise RunError(f"{record.key}: advance({k}) returned {len(losses)} steps, all of them finite")
        if not lost and record.taken + len(losses) == record.horizon:
            evaluation = run.evaluate()
        if evaluation is not None:
            evaluation = float(evaluation) if np.isfinite(float(evaluation)) else np.inf
    record.losses = np.concatenate([record.losses, losses])
    record.lost_at = record.taken - 1 if lost else None
    record.trace, record.evaluation = trace, evaluation


@contextmanager
def _named(record: Record) -> Iterator[None]:
    """Say in errors which run they come from."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        where = f"{record.key}, after {record.taken} steps"
        raise RunError(f"the run at {where} raised {type(error).__name__}: {error}") from error


def _alone() -> Any:
    return global_random if "torch" in sys.modules else nullcontext()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread in torch, if it is loaded, and in NumPy's linear algebra.

    Then sums do not depend on the cores of the machine, and runs side by side do not crowd them.
    """
    torch: Any = sys.modules.get("torch")
    before = 1 if torch is None else torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)
    try:
        with one_blas_thread():
            yield
    finally:
        if before > 1:
            torch.set_num_threads(before)
