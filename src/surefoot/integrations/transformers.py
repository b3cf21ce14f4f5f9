"""For the Trainer of Transformers: a finder of its learning rate, and a callback that watches its optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch.optim import Optimizer

from surefoot._base.missing import missing
from surefoot.integrations import _find
from surefoot.integrations._watching import Numbers, attached, stops
from surefoot.monitor import StabilityMonitor
from surefoot.search import Found

try:
    from transformers import (
        PrinterCallback,
        ProgressCallback,
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
        set_seed,
        utils,
    )  # fmt: skip
except ImportError as error:
    raise missing(__name__, error, "transformers") from error

__all__ = ["StabilityCallback", "find_lr"]


class StabilityCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Attaches a :class:`~surefoot.monitor.StabilityMonitor` to the optimizer of a Transformers ``Trainer``.

    The Trainer calls ``optimizer.step()`` without a loss and gives callbacks none: the loss is taken from ``backward``,
    summed over the micro batches. Once a stop rule holds, training ends after the step.

    Its numbers go to where the Trainer reports (``report_to``: TensorBoard, W&B, …), whenever the Trainer logs: loss,
    rate, δ and the steps that other methods would take, and the verdict as a number, ``stability/state``: −1 is too
    small, 0 holds, 1 is at the edge, 2 too large. The verdict is renewed whenever the run is a tenth longer.

    Args:
        trainer: The trainer; add the callback to it with ``trainer.add_callback``.
        log: Whether to report.
        **options: Arguments of the monitor; ``horizon`` is by default the trainer's number of steps.

    .. code-block:: python

        trainer = Trainer(model, args, train_dataset=data, optimizers=(NGN(model.parameters(), lr=1.0), None))
        callback = StabilityCallback(trainer, stop=[NonFinite()])
        trainer.add_callback(callback)
        trainer.train()
        print(callback.monitor.verdict())
    """

    def __init__(self, trainer: Trainer, *, log: bool = True, **options: Any) -> None:
        if not isinstance(trainer, Trainer):
            raise TypeError(f"trainer must be a transformers.Trainer, got {type(trainer).__name__}")
        self._trainer = trainer
        self._log = log
        self._options = options
        self._numbers: Numbers | None = None
        self.monitor: StabilityMonitor | None = None
        """The monitor of the last training, also when it is over."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start watching."""
        self.on_train_end()  # of a training that was interrupted
        self.monitor = attached(_bare(kwargs["optimizer"]), state.max_steps, self._options)
        self._numbers = Numbers(self.monitor)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Report the last step, and end the training if a rule says so."""
        if self._log and control.should_log and self._numbers is not None:
            newest = self._numbers.newest()
            for callback in filter(_reports, self._trainer.callback_handler.callbacks):
                callback.on_log(args, state, control, **{**kwargs, "logs": dict(newest)})
        if self.monitor is not None and stops(self.monitor):
            control.should_training_stop = True
        return control

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop watching."""
        if self.monitor is not None:
            self.monitor.detach()


def _reports(callback: Any) -> bool:
    """Whether a callback is one of those that ``report_to`` adds."""
    return any(kind.__module__.startswith("transformers.integrations") for kind in type(callback).__mro__)


def _bare(optimizer: Any) -> Any:
    """The optimizer inside of Accelerate's wrapper, which is the one whose hooks are called."""
    while isinstance(inside := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inside
    return optimizer


def find_lr(make: Callable[[float], Any], lrs: Any = None, horizon: int | None = None, **options: Any) -> Found:
    """Find the learning rate for a training with the Trainer of Transformers.

    Trainings with different rates take turns, on the same batches, and are dropped once they cannot catch up
    (:func:`surefoot.tune`). Every step is the Trainer's: a new one calls ``trainer.train(resume_from_checkpoint=…)``,
    a callback stops it after some steps and lets it save a checkpoint, and a later one goes on from that.

    Args:
        make: ``make(lr)`` gives a new Trainer on one device, with a new model and ``learning_rate=lr``, or with an
            optimizer of this rate. Let it report to nothing (``report_to="none"``). Checkpoints go to a temporary
            folder, whatever its ``output_dir`` is.
        lrs: The rates to choose from; without them the search finds its own range and refines it.
        horizon: Steps of a training; by default all that the Trainer plans.
        **options: Of :func:`surefoot.tune`: ``seeds``, ``refine``, ``extend`` and ``progress``.

    .. code-block:: python

        def make(lr):
            arguments = TrainingArguments("out", learning_rate=lr, max_steps=1000, report_to="none")
            return Trainer(AutoModelForCausalLM.from_pretrained(name), arguments, train_dataset=data)


        found = find_lr(make)
        print(found)
        make(found.lr).train()
    """
    bars: Any = utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # of every model that is saved
    try:
        return _find.find_lr(_Train, make, lrs, horizon, **options)
    finally:
        if shown:
            bars.enable_progress_bar()


class _Train(_find.Training):
    """A training with one rate."""

    def plan(self, horizon: int | None) -> list[float]:
        """Begin a training, and follow its scheduler."""
        trainer: Any = self._make(_Stop(0))
        with suppress(_find.Begun):
            trainer.train()
        scheduler: Any = trainer.lr_scheduler
        plateau = hasattr(scheduler, "patience")  # steps on a metric, which there is none of
        follow = (lambda _: None) if plateau else (lambda _: scheduler.step())
        return _find.planned_rates(trainer.optimizer, trainer.state.max_steps, horizon, follow)

    def train(self, end: int) -> list[float]:
        """Train from the last checkpoint to a step."""
        stop = _Stop(end)
        checkpoint = str(self.folder / f"checkpoint-{self.step}") if self.step else None
        self._make(stop).train(resume_from_checkpoint=checkpoint)
        return stop.losses

    def _make(self, callback: TrainerCallback) -> Trainer:
        trainer = self.make(self.lr)
        if not isinstance(trainer, Trainer):
            raise TypeError(f"make must give a transformers.Trainer, got a {type(trainer).__name__}")
        args = trainer.args
        if trainer.train_dataset is None:
            raise ValueError("make must give a Trainer with training data, got train_dataset=None")
        _find.require_new(max(args.world_size, args.n_gpu), trainer, trainer.model)
        args.output_dir, args.seed, args.save_total_limit = str(self.folder), self.seed, 1
        args.save_only_model = args.push_to_hub = args.ignore_data_skip = args.logging_nan_inf_filter = False
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(callback)
        set_seed(self.seed)  # again: making a Trainer sets that of its arguments
        return trainer


class _Stop(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Collects the loss of every step, and at a step lets the Trainer save a checkpoint and end."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.losses: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End at once where there is nothing left to train."""
        if state.global_step >= self.end:
            raise _find.Begun

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Ask for the loss of the step, and at the end for a checkpoint."""
        control.should_log = True
        if state.global_step >= self.end:
            control.should_save = control.should_training_stop = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> Any:
        """Take the loss of the step."""
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))
            control.should_training_stop |= not math.isfinite(self.losses[-1])
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Once is enough."""
        control.should_save = False
        return control
