"""Handing the loss over, where a framework calls ``optimizer.step()`` without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from surefoot.monitor import StabilityMonitor
from surefoot.optim import ModelBased


class Handover:
    """Watches an optimizer, and gives the loss of every step to it (if it is one of ours) and to its monitor.

    The losses of a step's micro batches are told by :meth:`add`, each as it was differentiated; their sum belongs to
    the gradient that the step sees. A closure is made to return that sum, because its own result is that of the last
    micro batch, unless the optimizer has heard the others.
    """

    def __init__(self, monitor: StabilityMonitor) -> None:
        self.monitor = monitor
        self._loss: Tensor | None = None
        self._expected = False
        # Before the monitor's own hook, so that the monitor sees what this one hands over.
        self._handle = monitor.optimizer.register_step_pre_hook(self._before_step)
        monitor.attach()

    def add(self, loss: Tensor) -> None:
        """Tell the loss of a micro batch."""
        if self._expected:  # the step never came: the losses before belong to gradients that are gone
            self._take()
        loss = loss.detach()
        self._loss = loss if self._loss is None else self._loss + loss

    def expect(self) -> None:
        """Tell that the framework is about to step; a ``GradScaler`` leaves the step out if a gradient overflows."""
        self._expected = True

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
            given = self._with_sum(closure)
            if isinstance(optimizer, ModelBased) and optimizer.pending_loss is not None:
                given = self._by_itself(closure)
            return ((args[0], given, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": given})
        loss = self._take()
        if loss is None or "loss" in kwargs:
            return None
        if isinstance(optimizer, ModelBased):
            return args, {**kwargs, "loss": loss}
        self.monitor.record(loss)
        return None

    def _with_sum(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def summed() -> Any:
            result = closure()
            loss = self._take()
            return result if loss is None else loss

        return summed

    def _by_itself(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """For one that has heard the earlier micro batches: the sum is for the monitor."""

        def alone() -> Any:
            result = closure()
            loss = self._take()
            if loss is not None:
                self.monitor.record(loss)
            return result

        return alone


def bare(optimizer: Any) -> Optimizer:
    """The optimizer inside Accelerate's wrapper, which is the one whose hooks are called."""
    while isinstance(inside := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inside
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"the trainer's optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    return optimizer
