"""A stand-in for an optimizer, for a monitor that must not keep it alive and must not fail in its step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

Hook = Callable[[Optimizer, Any, Any], Any]


def untraced(hook: Hook) -> Hook:
    """A hook that a compiler of steps does not look into."""
    found: Hook = torch.compiler.disable(hook)  # type: ignore[no-untyped-call, unused-ignore]
    return found


class Stage:
    """Looks like the optimizer to a monitor, holds it weakly, and lets hooks be wrapped on their way to it.

    When the optimizer is gone, its class and its settings are still there, so that a verdict can be asked for.
    """

    def __init__(self, optimizer: Optimizer, before: Callable[[Hook], Hook], after: Callable[[Hook], Hook]) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._kind = type(optimizer)
        self._wrappers = before, after
        self._settings = _settings(optimizer)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._kind

    def register_step_pre_hook(self, hook: Hook) -> Any:
        """Register a hook of the monitor, wrapped."""
        return self._alive().register_step_pre_hook(self._wrappers[0](hook))

    def register_step_post_hook(self, hook: Hook) -> Any:
        """Register a hook of the monitor, wrapped."""
        return self._alive().register_step_post_hook(self._wrappers[1](hook))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups, or what is left of them."""
        optimizer = self._optimizer()
        return self._settings if optimizer is None else optimizer.param_groups

    def remember(self) -> None:
        """Take note of the settings as they are now."""
        optimizer = self._optimizer()
        if optimizer is not None:
            self._settings = _settings(optimizer)

    def _alive(self) -> Optimizer:
        optimizer = self._optimizer()
        if optimizer is None:
            raise ReferenceError("the optimizer is gone")
        return optimizer

    def __getattr__(self, name: str) -> Any:
        optimizer = self._optimizer()
        if optimizer is None:
            raise AttributeError(f"{self._kind.__name__} is gone, and its {name!r} with it")
        return getattr(optimizer, name)


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The groups without their parameters."""
    return [{**{k: v for k, v in group.items() if k != "params"}, "params": []} for group in optimizer.param_groups]
