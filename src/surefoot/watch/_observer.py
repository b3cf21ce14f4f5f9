"""The doors through which optimizers, steps and schedulers of any script are seen."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as distributed
import torch.multiprocessing
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from surefoot.watch._frames import caller
from surefoot.watch._script import Script
from surefoot.watch._session import Session, Settings
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
        self._has_rank = self._has_hooks = False
        _behind(Optimizer, "__init__", self._built)
        for kind in (lr_scheduler.LRScheduler, lr_scheduler.SequentialLR, lr_scheduler.ChainedScheduler):
            _behind(kind, "__init__", self._scheduled)

    def _built(self, optimizer: Optimizer) -> None:
        if self._session.muted:
            return
        with self._session.careful():
            if optimizer in self._all:
                return
            if not self._has_hooks:
                self._has_hooks = True
                # A compiled step breaks its graph for them; this imports the compiler, which torch has done for the
                # first optimizer anyway.
                register_optimizer_step_pre_hook(torch.compiler.disable(self._before_step))  # type: ignore[no-untyped-call]
                register_optimizer_step_post_hook(torch.compiler.disable(self._after_step))  # type: ignore[no-untyped-call]
            self._add(optimizer, caller(sys._getframe()))

    def _add(self, optimizer: Optimizer, frame: FrameType | None = None) -> Watched:
        self._session.built.append(type(optimizer).__name__)
        watched = Watched(optimizer, self._session.settings.horizon, frame)
        self._all[optimizer] = watched
        weakref.finalize(optimizer, self._session.keep, watched).atexit = False
        return watched

    def _scheduled(self, scheduler: Any) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        with self._session.careful():
            watched = self._all.get(optimizer) if isinstance(optimizer, Optimizer) else None
            if watched is not None:
                watched.planned.add(scheduler)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._session.muted:
            return
        with self._session.careful():
            # One that is not known is a copy, or was unpickled: it was never built.
            watched = self._all.get(optimizer) or self._add(optimizer)
            if watched.is_new and not _is_nested():
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
        watched = self._all.get(optimizer)
        if watched is not None and watched.monitor is not None:
            with self._session.careful():
                self._session.look(watched, sys._getframe())


def _is_nested() -> bool:
    """Whether the step that is being made is part of another optimizer's step."""
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None:
        depth += frame.f_code in _STEPS
        frame = frame.f_back
    return depth > 1


def _behind(owner: type, name: str, then: Callable[[Any], None]) -> None:
    """Call a function with the object behind one of its methods."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        then(self)

    setattr(owner, name, wrapper)


class FirstRank:
    """What a process runs that the script starts with ``torch.multiprocessing``: the same, watched in the first one."""

    def __init__(self, function: Callable[..., Any], script: Script, settings: Settings) -> None:
        self.function, self.script, self.settings = function, script, settings

    def __call__(self, rank: int, *args: Any) -> Any:
        """Run the function of a rank."""
        if rank != 0:
            return self.function(rank, *args)
        session = Session(self.script, self.settings)
        observe(session)
        try:
            return self.function(rank, *args)
        except BaseException as error:
            session.ended(error)
            raise
        finally:
            session.finish()  # such a process runs no exit handlers


def follow(session: Session) -> None:
    """Watch the first of the processes that the script starts."""

    def wrapped(start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def started(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if session.muted or isinstance(fn, FirstRank):
                return start(fn, *args, **kwargs)
            session.has_followed = True
            settings = replace(session.settings, out=session.folder.take())
            return start(FirstRank(fn, session.script, settings), *args, **kwargs)

        return started

    module = sys.modules["torch.multiprocessing.spawn"]  # the package has a function of this name
    module.start_processes = wrapped(module.start_processes)  # type: ignore[attr-defined]
    torch.multiprocessing.start_processes = wrapped(torch.multiprocessing.start_processes)  # type: ignore[attr-defined]


def observe(session: Session) -> None:
    """Start to observe; torch has been imported."""
    session.has_torch = True
    if not session.muted:
        Observer(session)
        follow(session)
