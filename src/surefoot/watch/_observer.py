"""Seeing the optimizers, steps and schedulers of any script, through hooks of torch and wrapped methods."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from surefoot.watch._session import Session
from surefoot.watch._watched import Watched

_STEPS = {constant for constant in Optimizer.profile_hook_step.__code__.co_consts if isinstance(constant, CodeType)}
"""The code in which torch calls the hooks of a step, around every step."""


class Observer:
    """Sees every optimizer from its making on, and every step of it.

    An optimizer whose step is called inside another one's (a wrapper such as Lookahead) is left to the outer one.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._all: weakref.WeakKeyDictionary[Optimizer, Watched] = weakref.WeakKeyDictionary()
        _then(Optimizer, "__init__", session.guarded(self._built))
        _then(Optimizer, "add_param_group", session.guarded(self._grown))
        for kind in (lr_scheduler.LRScheduler, lr_scheduler.SequentialLR):
            _then(kind, "__init__", session.guarded(self._scheduled))

    def _built(self, optimizer: Optimizer) -> None:
        if optimizer in self._all:
            return
        if not self._session.built:  # the first one
            before, after = map(self._session.guarded, (self._before_step, self._after_step))
            # A compiled step breaks its graph for them; this imports the compiler, which torch has done for the first
            # optimizer anyway.
            register_optimizer_step_pre_hook(torch.compiler.disable(before))  # type: ignore[no-untyped-call]
            register_optimizer_step_post_hook(torch.compiler.disable(after))  # type: ignore[no-untyped-call]
        self._add(optimizer)

    def _add(self, optimizer: Optimizer) -> Watched:
        self._session.built.append(type(optimizer).__name__)
        self._all[optimizer] = watched = Watched(optimizer, self._session.settings.horizon)
        weakref.finalize(optimizer, self._session.guarded(self._session.keep), watched).atexit = False
        return watched

    def _grown(self, optimizer: Optimizer) -> None:
        if optimizer in self._all:  # not yet where it is being built
            self._all[optimizer].listen()

    def _scheduled(self, scheduler: Any) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        watched = self._all.get(optimizer) if isinstance(optimizer, Optimizer) else None
        if watched is not None:
            watched.planned.add(scheduler)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # One that is not known is a copy, or was unpickled: it was never built.
        watched = self._all.get(optimizer) or self._add(optimizer)
        if not watched.is_new or _is_nested():
            return
        watched.is_new = False
        watched.begin(optimizer)
        self._session.announce(watched)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        watched = self._all.get(optimizer)
        if watched is not None and watched.monitor is not None:
            self._session.look(watched, sys._getframe())


def _is_nested() -> bool:
    """Whether the step that is being made is part of another optimizer's step."""
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None:
        depth += frame.f_code in _STEPS
        frame = frame.f_back
    return depth > 1


def _then(owner: type, name: str, then: Callable[[Any], None]) -> None:
    """Call a function with the object after one of its methods."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        then(self)

    setattr(owner, name, wrapper)


def observe(session: Session) -> None:
    """Start to observe this process; torch has been imported."""
    session.has_torch = True
    if not session.muted:
        Observer(session)
