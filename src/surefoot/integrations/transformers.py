"""For the Trainer of Transformers: a finder of its learning rate, and a callback that watches its optimizer."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from surefoot._base.missing import missing
from surefoot.integrations._watching import Numbers, attached, stops
from surefoot.monitor import StabilityMonitor

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    from surefoot.integrations._find_transformers import find_lr
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
