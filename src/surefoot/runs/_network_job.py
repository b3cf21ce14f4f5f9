"""The engine for networks: one run is one task, with a checkpoint to go on from."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from surefoot._spawn import cores
from surefoot._states import read_tensors, write_tensors
from surefoot.problems import NetworkProblem
from surefoot.rules import History, first_stop
from surefoot.runs import torch_ranks
from surefoot.runs._best_bound import live_rules
from surefoot.runs._methods import identity
from surefoot.runs._run import LOOK_EVERY
from surefoot.runs._types import Key, RunPlan, Settings, Trace
from surefoot.runs._workers import Stopped

if TYPE_CHECKING:
    from surefoot.runs._training import NetworkRun

_ADVICE = "delete it, and its run starts anew"
_CHECKPOINT_SECONDS = 1.0
_CHECKPOINT_SHARE = 0.01
"""Share of the time that checkpoints may take, and the least time between two of them."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read, does not belong to the run, or cannot be written."""


@dataclass(frozen=True)
class NetworkJob:
    """A sweep on a network; a task is one run."""

    problem: NetworkProblem
    settings: Settings
    needs_torch: ClassVar[bool] = True
    folder: str | None = None
    """Where runs that are not finished keep a checkpoint and tell how far they are; None keeps nothing."""
    context: str = ""
    """Hash of what the runs of the study share: a checkpoint of another one is not used."""

    def tasks(self, runs: Sequence[RunPlan]) -> list[RunPlan]:
        """One run each; begun ones first."""
        from surefoot.runs._optimizers import check

        for method in {run.method.name: run.method for run in runs}.values():
            check(method, self.problem)
        if self.folder is None:
            return list(runs)
        return sorted(runs, key=lambda run: not self._path(run, ".pt").exists() and self._searched(run) is None)

    def runs_of(self, task: RunPlan) -> list[RunPlan]:
        """The one run."""
        return [task]

    def workers(self, tasks: Sequence[RunPlan]) -> int:
        """One process a core, or a GPU."""
        if self.problem.device.startswith("cuda"):
            import torch

            return torch.cuda.device_count() if self.problem.device == "cuda" else 1
        return max(1, cores() // self.problem.threads)

    def underway(self) -> float:
        """Sum over the runs that are not finished of the share of their steps that is done."""
        if self.folder is None:
            return 0.0
        done = 0
        for path in Path(self.folder).glob(f"*{self._steps_suffix}"):
            with suppress(OSError, ValueError):  # its run has just ended, or is just telling
                done += int(path.read_text())
        return done / self.settings.steps

    def do(self, task: RunPlan, stop: Callable[[], bool] | None = None) -> list[Trace]:
        """Train from the start, or from the checkpoint, to the end."""
        from surefoot.runs._training import NetworkRun

        if self.problem.device == "cuda":
            _take_gpu()
        training = NetworkRun(self.problem, task, self.settings)
        checkpoint = None if self.folder is None else _Checkpoint(self, task, training)
        looked = training.step
        while True:
            ended = self._look(training, looked)
            if ended is not None:
                return [ended]
            looked = training.step
            if stop is not None and stop():
                if checkpoint is not None:
                    checkpoint.save()
                raise Stopped
            if checkpoint is not None:
                checkpoint.note()
            per_epoch = self.settings.steps_per_epoch
            training.take_steps(min(LOOK_EVERY, per_epoch - looked % per_epoch))

    def finish(self, run: RunPlan) -> None:
        """Forget the checkpoint of a run whose trace is kept elsewhere, and what a killed process left of it."""
        if self.folder is not None:
            for path in Path(self.folder).glob(f"*{self._path(run, '').name}*"):
                path.unlink(missing_ok=True)

    def _look(self, training: NetworkRun, since: int) -> Trace | None:
        """The trace of a run that has diverged, was given up by a rule, or is finished; None if it goes on."""
        settings = self.settings
        diverged_at = training.diverged_at(since)
        if diverged_at >= 0:
            return training.closed(diverged_at=diverged_at)
        if settings.rules and training.step:
            every, rates = settings.every, training.run.lr * settings.schedule
            values = {name: numbers[::every] for name, numbers in training.numbers().items()}
            delta = np.where(np.isnan(values["delta"]), np.inf, values["delta"])
            history = History(
                values["loss"], values["grad_sq"], delta, rates, settings.distance, every, -(-since // every)
            )
            found = first_stop(live_rules(settings), history)
            if found is not None:
                return training.closed(stopped_at=found.step)
        return training.closed() if training.step == settings.steps else None

    @property
    def _steps_suffix(self) -> str:
        return f"-{self.context[:8]}.steps"

    def _path(self, run: RunPlan, suffix: str) -> Path:
        assert self.folder is not None
        stem = Key(identity(run.method), run.lr, run.seed).stem(Path(self.folder), self.context)
        return stem.with_name(stem.name + suffix)

    def _searched(self, run: RunPlan) -> Path | None:
        """The state in which a search has left a run; None if there is none."""
        stem = self._path(run, "")
        return max(stem.parent.glob(f"{stem.name}-*.pt"), key=_steps_of, default=None)


class _Checkpoint:
    """The file that a run goes on from, written now and then; a run that finds one takes its state."""

    def __init__(self, job: NetworkJob, run: RunPlan, training: NetworkRun) -> None:
        self._training = training
        self._path, self._steps = job._path(run, ".pt"), job._path(run, job._steps_suffix)
        self._model = job.problem.describe()["model"]
        self._saved, self._pause = time.monotonic(), _CHECKPOINT_SECONDS
        self._searched = job._searched(run)
        state = torch_ranks.shared(self._furthest() if torch_ranks.number() == 0 else None)
        if state is not None:
            self._take(state)

    def note(self) -> None:
        """Tell how far the run is, and save its state if it is time to; of several ranks, the first does."""
        if torch_ranks.number():
            return
        with self._writing():
            self._steps.write_text(str(self._training.step))
        if time.monotonic() - self._saved > self._pause:
            self.save()

    def save(self) -> None:
        """Write the state; the file is complete or the one before."""
        begin = time.monotonic()
        state = {"model_digest": self._model, **self._training.state_dict()}
        with self._writing():
            write_tensors(self._path, state)
        self._saved = time.monotonic()
        self._pause = max(_CHECKPOINT_SECONDS, (self._saved - begin) / _CHECKPOINT_SHARE)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            yield
        except FileNotFoundError:
            pass  # another process, which has nothing left to do, has just removed the folder: the next time will do
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise CheckpointError(
                f"cannot write the checkpoint {self._path}: {reason}; finished runs are kept"
            ) from error

    def _furthest(self) -> dict[str, Any] | None:
        """The state of this run that has the most steps: its own, or that of a search."""
        state = self._read() if self._path.exists() else None
        if self._searched is None or (state is not None and int(state["step"]) >= _steps_of(self._searched)):
            return state
        try:
            found: dict[str, Any] = read_tensors(self._searched)
            return found
        except FileNotFoundError:
            return state  # the search has just gone on
        except Exception as error:
            raise CheckpointError(f"{self._searched} is damaged ({error}); {_ADVICE}") from error

    def _read(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = read_tensors(self._path)
            model = state.pop("model_digest")
        except Exception as error:  # torch raises many kinds for a file that is none of its own
            raise CheckpointError(f"{self._path} is damaged ({error}); {_ADVICE}") from error
        if model != self._model:
            raise CheckpointError(f"{self._path} is a checkpoint of another model; {_ADVICE}")
        return state

    def _take(self, state: dict[str, Any]) -> None:
        try:
            self._training.load_state_dict(state)
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{self._path} does not fit the run ({error}); {_ADVICE}") from error


def _steps_of(path: Path) -> int:
    """Steps of a state that a search has left."""
    return int(path.stem.rpartition("-")[2])


def _take_gpu() -> None:
    """Of several GPUs, let worker processes take one each."""
    import torch

    identity = multiprocessing.current_process()._identity
    if identity:  # else it is the main process, or a rank of torchrun, which has its own
        torch.cuda.set_device((identity[0] - 1) % torch.cuda.device_count())
