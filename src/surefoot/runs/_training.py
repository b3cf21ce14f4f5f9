"""One training run of a network: steps, what is kept of them, and its state at any time."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import torch

from surefoot._base.processes import cores
from surefoot.problems import NetworkProblem, Rows
from surefoot.rules import History, first_stop
from surefoot.runs._methods import Method
from surefoot.runs._optimizers import build
from surefoot.runs._row_orders import row_orders
from surefoot.runs._run import LOOK_EVERY, Progress, Run
from surefoot.runs._stepper import Stepper, certifies
from surefoot.runs._types import TRACED, Floats, RunPlan, Settings, Trace, close


class NetworkRun(Run):
    """A run of a method on a network.

    What a step tells stays on the device until :meth:`numbers` is asked for. The rows of a step and their augmentation
    are functions of the seed and the number of the step, so that a run goes on from a state bit for bit.

    Args:
        problem: The network.
        run: Method, rate and seed.
        settings: What the runs of a study share.
    """

    def __init__(self, problem: NetworkProblem, run: RunPlan, settings: Settings) -> None:
        self.problem, self.run, self.settings = problem, run, settings
        self.step = 0
        self.epochs: dict[str, list[float]] = {"train_loss": [], "valid_loss": []}
        self.last_loss = np.inf
        self._trace: Trace | None = None
        self.model: Any = problem.model()
        """The network as it is now."""
        trained: list[torch.Tensor] = [p for p in self.model.parameters() if p.requires_grad]
        self._start = [p.detach().clone() for p in trained]
        self.optimizer = build(run.method, trained, run.lr, self.model)
        self._stepper = Stepper(self.model, self.optimizer, settings.schedule, run.seed)
        self._kept = torch.full((len(TRACED), settings.steps), torch.inf, dtype=torch.float64, device=problem.device)
        self._rewind()

    @property
    def certifies(self) -> bool:  # type: ignore[override]
        """Whether the indices may stand in a bound."""
        return certifies(self.optimizer, self.model)

    def advance(self, k: int) -> Progress:
        """Take k steps; fewer if one was not finite, or a rule of the study has ended the run."""
        begin, looked = self.step, self.step
        while self.step < begin + k and self._ended(looked) is None:
            looked = self.step
            self.take_steps(min(LOOK_EVERY, begin + k - self.step))
        self._trace = self._ended(looked)
        numbers = self.numbers()
        losses, deltas = numbers["loss"][begin:].copy(), numbers["delta"][begin:]
        lost = self.diverged_at(begin)
        if lost >= 0:  # where loss, gradient or point is not finite
            losses[lost - begin :] = np.inf
        return Progress(losses, deltas)

    def take_steps(self, k: int) -> None:
        """Take k steps; full losses are measured at the start, after every epoch, and before the last step."""
        settings, problem, stepper = self.settings, self.problem, self._stepper
        with problem.one_run():
            if self.step == 0 and not self.epochs["train_loss"]:
                self._note(*problem.initial_losses)
            end = self.step + k
            while self.step < end:
                until = min(end, (self.step // settings.steps_per_epoch + 1) * settings.steps_per_epoch)
                with stepper.training():
                    while self.step < until:
                        self._take_step()
                if self.step % settings.steps_per_epoch == 0:
                    with stepper.evaluating() as model:
                        train = problem.full_loss(model)
                        self._note(train, problem.validation_loss(model) if problem.n_valid else None)

    def numbers(self) -> dict[str, Floats]:
        """What the steps so far have told, one entry a step."""
        return dict(zip(TRACED, self._kept[:, : self.step].cpu().numpy(), strict=True))

    def diverged_at(self, since: int = 0) -> int:
        """The first step, from ``since`` on, whose loss, gradient or iterate was not finite; −1 if none was."""
        values = self.numbers()
        bad = ~(np.isfinite(values["loss"][since:]) & np.isfinite(values["grad_sq"][since:]))
        if bad.any():
            return since + int(bad.argmax())
        # A later step would have seen it: the last one may have led to a point that is none.
        return -1 if self.step < self.settings.steps or self._is_finite() else self.step - 1

    def evaluate(self) -> float:
        """The full loss before the last step, which is what the last-iterate bound speaks of."""
        return self.last_loss

    def trace(self) -> Trace | None:
        """What a study keeps of a run that has come to its end; None if it has not."""
        return self._trace

    def _ended(self, since: int) -> Trace | None:
        """The trace of a run that has diverged, was given up by a rule, or is finished; None if it goes on.

        Steps before ``since`` were looked at already.
        """
        settings, diverged_at = self.settings, self.diverged_at(since)
        if diverged_at >= 0:
            return self._closed(diverged_at=diverged_at)
        if settings.rules and self.step:
            every, values = settings.every, self.numbers()
            loss, grad_sq, delta = (values[name][::every] for name in ("loss", "grad_sq", "delta"))
            delta = np.where(np.isnan(delta), np.inf, delta)
            rates = self.run.lr * settings.schedule
            history = History(loss, grad_sq, delta, rates, settings.distance, every, -(-since // every))
            stop = first_stop(settings.rules, history)
            if stop is not None:
                return self._closed(stopped_at=stop.step)
        return self._closed() if self.step == settings.steps else None

    def _closed(self, diverged_at: int = -1, stopped_at: int = -1) -> Trace:
        """What a study keeps of a run that ended at a step, or came to its end."""
        values, settings = self.numbers(), self.settings
        end = diverged_at if diverged_at >= 0 else stopped_at + 1 if stopped_at >= 0 else settings.steps
        bound = self.run.method.lower_bound
        return close(
            self.run,
            settings,
            {name: numbers[:: settings.every] for name, numbers in values.items()},
            self.epochs,
            {"last_loss": self.last_loss, "average_loss": np.nan},  # an average of networks is none
            diverged_at,
            stopped_at,
            0 if bound is None else int((values["loss"][:end] < bound).sum()),
            self.problem.n_valid > 0,
        )

    def distance(self) -> float:
        """‖x_t − x_1‖."""
        return float(self._stepper.distance(self._start))

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on."""
        return {
            **self._stepper.state_dict(),
            "step": self.step,
            "kept": self._kept,
            "epochs": self.epochs,
            "last_loss": self.last_loss,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, bit for bit on the CPU."""
        if state["kept"].shape != self._kept.shape:
            raise ValueError(f"it is of a run with {state['kept'].shape[1]} steps, not {self._kept.shape[1]}")
        self._stepper.load_state_dict(state)
        self.step = int(state["step"])
        self._kept.copy_(state["kept"])
        self.epochs = {name: list(values) for name, values in state["epochs"].items()}
        self.last_loss = float(state["last_loss"])
        self._trace = self._ended(self.step) if self.step == self.settings.steps else None
        self._rewind()

    def _rewind(self) -> None:
        """Bring the order of the rows to the current step."""
        settings = self.settings
        self._orders = row_orders(self.run.seed, self.problem.n_rows, settings.batch_size, settings.sampling)
        for _ in range(-(-self.step // settings.steps_per_epoch)):
            self._rows = next(self._orders)

    def _take_step(self) -> None:
        number, settings = self.step, self.settings
        place = number % settings.steps_per_epoch
        if place == 0:
            self._rows = next(self._orders)
        if number == settings.steps - 1:
            with self._stepper.evaluating() as model:
                self.last_loss = self.problem.full_loss(model)
        if number % settings.every == 0:
            self._kept[4, number] = self._stepper.distance(self._start)
        reading = self._stepper.step(number, lambda: self._batch_loss(self._rows[place]))
        self._kept[:4, number] = torch.stack(reading)
        self.step += 1

    def _batch_loss(self, rows: Rows) -> torch.Tensor:
        return self.problem.batch_loss(self.model, rows, _seed(self.run.seed, self.step))

    def _is_finite(self) -> bool:
        return all(bool(torch.isfinite(p).all()) for p in self._stepper.parameters)

    def _note(self, train: float, valid: float | None) -> None:
        self.epochs["train_loss"].append(train)
        if valid is not None:
            self.epochs["valid_loss"].append(valid)


class NetworkRuns:
    """The factory of the runs of a method.

    Args:
        problem: The network.
        method: How it is trained.
        settings: What the runs of the study share.
    """

    def __init__(self, problem: NetworkProblem, method: Method, settings: Settings) -> None:
        self._problem, self._method, self._settings = problem, method, settings
        self.schedule: Floats = settings.schedule
        model = problem.model()
        self.certifies = certifies(build(method, list(model.parameters()), 1e-3, model), model)

    def workers(self) -> int:
        """How many processes pay off: one a core, or a GPU."""
        if self._problem.device.startswith("cuda"):
            return torch.cuda.device_count() if self._problem.device == "cuda" else 1
        return max(1, cores() // self._problem.threads)

    def fingerprint(self) -> str:
        """What the numbers of the runs depend on, as text."""
        return self._problem.fingerprint()

    def __call__(self, lr: float, seed: int) -> NetworkRun:
        """A new run with this rate and data order."""
        if self._problem.device == "cuda":
            _take_gpu()
        return NetworkRun(self._problem, RunPlan(self._method, lr, seed), self._settings)


def _seed(*numbers: int) -> int:
    """The seed of what is random in a step."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _take_gpu() -> None:
    """Let every worker process take one of several GPUs."""
    identity = multiprocessing.current_process()._identity
    if identity:  # else it is the main process
        torch.cuda.set_device((identity[0] - 1) % torch.cuda.device_count())
