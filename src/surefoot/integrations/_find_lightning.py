"""The learning rate of a Lightning module, found with the trainer's own loops."""

from __future__ import annotations

import copy
import logging
import math
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import PassThroughProfiler, Profiler
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer import call
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from lightning.pytorch.utilities.exceptions import _TunerExitException
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_hasattr, lightning_setattr
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch.utils.data import DataLoader

from surefoot._base.progress import Tell
from surefoot.integrations import _find
from surefoot.integrations._restore import Snapshot
from surefoot.integrations._trainings import PEAKS, Training, Trainings, rate_of, stacked
from surefoot.search import Found

_NAMES = ("lr", "learning_rate")
"""Attributes of a module that may hold its rate, as Lightning's own finder takes them."""


def find_lr(
    trainer: Trainer,
    module: LightningModule,
    *,
    train_dataloaders: Any = None,
    val_dataloaders: Any = None,
    datamodule: LightningDataModule | None = None,
    lrs: _find.Rates = None,
    horizon: int | None = None,
    evaluate: str | None = None,
    set_lr: bool = False,
    progress: Tell | None = None,
    **options: Any,
) -> Found:
    """Find the learning rate with which this trainer should fit this module.

    Trainings with different rates take turns with the module, on the same batches, and are left behind once they cannot
    catch up (:func:`surefoot.tune`). Every step is the trainer's own: ``training_step``, hooks of the module, gradient
    clipping and accumulation, precision, ``configure_optimizers`` with its schedulers. Callbacks and loggers do not
    run, apart from ``GradientAccumulationScheduler``. Afterwards, also after an error or Ctrl-C, module, trainer, data
    and all random numbers are as before, bit for bit.

    The rate is that of ``module.lr`` or ``module.learning_rate`` (or of ``module.hparams``), if the optimizer was made
    with it, else that of the first parameter group; other groups and schedulers keep their proportion to it.

    Args:
        trainer: On one device.
        module: With one optimizer, and automatic optimization.
        train_dataloaders: As for ``trainer.fit``, like ``val_dataloaders`` and ``datamodule``. Batches are loaded in
            this process, without workers.
        val_dataloaders: For ``evaluate``.
        datamodule: Instead of data loaders.
        lrs: The rates to choose from; without them the search finds its own range and refines it to a factor of 1.3.
        horizon: Steps of a training; by default all that the trainer plans. With fewer only the beginning of the
            schedule is seen.
        evaluate: Name of a metric that the module logs in validation, such as ``"val_loss"``: its value at the end
            decides among the trainings that got there, instead of the training loss.
        set_lr: Whether the rate is written to the attribute of the module that holds it.
        progress: Whether to show progress, or a function of the steps taken; by default as the trainer does.
        **options: Of :func:`surefoot.tune`: ``seeds``, ``tolerance``, ``extend``, ``refine``, ``maximize``,
            ``max_states``.

    .. code-block:: python

        found = find_lr(trainer, module, train_dataloaders=loader)
        print(found)
        module.lr = found.lr
        trainer.fit(module, loader)
    """
    if not isinstance(trainer, Trainer):
        raise TypeError(f"trainer must be a lightning.pytorch.Trainer, got {type(trainer).__name__}")
    search = _find.Search(lrs, horizon, evaluate, progress, options)
    _check(trainer, module, train_dataloaders, datamodule)
    shown = trainer.progress_bar_callback is not None
    limit_val_batches = trainer.limit_val_batches
    outcome: Future[tuple[Found, str | None]] = Future()

    def look() -> None:
        try:
            fits = _Fits(trainer, module, evaluate, limit_val_batches)
            if set_lr and fits.name is None:
                raise ValueError(
                    "set_lr=True needs an optimizer that is made with module.lr or module.learning_rate, this one is "
                    "not"
                )
            how = "Trainer(max_steps=…) or max_epochs would"
            outcome.set_result((search.run(fits, trainer.estimated_stepping_batches, how, shown=shown), fits.name))
        except BaseException as error:  # told when everything is put back; Lightning would end the program on Ctrl-C
            outcome.set_exception(error)
        raise _TunerExitException  # as Lightning's own finder does

    roots = (trainer, module, train_dataloaders, val_dataloaders, datamodule)
    before = Snapshot(*roots, data=(LightningDataModule,), skip=(Callback, Logger, Profiler))
    handler = signal.getsignal(signal.SIGINT)
    try:
        with _quiet():
            _prepare(trainer, look)
            trainer.fit(module, train_dataloaders, val_dataloaders, datamodule)
    except SystemExit as error:  # what Lightning makes of Ctrl-C while it sets everything up
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None
    finally:
        before.restore()
    found, name = outcome.result(timeout=0)
    if set_lr and name is not None:
        lightning_setattr(module, name, found.lr)
    return found


def _check(trainer: Any, module: Any, loaders: Any, datamodule: Any) -> None:
    if not isinstance(module, LightningModule):
        raise TypeError(f"module must be a LightningModule, got {type(module).__name__}")
    if isinstance(loaders, LightningDataModule):
        raise TypeError("train_dataloaders must be data loaders, got a LightningDataModule: give it as datamodule=")
    if not isinstance(trainer.strategy, SingleDeviceStrategy) or trainer.world_size > 1:
        raise ValueError(
            f"trainer must be on one device, got {trainer.world_size} with {type(trainer.strategy).__name__}: find the "
            "rate with Trainer(devices=1) and the batch size of all devices together"
        )
    if not module.automatic_optimization:
        raise ValueError(
            "module must use automatic optimization, got automatic_optimization=False: with manual optimization only "
            "its training_step knows which optimizer steps when. surefoot.tune with a TorchRun can search there"
        )
    if is_param_in_hook_signature(module.training_step, "dataloader_iter", explicit=True):
        raise ValueError("module.training_step must take a batch, got one that takes a dataloader_iter")
    if loaders is None and datamodule is None and not is_overridden("train_dataloader", module):
        raise ValueError("train_dataloaders must be given, or a datamodule: there are no training data, got None")
    _find.check_module(module)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the notes and warnings that the trainer has for a whole fit; errors are told by ourselves."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="lightning")
        warnings.filterwarnings("ignore", category=FutureWarning, module="lightning")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _prepare(trainer: Any, look: Callable[[], None]) -> None:
    """Have ``fit`` set everything up, and come to ``look`` in place of its loop.

    It sees copies of the data loaders, without workers and with iterators of their own, and of all callbacks, those of
    the module too, only what accumulates gradients.
    """
    loop, connector = trainer.fit_loop, trainer._callback_connector
    attach, load = connector._attach_model_callbacks, loop._data_source.dataloader

    def attach_callbacks() -> None:
        attach()
        trainer.callbacks = [c for c in trainer.callbacks if isinstance(c, GradientAccumulationScheduler)]

    def load_alone() -> CombinedLoader:
        data = load()
        combined = copy.copy(data) if isinstance(data, CombinedLoader) else CombinedLoader(data, "max_size_cycle")
        combined.flattened = [_alone(each) if isinstance(each, DataLoader) else each for each in combined.flattened]
        combined._iterator = None
        return combined

    connector._attach_model_callbacks, loop._data_source.dataloader, loop.run = attach_callbacks, load_alone, look
    trainer.loggers, trainer.profiler, trainer.limit_val_batches = [], PassThroughProfiler(), 0


def _alone(loader: Any) -> Any:
    """A copy of a data loader, without workers and with an iterator of its own."""
    loader = copy.copy(loader)
    loader._iterator = None
    return _find.without_workers(loader)


class _Losses(Callback):  # type: ignore[misc, unused-ignore]
    """Collects the losses of the batches."""

    def __init__(self) -> None:
        self.taken: list[torch.Tensor] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any, **__: Any) -> None:
        """Take the loss of a batch."""
        if outputs:
            self.taken.append((outputs["loss"] if isinstance(outputs, dict) else outputs).detach())


class _Fits(Trainings):
    """Fits of one trainer, driven through the loops that ``trainer.fit`` has set up."""

    def __init__(self, trainer: Any, module: Any, metric: str | None, limit_val_batches: Any) -> None:
        self.trainer, self._losses, self._limit_val_batches = trainer, _Losses(), limit_val_batches
        trainer.callbacks.insert(0, self._losses)
        optimizers = trainer.strategy.optimizers
        if len(optimizers) != 1:
            raise ValueError(f"module must have one optimizer, configure_optimizers gave {len(optimizers)}")
        configs = trainer.strategy.lr_scheduler_configs
        self.configs = [config for config in configs if not config.reduce_on_plateau]
        if len(self.configs) < len(configs):
            trainer.strategy.lr_scheduler_configs = self.configs
            self.leave_out("ReduceLROnPlateau")
        loop = trainer.fit_loop
        loop.setup_data()
        if loop._combined_loader is None or loop.max_batches == 0:
            raise ValueError("train_dataloaders must hold at least one batch, got none")
        self.limit = loop.max_batches
        loop._data_fetcher.teardown()
        loop._data_fetcher = None
        loop.reset()
        loop.on_run_start()
        lr, self.name = _named_rate(module, optimizers[0])
        schedulers = [config.scheduler for config in self.configs]
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        super().__init__(module, optimizers[0], schedulers, scaler, lr, metric)

    def open_data(self, seed: int) -> Any:
        """The trainer's loaders; each training has iterators of its own."""
        return copy.copy(self.trainer.fit_loop._combined_loader)

    def take_step(self, training: Training) -> float:
        """Take a step with as many batches as the trainer accumulates, through its own loops."""
        fit, epoch, batches = self.trainer.fit_loop, self.trainer.fit_loop.epoch_loop, training.batches
        before, self._losses.taken = epoch.global_step, []
        while epoch.global_step == before:
            if batches.done:
                fit.on_advance_start()
                epoch.reset()
                batches.begin_epoch()
            try:
                epoch.advance(batches)
                epoch.on_advance_end(batches)
            except StopIteration:  # on_train_batch_start has skipped the rest of the epoch
                batches.done = True
            epoch.on_iteration_done()
            if batches.done:
                fit.on_advance_end()
                fit.on_iteration_done()
        if not self._losses.taken:
            raise ValueError(f"training_step must return a loss at every step, got none at step {training.step}")
        return float(stacked(self._losses.taken).mean())

    def evaluate(self) -> Mapping[str, Any]:
        """Run the trainer's validation, in which the module logs its metrics."""
        trainer, loop = self.trainer, self.trainer.fit_loop.epoch_loop
        trainer.limit_val_batches = self._limit_val_batches
        try:
            trainer.validating = True
            call._call_lightning_module_hook(trainer, "on_validation_model_zero_grad")
            loop.val_loop.run()
        finally:
            trainer.training = True
            trainer.limit_val_batches = 0
        metrics: Mapping[str, Any] = trainer.callback_metrics
        return metrics

    def rates(self, horizon: int) -> list[float]:
        """The schedulers' rates, counted as the trainer counts batches and epochs."""
        trainer, group = self.trainer, self.optimizer.param_groups[0]
        to_named = self.lr / rate_of(self.optimizer)  # a rate with a name may be that of another group
        rates: list[float] = []
        batch, epoch = 0, 0
        while len(rates) < horizon:
            batch += 1
            last = batch == self.limit
            if batch % trainer.accumulate_grad_batches == 0 or last:
                rates.append(float(group["lr"]) * to_named)
                self._step_schedulers("step", batch)
            if last:
                epoch, batch = epoch + 1, 0
                self._step_schedulers("epoch", epoch)
        return rates

    def _step_schedulers(self, interval: str, count: int) -> None:
        for config in self.configs:
            if config.interval == interval and count % config.frequency == 0:
                call._call_lightning_module_hook(self.trainer, "lr_scheduler_step", config.scheduler, None)

    def loop_state(self) -> dict[str, Any]:
        """The progress of the loops."""
        loop = copy.deepcopy(self.trainer.fit_loop.state_dict())
        return {"loop": loop, "accumulate": self.trainer.accumulate_grad_batches}

    def load_loop_state(self, state: dict[str, Any]) -> None:
        """Put the progress of the loops back."""
        loop = self.trainer.fit_loop
        loop.load_state_dict(copy.deepcopy(state["loop"]))
        loop.restarting = False
        for part in (loop, loop.epoch_loop, loop.epoch_loop.val_loop, loop.epoch_loop.automatic_optimization):
            part._loaded_from_state_dict = part._resuming_from_checkpoint = False
        self.trainer.accumulate_grad_batches = state["accumulate"]
        self.trainer._logger_connector.reset_results()


def _named_rate(module: Any, optimizer: Any) -> tuple[float | None, str | None]:
    """The rate that the module has a name for, if the optimizer was made with it."""
    rate_of(optimizer)  # refuses an optimizer without a rate
    name = next((name for name in _NAMES if lightning_hasattr(module, name)), None)
    value = None if name is None else lightning_getattr(module, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        return None, None
    used = [float(group[peak]) for group in optimizer.param_groups for peak in PEAKS if peak in group]
    return (float(value), name) if any(math.isclose(value, rate, rel_tol=1e-6) for rate in used) else (None, None)
