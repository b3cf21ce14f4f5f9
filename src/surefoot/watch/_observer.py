"""The doors through which optimizers, steps and schedulers of any script are seen."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch.distributed as distributed
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from surefoot.optim._listen import uncompiled
from surefoot.watch._frames import caller
from surefoot.watch._ranks import follow
from surefoot.watch._session import Session
from surefoot.watch._watched import Watched


class Observer:
    """Sees every optimizer from its making on, and every step of it.

    An optimizer whose step is called inside another one's (a wrapper such as Lookahead) is left to the outer one.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._all: weakref.WeakKeyDictionary[Optimizer, Watched] = weakref.WeakKeyDictionary()
        self._threads = threading.local()
        self._has_rank = self._has_hooks = False
        _behind(Optimizer, "__init__", self._built)
        for kind in (lr_scheduler.LRScheduler, lr_scheduler.SequentialLR, lr_scheduler.ChainedScheduler):
            _behind(kind, "__init__", self._scheduled)

    @property
    def _running(self) -> list[int]:
        """The optimizers whose steps are being made in this thread, the outermost first."""
        found: list[int] = self._threads.__dict__.setdefault("running", [])
        return found

    def _built(self, optimizer: Optimizer) -> None:
        if self._session.muted or optimizer in self._all:
            return
        if not self._has_hooks:
            self._has_hooks = True
            # A compiled step breaks its graph for them; this imports the compiler, which torch has done for the first
            # optimizer anyway.
            register_optimizer_step_pre_hook(uncompiled(self._before_step))
            register_optimizer_step_post_hook(uncompiled(self._after_step))
        self._session.built.append(type(optimizer).__name__)
        self._add(optimizer, caller(sys._getframe()))

    def _add(self, optimizer: Optimizer, frame: FrameType | None = None) -> Watched:
        watched = Watched(optimizer, self._session.settings.horizon, frame)
        self._all[optimizer] = watched
        weakref.finalize(optimizer, self._session.keep, watched).atexit = False
        return watched

    def _scheduled(self, scheduler: Any) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        watched = self._all.get(optimizer) if isinstance(optimizer, Optimizer) else None
        if watched is not None:
            watched.planned.add(scheduler)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._session.muted:
            return
        running = self._running
        if id(optimizer) in running:  # its last step has failed
            del running[running.index(id(optimizer)) :]
        running.append(id(optimizer))
        if len(running) > 1:
            return
        watched = self._all.get(optimizer)
        if watched is None:  # a copy, or one that was unpickled: it was never built
            self._session.built.append(type(optimizer).__name__)
            watched = self._add(optimizer)
        if watched.is_new:
            watched.is_new = False
            self._begin(watched, optimizer)

    def _begin(self, watched: Watched, optimizer: Optimizer) -> None:
        if not self._has_rank:
            self._has_rank = True
            if distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0:
                self._session.muted = True
                return
        watched.begin(optimizer, caller(sys._getframe()))
        self._session.announce(watched)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._session.muted:
            return
        running = self._running
        if id(optimizer) in running:
            del running[running.index(id(optimizer)) :]
        watched = self._all.get(optimizer)
        if watched is not None and watched.monitor is not None and not running:
            self._session.look(watched, sys._getframe())


def _behind(owner: type, name: str, then: Callable[[Any], None]) -> None:
    """Call a function with the object behind one of its methods."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        then(self)

    setattr(owner, name, wrapper)


def observe(session: Session) -> None:
    """Start to observe; torch has been imported."""
    session.has_torch = True
    if not session.muted:
        Observer(session)
        follow(session)
