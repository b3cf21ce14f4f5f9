"""One optimizer of the script: its monitor, the losses that it hears, its verdicts, and its curves."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.monitor import Dead, History, StabilityMonitor, State, Verdict
from surefoot.optim import Losses, ModelBased
from surefoot.watch._chart import Curve, Floats
from surefoot.watch._frames import outwards, variables
from surefoot.watch._horizon import Planned

Hook = Callable[[Optimizer, Any, Any], Any]
SAMPLE = 1 << 18
"""Elements of the parameters that a monitor looks at, at most; four vectors of them are there at once."""
ROW = 2 * 8 * 16
"""Bytes that are kept of a step: the numbers of the monitor, in an array that doubles when it is full."""
_LOST = 3
"""Steps in a row whose loss is not finite, after which there is no way back."""
_DEAD = Dead()


class Watched:
    """What is known of one optimizer; it holds the optimizer weakly, and outlives it."""

    def __init__(self, optimizer: Optimizer, horizon: int | None, frame: FrameType | None = None) -> None:
        self.kind = type(optimizer).__name__
        self.name = self.kind
        self.planned = Planned(horizon, frame)
        self.is_new = True
        """Whether it has not made a step yet."""
        self.is_over = False
        self.steps = 0
        self.parameters = 0
        self.verdict: Verdict | None = None
        self.changes: list[tuple[int, Verdict]] = []
        """The verdicts that were new, with the steps at which they came."""
        self.trouble: str | None = None
        """Why it is not, or no longer, watched."""
        self.hopeless: str | None = None
        """Why going on is no use."""
        self.next_ask = 2
        """The step at which to look again."""
        self.loss, self.lr, self.grad_norm = Curve(), Curve(), Curve()
        self.deaf: str | None = None
        """Why the last loss that was missing could not be heard."""
        self._start: list[Floats] = []
        self._recent = np.empty((0, 2))
        self._ours = isinstance(optimizer, ModelBased)
        self._losses = None if self._ours else Losses(optimizer, listen=True)
        self._earlier: tuple[Tensor | None, int] = (None, 0)
        self._stage: Stage | None = None
        self.monitor: StabilityMonitor | None = None

    # -- at a step ----------------------------------------------------------------------------------------------------

    def begin(self, optimizer: Optimizer, frame: FrameType | None) -> None:
        """Attach a monitor: at the first step, when the optimizer has all its parameters."""
        params = [p for group in optimizer.param_groups for p in group["params"]]
        self.parameters = sum(p.numel() for p in params)
        found = _name_of(optimizer, frame)
        self.name = self.kind if found is None else f"{found} ({self.kind})"
        if any(group.get("lr") is None for group in optimizer.param_groups):
            self.trouble = "it has no learning rate of its own"
            return
        # A norm over shards takes all ranks, and the others are not watched: the sample is local.
        sharded = any(hasattr(p, "device_mesh") for p in params)  # DTensors
        self._stage = Stage(optimizer, self._guarded, self._guarded_after)
        self.monitor = StabilityMonitor(
            cast(Optimizer, self._stage),
            track=("loss", "step") if sharded else ("loss", "grad_sq", "step"),
            models=(),
            process_group=None,
        )
        self.monitor.attach()

    @property
    def memory(self) -> float:
        """Bytes that watching takes, about."""
        return 4 * 8 * min(self.parameters, SAMPLE) + ROW * self.steps

    def _guarded(self, hook: Hook) -> Hook:
        """A hook before the step that never fails."""

        def before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
            if self.trouble is not None:
                return None
            if self._losses is not None:
                self._earlier = self._losses.heard, self._losses.era
            try:
                return hook(optimizer, args, kwargs)
            except Exception as error:
                self._give_up(error)
            return None

        return torch.compiler.disable(before)  # type: ignore[no-untyped-call, no-any-return]

    def _guarded_after(self, hook: Hook) -> Hook:
        """A hook behind the step that never fails, and tells the monitor first what was heard."""

        def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if self.trouble is None:
                try:
                    self._tell(optimizer, args, kwargs)
                    hook(optimizer, args, kwargs)
                except Exception as error:
                    self._give_up(error)
            if self._losses is not None:
                self._losses.forget()
            self.steps += 1

        return torch.compiler.disable(after)  # type: ignore[no-untyped-call, no-any-return]

    def _tell(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Hand over what was heard; a closure says it itself, unless gradients of earlier passes were kept."""
        losses, monitor = self._losses, self.monitor
        if losses is None or monitor is None:
            return
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        heard, era = self._earlier
        if callable(closure) and (heard is None or losses.era != era):
            return
        loss = losses.pending
        if loss is None:
            self.deaf = losses.doubt or "no backward() of a loss was heard before the step"
            return
        scale = getattr(optimizer, "grad_scale", None)  # of a GradScaler that leaves the division to a fused step
        monitor.record(loss if scale is None else loss / scale)

    def _give_up(self, error: Exception) -> None:
        self.trouble = f"{type(error).__name__}: {error}"

    # -- between steps ------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[str]:
        """The steps that were not asked for yet, as rows of the trace."""
        if self.monitor is None:
            return
        since = self.loss.count
        numbers = self.monitor.numbers(since)
        loss, lr = numbers["loss"], numbers["rate"]
        norm = np.sqrt(numbers["grad_sq"])
        for curve, values in ((self.loss, loss), (self.lr, lr), (self.grad_norm, norm)):
            curve.add(values)
        pair = np.column_stack([loss, numbers["grad_sq"]])
        if since < _DEAD.window:
            self._start.append(pair[: _DEAD.window - since])
        self._recent = np.concatenate([self._recent, pair])[-max(len(pair), 4 * _DEAD.window) :]
        name = f'"{self.name}"' if "," in self.name else self.name
        for step, cells in enumerate(zip(loss.tolist(), lr.tolist(), norm.tolist(), strict=True), since):
            yield ",".join([name, str(step), *("" if cell != cell else repr(cell) for cell in cells)])

    def ask(self, frame: FrameType | None) -> Verdict | None:
        """Ask for the verdict; returned if it is known and another one than before."""
        if self.monitor is None or self._stage is None:
            return None
        if frame is not None:
            self.planned.look(self.steps, frame)
        self._stage.remember()
        known = self.planned.known
        self.monitor.horizon = None if known is None else known.steps
        before = self.verdict
        try:
            self.verdict = verdict = self._judged(self.monitor.verdict())
        except Exception as error:
            self._give_up(error)
            return None
        pause = verdict.more_steps or max(self.steps // 4, 1)
        self.next_ask = self.steps + (1 if known is None and self.steps < 5 else pause)
        if verdict.state is State.UNKNOWN or (before is not None and before.state is verdict.state):
            return None
        self.changes.append((self.steps, verdict))
        return verdict

    def conclude(self) -> None:
        """Ask for the last time; a run that was broken off is judged by what there is of it."""
        self.is_over = True
        if self.verdict is not None and self.verdict.more_steps and self.monitor is not None:
            self.planned.known = None
            self.ask(None)

    def lost(self) -> Iterator[str]:
        """The optimizer is gone: take what there is, and let go of the monitor."""
        yield from self.rows()
        self.ask(None)
        self.monitor = self._losses = None

    @property
    def is_heard(self) -> bool:
        """Whether any loss is known."""
        return bool(self.loss.bad) or bool(np.isfinite(self.loss.drawn()[:, 2]).any())

    def _judged(self, verdict: Verdict) -> Verdict:
        """The verdict, in which a dead network has the last word; and whether going on is any use."""
        loss = self._recent[:, 0]
        if len(loss) >= _LOST and np.isinf(loss[-_LOST:]).all():
            self.hopeless = f"the loss has not been finite for {_LOST} steps and more"
            return verdict
        dead = self._dead()
        if dead is not None:
            self.hopeless = dead
            span = verdict.lr_range if verdict.state is State.TOO_LARGE else None
            return replace(verdict, state=State.TOO_LARGE, reason=dead, lr_range=span, more_steps=0)
        start = np.concatenate(self._start)[:, 0] if self._start else np.empty(0)
        start, late = start[np.isfinite(start)][:5], loss[np.isfinite(loss)][-20:]
        if verdict.state is State.TOO_LARGE and len(start) and len(late):
            first, now = float(start.mean()), float(late.mean())
            rise = 0.0 if self.planned.known is not None else 0.5 * abs(first)
            if now > first + rise:
                self.hopeless = f"the rate is too large, and the loss has gone from {first:.3g} to {now:.3g}"
        return verdict

    def _dead(self) -> str | None:
        """Whether the gradients have vanished while the loss is still high, in what was seen lately."""
        if not self._start or self.loss.count < 3 * _DEAD.window:
            return None
        start, recent = np.concatenate(self._start), self._recent
        both = np.concatenate([start, recent])
        since = len(start) + _DEAD.window - 1  # windows that reach back into the start do not count
        history = History(both[:, 0], both[:, 1], np.zeros(len(both)), np.ones(len(both)), since=since)
        stop = _DEAD.first(history)
        return None if stop is None else stop.reason


def _name_of(optimizer: Optimizer, frame: FrameType | None) -> str | None:
    """What the script calls its optimizer, a variable or an attribute of ``self``; the outermost name says most."""
    found: str | None = None
    for outer in outwards(frame):
        if outer.f_globals.get("__name__", "").partition(".")[0] in ("torch", "surefoot", "accelerate", "lightning"):
            continue
        held = variables(outer)
        owner = held.get("self")
        inside = vars(owner) if hasattr(owner, "__dict__") else {}
        names = [name for name, value in held.items() if _is_it(value, optimizer)]
        names += [f"self.{name}" for name, value in inside.items() if value is optimizer]
        found = names[0] if names else found
    return found


def _is_it(value: Any, optimizer: Optimizer) -> bool:
    """Whether a variable is the optimizer, or Accelerate's wrapper of it."""
    return isinstance(value, Optimizer) and (value is optimizer or getattr(value, "optimizer", None) is optimizer)


class Stage:
    """A stand-in for an optimizer, for a monitor that must not keep it alive and must not fail in its step.

    It looks like the optimizer to the monitor, holds it weakly, and lets hooks be wrapped on their way to it.
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
