"""The learning rate of a training with the Trainer of Transformers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import transformers
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, set_seed

from surefoot._base.progress import Tell
from surefoot.integrations._find import Begun, Make, Rates, Training, rates_of, search
from surefoot.search import Found


def find_lr(
    make: Make,
    *,
    lrs: Rates = None,
    horizon: int | None = None,
    evaluate: str | None = None,
    progress: Tell | None = None,
    **options: Any,
) -> Found:
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
        evaluate: Name of a metric of ``trainer.evaluate()``, such as ``"eval_loss"``: its value at the end decides
            among the trainings that got there, instead of the training loss.
        progress: Whether to show progress, or a function of the steps taken.
        **options: Of :func:`surefoot.tune`: ``seeds``, ``tolerance``, ``extend``, ``refine``, ``maximize``.

    .. code-block:: python

        def make(lr):
            arguments = TrainingArguments("out", learning_rate=lr, max_steps=1000, report_to="none")
            return Trainer(AutoModelForCausalLM.from_pretrained(name), arguments, train_dataset=data)


        found = find_lr(make)
        print(found)
        make(found.lr).train()
    """
    bars: Any = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # of every model that is saved
    try:
        return search(_Train, make, lrs, horizon, evaluate, progress, options)
    finally:
        if shown:
            bars.enable_progress_bar()


class _Train(Training):
    """A training with one rate."""

    def plan(self, steps: int | None) -> tuple[float, list[float]]:
        """Begin a training, and step its scheduler as often as the Trainer would."""
        planned, rates = math.inf, list[float]()

        def read(trainer: Trainer, state: Any, optimizer: Any, scheduler: Any) -> None:
            nonlocal planned, rates
            planned = state.max_steps
            count = planned if steps is None else min(steps, planned)
            plateau = hasattr(scheduler, "patience")  # steps on a metric, which there is none of
            rates = rates_of(optimizer.param_groups[0], count, lambda _: None if plateau else scheduler.step())

        self._begin(read)
        return planned, rates

    def train(self, end: int) -> list[float]:
        """Train from the last checkpoint to a step."""
        stop = _Stop(end)
        self._make(stop).train(resume_from_checkpoint=self._checkpoint)
        return stop.losses

    def measure(self) -> Mapping[str, Any]:
        """Evaluate the last checkpoint, where a training that goes on from it would begin."""
        metrics: dict[str, Any] = {}
        self._begin(lambda trainer, *_: metrics.update(trainer.evaluate()))
        return metrics

    @property
    def _checkpoint(self) -> str | None:
        return str(self.folder / f"checkpoint-{self.step}") if self.step else None

    def _begin(self, look: Callable[[Trainer, Any, Any, Any], None]) -> None:
        """Call a function where a training begins, and end it there."""
        begin = _Begin()
        trainer = self._make(begin)
        begin.look = functools.partial(look, trainer)
        try:
            trainer.train(resume_from_checkpoint=self._checkpoint)
        except Begun:
            return

    def _make(self, callback: TrainerCallback) -> Trainer:
        trainer = self.make(self.lr)
        if not isinstance(trainer, Trainer):
            raise TypeError(f"make must give a transformers.Trainer, got a {type(trainer).__name__}")
        args = trainer.args
        if args.world_size > 1 or args.n_gpu > 1:
            raise ValueError(
                f"make must give a Trainer on one device, got {max(args.world_size, args.n_gpu)}: find the rate on "
                "one, with the batch size of all devices together"
            )
        if trainer.train_dataset is None:
            raise ValueError("make must give a Trainer with training data, got train_dataset=None")
        args.output_dir, args.seed, args.save_total_limit = str(self.folder), self.seed, 1
        args.save_only_model = args.push_to_hub = args.ignore_data_skip = args.logging_nan_inf_filter = False
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(callback)
        set_seed(self.seed)  # again: making a Trainer sets that of its arguments
        return trainer


class _Begin(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Calls a function where a training begins, and ends it."""

    look: Callable[[Any, Any, Any], None]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Call it."""
        self.look(state, kwargs["optimizer"], kwargs["lr_scheduler"])
        raise Begun


class _Stop(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Collects the loss of every step, and at a step lets the Trainer save a checkpoint and end."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.losses: list[float] = []

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
