"""The learning rate of a Transformers Trainer, found with its own training step."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer
from transformers import Trainer, TrainerCallback

from surefoot._base.progress import Tell
from surefoot.integrations import _find
from surefoot.integrations._restore import Snapshot
from surefoot.integrations._trainings import Training, Trainings, stacked
from surefoot.problems import seeded
from surefoot.search import Found


def find_lr(
    trainer: Trainer,
    *,
    lrs: _find.Rates = None,
    horizon: int | None = None,
    evaluate: str | None = None,
    set_lr: bool = False,
    progress: Tell | None = None,
    **options: Any,
) -> Found:
    """Find the learning rate with which this Trainer should train.

    Trainings with different rates take turns with the model, on the same batches, and are left behind once they cannot
    catch up (:func:`surefoot.tune`). Every step is the Trainer's own: data collator, ``training_step`` and
    ``compute_loss``, label smoothing, gradient clipping and accumulation, precision, its optimizer and scheduler.
    Callbacks do not run. Afterwards, also after an error or Ctrl-C, model, trainer, data and all random numbers are as
    before, bit for bit.

    The rate is that of ``args.learning_rate``; of an optimizer that you gave to the Trainer, that of its first
    parameter group, and other groups keep their proportion to it.

    Args:
        trainer: On one device.
        lrs: The rates to choose from; without them the search finds its own range and refines it to a factor of 1.3.
        horizon: Steps of a training; by default all that the Trainer plans.
        evaluate: Name of a metric of ``trainer.evaluate()``, such as ``"eval_loss"``, which then decides.
        set_lr: Whether the rate is written to ``trainer.args.learning_rate``.
        progress: Whether to show progress, or a function of the steps taken; by default as ``args.disable_tqdm`` says.
        **options: Of :func:`surefoot.tune`, as for Lightning's finder.

    .. code-block:: python

        found = find_lr(trainer, set_lr=True)
        print(found)
        trainer.train()
    """
    if not isinstance(trainer, Trainer):
        raise TypeError(f"trainer must be a transformers.Trainer, got {type(trainer).__name__}")
    search = _find.Search(lrs, horizon, evaluate, progress, options)
    _check(trainer, evaluate)
    makes_optimizer = trainer.optimizer is None or trainer.model_init is not None
    if set_lr and not makes_optimizer:
        raise ValueError(
            "set_lr=True writes args.learning_rate, which an optimizer that exists already does not read: make it "
            "again with found.lr"
        )

    def look(*_: Any, **__: Any) -> Found:
        trainings = _Trains(trainer, makes_optimizer, evaluate)
        how = "TrainingArguments(max_steps=…) would"
        return search.run(trainings, trainings.planned, how, shown=not trainer.args.disable_tqdm)

    before = Snapshot(trainer, trainer.callback_handler, skip=(TrainerCallback,))
    try:
        within: Any = trainer
        within.callback_handler.callbacks = []
        within._memory_tracker.skip_memory_metrics = True
        within._inner_training_loop = look  # ``train`` sets everything up, and comes here
        found: Found = within.train()
    finally:
        before.restore()
    if set_lr:
        trainer.args.learning_rate = found.lr
    return found


def _check(trainer: Any, metric: str | None) -> None:
    if not hasattr(trainer, "_prepare_for_training"):
        raise ImportError("find_lr needs Transformers 5 or newer: pip install -U transformers")
    args = trainer.args
    if args.world_size > 1 or args.n_gpu > 1 or trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise ValueError(
            f"trainer must be on one device without DeepSpeed and FSDP, got {max(args.world_size, args.n_gpu)} "
            "devices: find the rate on one, with the batch size of all devices together"
        )
    if trainer.train_dataset is None:
        raise ValueError("trainer must have training data, got train_dataset=None")
    with contextlib.suppress(TypeError):
        if len(trainer.train_dataset) == 0:
            raise ValueError("trainer must have training data, got an empty train_dataset")
    if metric is not None and trainer.eval_dataset is None:
        raise ValueError(f"evaluate={metric!r} needs a trainer with an eval_dataset, got None")
    if trainer.model is not None:
        _find.check_module(trainer.model)


class _Trains(Trainings):
    """Trainings of one Trainer; made inside of ``trainer.train()``, in place of its loop."""

    def __init__(self, trainer: Any, makes_optimizer: bool, metric: str | None) -> None:
        self.trainer = trainer
        args = trainer.args
        trainer.accelerator.free_memory()
        loader = self.open_data(0)
        epochs, per_epoch, _, _, _, self._batches, self.planned = trainer.set_initial_training_values(args, loader)
        trainer._init_training_state(self.planned, per_epoch, epochs, None, None)
        self._model, _ = trainer._prepare_for_training(self.planned, loader, None)
        self._model.zero_grad()
        scheduler = trainer.lr_scheduler
        self._follows_scheduler = _needs_no_metric(scheduler)
        if not self._follows_scheduler:
            self.leave_out(type(scheduler).__name__)
        lr = float(args.learning_rate) if makes_optimizer and args.learning_rate > 0 else None
        scaler = trainer.accelerator.scaler
        super().__init__(trainer.model, bare(trainer.optimizer), [scheduler], scaler, lr, metric)

    def open_data(self, seed: int) -> Any:
        """The Trainer's loader, without workers, and with another order for every seed."""
        with seeded(seed):
            loader = _find.without_workers(self.trainer.get_train_dataloader())
            torch_seed = torch.initial_seed()
        batch_sampler = getattr(loader, "batch_sampler", None)
        samplers: list[Any] = [getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)]
        for sampler in samplers:
            if hasattr(sampler, "initial_seed"):
                sampler.initial_seed = torch_seed % 2**62
        return loader

    def take_step(self, training: Training) -> float:
        """One step, as in the Trainer's own loop."""
        trainer, args, batches = self.trainer, self.trainer.args, training.batches
        accelerator = trainer.accelerator
        if batches.done:
            batches.begin_epoch()
        samples, items = trainer.get_batch_samples(iter(batches), args.gradient_accumulation_steps, args.device)
        trainer.current_gradient_accumulation_steps = len(samples)
        losses = []
        for number, inputs in enumerate(samples, 1):
            last = number == len(samples)
            accelerator.gradient_state._set_sync_gradients(last)
            with contextlib.nullcontext() if last else accelerator.no_sync(model=self._model):
                losses.append(trainer.training_step(self._model, inputs, items))
        if args.max_grad_norm is not None and args.max_grad_norm > 0:
            trainer._clip_grad_norm(self._model)
        trainer.optimizer.step()
        if self._follows_scheduler and not accelerator.optimizer_step_was_skipped:
            trainer.lr_scheduler.step()
        self._model.zero_grad()
        trainer.state.global_step += 1
        trainer.state.epoch = trainer.state.global_step * args.gradient_accumulation_steps / self._batches
        return float(stacked(losses).sum())

    def evaluate(self) -> Mapping[str, Any]:
        """Run the Trainer's evaluation."""
        metrics: Mapping[str, Any] = self.trainer.evaluate()
        return metrics

    def rates(self, horizon: int) -> list[float]:
        """The scheduler's rates."""
        rates = []
        group = self.optimizer.param_groups[0]
        for _ in range(horizon):
            rates.append(float(group["lr"]))
            if self._follows_scheduler:
                self.trainer.lr_scheduler.step()
        return rates

    def loop_state(self) -> dict[str, Any]:
        """The counters of the Trainer."""
        return {"global_step": self.trainer.state.global_step, "epoch": self.trainer.state.epoch}

    def load_loop_state(self, state: dict[str, Any]) -> None:
        """Put the counters of the Trainer back."""
        self.trainer.state.global_step, self.trainer.state.epoch = state["global_step"], state["epoch"]


def _needs_no_metric(scheduler: Any) -> bool:
    """Whether a scheduler needs no metric to step."""
    names = [kind.__name__.lower() for kind in type(scheduler).__mro__]
    return not any(word in name for name in names for word in ("plateau", "greedy"))


def bare(optimizer: Any) -> Optimizer:
    """The optimizer inside Accelerate's wrapper, which is the one whose hooks are called."""
    while isinstance(inside := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inside
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"the trainer's optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    return optimizer
