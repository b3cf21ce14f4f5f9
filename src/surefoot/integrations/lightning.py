"""For Lightning: a finder of the learning rate, and a callback that watches the optimizer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from surefoot._base.missing import missing
from surefoot.integrations import _find
from surefoot.integrations._watching import Numbers, attached, stops
from surefoot.monitor import StabilityMonitor
from surefoot.search import Found

try:
    from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
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


def find_lr(make: Callable[[float], Any], lrs: Any = None, horizon: int | None = None, **options: Any) -> Found:
    """Find the learning rate for a Lightning training.

    Trainings with different rates take turns, on the same batches, and are dropped once they cannot catch up
    (:func:`surefoot.tune`). Every step is Lightning's: a new trainer calls ``trainer.fit(module, …, ckpt_path=…)``,
    saves a checkpoint after some steps, and a later one goes on from it. So whatever the training needs to go on must
    be in a checkpoint: attributes of the module that it changes belong into buffers or ``on_save_checkpoint``.

    Args:
        make: ``make(lr)`` gives a new trainer on one device, a new module with this rate, and the loader of the
            training batches: ``(trainer, module, loader)``. Let the trainer have no logger, no checkpoints and no
            progress bar. All that is random depends on the seed of the search, also the order of a loader with
            ``shuffle=True``.
        lrs: The rates to choose from; without them the search finds its own range and refines it.
        horizon: Steps of a training; by default all that the trainer plans.
        **options: Of :func:`surefoot.tune`: ``seeds``, ``refine``, ``extend`` and ``progress``.

    .. code-block:: python

        def make(lr):
            trainer = Trainer(max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False)
            return trainer, Module(lr=lr), DataLoader(data, batch_size=32, shuffle=True)


        found = find_lr(make)
        print(found)
        trainer, module, loader = make(found.lr)
        trainer.fit(module, loader)
    """
    return _find.find_lr(_Fit, make, lrs, horizon, **options)


class _Fit(_find.Training):
    """A fit with one rate."""

    place: Mapping[str, int] = {"epoch": 0, "taken": 0}
    """That of the next batch. Lightning would not load it from a checkpoint of the end of an epoch."""

    def plan(self, horizon: int | None) -> list[float]:
        """Begin a fit."""
        trainer, module, loader = self._make()
        begin = _Begin(horizon)
        trainer.callbacks.append(begin)
        with suppress(_find.Begun):
            trainer.fit(module, _Batches(loader, self.seed, self.place))
        if begin.rates is None:
            raise ValueError("make must give a trainer that trains and a loader with batches, got nothing to train on")
        return begin.rates

    def train(self, end: int) -> list[float]:
        """Fit from the last checkpoint to a step."""
        trainer, module, loader = self._make()
        batches = _Batches(loader, self.seed, self.place)
        stop = _Stop(batches, self.step, end, self._checkpoint)
        trainer.callbacks.append(stop)
        trainer.fit(module, batches, ckpt_path=self._checkpoint if self.step else None)
        self.place = batches.state_dict()
        return stop.losses

    def state_dict(self) -> dict[str, Any]:
        """Step and place; all else is in the checkpoint."""
        return {**super().state_dict(), "place": dict(self.place)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the last checkpoint."""
        super().load_state_dict(state)
        self.place = state["place"]

    @property
    def _checkpoint(self) -> str:
        return str(self.folder / "last.ckpt")

    def _make(self) -> tuple[Any, Any, Any]:
        made = self.make(self.lr)
        if not isinstance(made, tuple) or len(made) != 3 or not isinstance(made[0], Trainer):
            raise TypeError(f"make must give (trainer, module, loader), got {made!r}")
        _find.require_new(made[0].world_size, *made[:2])
        return made


class _Begin(Callback):  # type: ignore[misc, unused-ignore]
    """Reads which rates a trainer plans, and ends the fit before its first step."""

    def __init__(self, horizon: int | None) -> None:
        self.horizon = horizon
        self.rates: list[float] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Follow the schedulers."""
        planned, batches = float(trainer.estimated_stepping_batches), trainer.num_training_batches
        per_epoch = math.ceil(batches / trainer.accumulate_grad_batches) if batches < math.inf else math.inf
        if not trainer.optimizers or not trainer.optimizers[0].param_groups:
            raise ValueError("the module must have an optimizer, got none from configure_optimizers")

        def follow(step: int) -> None:
            for config in trainer.lr_scheduler_configs:
                pause = config.frequency * (per_epoch if config.interval == "epoch" else 1)
                if step % pause == 0 and not config.reduce_on_plateau:
                    pl_module.lr_scheduler_step(config.scheduler, None)

        steps = planned if planned > 0 else math.inf
        self.rates = _find.planned_rates(trainer.optimizers[0], steps, self.horizon, follow)
        raise _find.Begun


class _Batches:
    """Training batches whose order and random numbers depend on the seed, the epoch and the batch alone.

    Batches before the place are read again. Lightning sees ``state_dict``, and knows that it can go on in an epoch.
    """

    def __init__(self, loader: Any, seed: int, place: Mapping[str, int]) -> None:
        self.loader, self.seed = loader, seed
        self.load_state_dict(place)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        done, epoch = self.taken, self.epoch
        start = self._set_seed(epoch)
        for source in (self.loader, getattr(self.loader, "sampler", None)):
            if isinstance(generator := getattr(source, "generator", None), torch.Generator):
                generator.manual_seed(start)
        batches = iter(self.loader)
        for index in itertools.count():
            self._set_seed(epoch, index)
            try:
                batch = next(batches)
            except StopIteration:
                return
            if index >= done:
                yield batch

    def _set_seed(self, *place: int) -> int:
        number = int(np.random.SeedSequence((self.seed, *place)).generate_state(1)[0])
        return int(seed_everything(number, verbose=False))

    def state_dict(self) -> dict[str, int]:
        """The place of the next batch."""
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from a place."""
        self.epoch, self.taken = state["epoch"], state["taken"]

    def end_epoch(self) -> None:
        """Go to the next epoch."""
        self.epoch, self.taken = self.epoch + 1, 0


class _Stop(Callback):  # type: ignore[misc, unused-ignore]
    """Collects the loss of every step, and after some steps saves a checkpoint and ends the fit."""

    def __init__(self, batches: _Batches, begin: int, end: int, path: str) -> None:
        self.batches, self.step, self.end, self.path = batches, begin, end, path
        self.losses: list[float] = []
        self._parts: list[torch.Tensor] = []
        self._over = self._unsaved = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take the loss of a batch."""
        if self._over:  # Trainer(min_steps=…) goes on
            return
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is None:
            raise ValueError("training_step must return its loss, got None")
        self._parts.append(loss.detach().double().mean())
        self.batches.taken += 1
        if trainer.is_last_batch:
            self.batches.end_epoch()
        if trainer.global_step == self.step:  # accumulates gradients
            return
        self.step = trainer.global_step
        self.losses.append(float(torch.stack(self._parts).mean()))
        self._parts = []
        if self.step == self.end or not math.isfinite(self.losses[-1]):
            trainer.should_stop = self._over = self._unsaved = True
            # Where a leg ends with an epoch, Lightning goes on rightly only if it was saved in on_train_epoch_end, or
            # here if the trainer does not count epochs.
            if not trainer.is_last_batch or trainer.max_epochs == -1:
                self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save what ended with the epoch."""
        self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        if self._unsaved:
            trainer.save_checkpoint(self.path)
            self._unsaved = False
