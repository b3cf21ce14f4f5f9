"""Handing the loss over, where a framework calls ``optimizer.step()`` without it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from surefoot.monitor import StabilityMonitor
from surefoot.optim import ModelBased

_log = logging.getLogger(__name__)


class Handover:
    """Watches an optimizer, and gives the loss of every step to it (if it is one of ours) and to its monitor.

    The losses of a step's micro batches are told by :meth:`add`, each as it was differentiated; their sum belongs to
    the gradient that the step sees. A closure is made to return that sum, because its own result is that of the last
    micro batch, unless the optimizer has heard the others.

    Args:
        optimizer: The bare torch optimizer.
        steps: What the framework plans, the monitor's horizon unless ``options`` say more.
        options: Of the monitor.
    """

    def __init__(self, optimizer: Optimizer, steps: float, options: Mapping[str, Any]) -> None:
        planned = {"horizon": int(steps)} if "schedule" not in options and 0 < steps < math.inf else {}
        self.monitor = StabilityMonitor(optimizer, **{**planned, **options})
        self._loss: Tensor | None = None
        self._expected = False
        # Before the monitor's own hook, so that the monitor sees what this one hands over.
        self._handle = optimizer.register_step_pre_hook(self._before_step)
        self.monitor.attach()

    def add(self, loss: Tensor) -> None:
        """Tell the loss of a micro batch."""
        if self._expected:  # the step never came: the losses before belong to gradients that are gone
            self._take()
        loss = loss.detach()
        self._loss = loss if self._loss is None else self._loss + loss

    def expect(self) -> None:
        """Tell that the framework is about to step; a ``GradScaler`` leaves the step out if a gradient overflows."""
        self._expected = True

    def stops(self) -> bool:
        """Whether a stop rule holds, which is told to the log."""
        stopped = self.monitor.stopped
        if stopped is not None:
            _log.warning("training ends at step %d: %s", self.monitor.steps, stopped.reason)
        return stopped is not None

    def end(self) -> None:
        """Let go of the optimizer."""
        self._handle.remove()
        self.monitor.detach()

    def _take(self) -> Tensor | None:
        loss, self._loss = self._loss, None
        self._expected = False
        return loss

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is not None:
            given = self._summed(closure, isinstance(optimizer, ModelBased) and optimizer.pending_loss is not None)
            return ((args[0], given, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": given})
        loss = self._take()
        if loss is None or "loss" in kwargs:
            return None
        if isinstance(optimizer, ModelBased):
            return args, {**kwargs, "loss": loss}
        self.monitor.record(loss)
        return None

    def _summed(self, closure: Callable[[], Any], has_heard: bool) -> Callable[[], Any]:
        """A closure that returns the sum; for an optimizer that has heard the rest of it, the sum is the monitor's."""

        def summed() -> Any:
            result = closure()
            loss = self._take()
            if loss is None:
                return result
            if not has_heard:
                return loss
            self.monitor.record(loss)
            return result

        return summed


def bare(optimizer: Any) -> Optimizer:
    """The optimizer inside Accelerate's wrapper, which is the one whose hooks are called."""
    while isinstance(inside := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inside
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"the trainer's optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    return optimizer
