"""For Lightning: a finder of the learning rate, and a callback that watches the optimizer."""

from __future__ import annotations

from typing import Any

from surefoot._base.missing import missing
from surefoot.integrations._watching import Numbers, attached, stops
from surefoot.monitor import StabilityMonitor

try:
    from lightning.pytorch import Callback, LightningModule, Trainer

    from surefoot.integrations._find_lightning import find_lr
except ImportError as error:
    raise missing(__name__, error, "lightning") from error

__all__ = ["StabilityCallback", "find_lr"]


class StabilityCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Attaches a :class:`~surefoot.monitor.StabilityMonitor` to the optimizer of a Lightning module while it trains.

    Works with any torch optimizer, and with ours. The loss is taken from ``backward``: with ``accumulate_grad_batches``
    it is the mean over the micro batches, and in manual optimization that of ``manual_backward``. Once a stop rule
    holds, training ends after the batch. One optimizer only.

    Its numbers go to the trainer's loggers, whatever they are (TensorBoard, W&B, CSV): every ``log_every_n_steps``
    steps loss, rate, δ and the steps that other methods would take (``stability/loss``, ``stability/size/ngn``, …), and
    the verdict as a number, ``stability/state``: −1 is too small, 0 holds, 1 is at the edge, 2 too large. The verdict
    is renewed whenever the run is a tenth longer.

    Args:
        log: Whether to write to the loggers.
        **options: Arguments of the monitor; ``horizon`` is by default what the trainer expects.

    .. code-block:: python

        callback = StabilityCallback(stop=[NonFinite(), DeltaExplosion()])
        Trainer(callbacks=[callback], max_epochs=3).fit(module, loader)
        print(callback.monitor.verdict())
    """

    def __init__(self, *, log: bool = True, **options: Any) -> None:
        self._log, self._options = log, options
        self._numbers: Numbers | None = None
        self._logged = 0
        self.monitor: StabilityMonitor | None = None
        """The monitor of the last fit, also when it is over."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start watching."""
        count = sum(bool(optimizer.param_groups) for optimizer in trainer.optimizers)  # Lightning mocks one for None
        if count != 1:
            raise ValueError(f"the module must have one optimizer for StabilityCallback, got {count}")
        self.monitor = attached(trainer.optimizers[0], trainer.estimated_stepping_batches, self._options)
        self._numbers, self._logged = Numbers(self.monitor), 0

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Log the last step, and end the training if a rule says so."""
        if trainer.log_every_n_steps:
            self._write(trainer, trainer.log_every_n_steps)
        if not trainer.should_stop and self.monitor is not None and stops(self.monitor):
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop watching."""
        self._write(trainer, 1, over=True)
        self.on_exception()

    def on_exception(self, *_: Any) -> None:
        """Stop watching."""
        if self.monitor is not None:
            self.monitor.detach()

    def _write(self, trainer: Trainer, every: int, *, over: bool = False) -> None:
        """Log the last step if there were enough since the one before."""
        numbers = self._numbers
        if not self._log or not trainer.loggers or numbers is None or numbers.monitor.steps - self._logged < every:
            return
        self._logged = numbers.monitor.steps
        newest = numbers.newest(over=over)
        for logger in trainer.loggers:
            logger.log_metrics(newest, step=trainer.global_step)
