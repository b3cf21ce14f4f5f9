"""One optimizer of the script: its monitor, the losses that it hears, its verdicts, and its curves."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
from torch.optim import Optimizer

from surefoot.monitor import Dead, History, StabilityMonitor, State, Verdict
from surefoot.optim import Losses, ModelBased
from surefoot.watch._chart import Curve
from surefoot.watch._horizon import Planned
from surefoot.watch._loops import outwards, variables

SAMPLE = 1 << 18
"""Elements of the parameters that a monitor looks at, at most; four vectors of them are there at once."""
ROW = 2 * 8 * 16
"""Bytes that are kept of a step: the numbers of the monitor, in an array that doubles when it is full."""
_LOST = 3
"""Steps in a row whose loss is not finite, after which there is no way back."""
_DEAD = Dead()
_SAID = ("height", "maximize")
"""What a verdict asks one of our optimizers for, beside its groups."""
CURVES = ("batch loss", "learning rate", "gradient norm")
"""What is drawn of an optimizer."""


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
        self.curves = dict.fromkeys(CURVES, Curve.of(np.empty(0)))
        """Loss, rate and gradient norm over the steps, as they were at the last look."""
        self.deaf: str | None = None
        """Why the last loss that was missing could not be heard."""
        self.monitor: StabilityMonitor | None = None
        self._asked = 0
        self._losses = None if isinstance(optimizer, ModelBased) else Losses(optimizer, listen=True)
        self._stand_in = StandIn(optimizer)

    # -- at a step ----------------------------------------------------------------------------------------------------

    def begin(self, optimizer: Optimizer, frame: FrameType | None) -> None:
        """Attach a monitor at the first step, when the optimizer has all its parameters."""
        params = [p for group in optimizer.param_groups for p in group["params"]]
        self.parameters = sum(p.numel() for p in params)
        name = _name_of(optimizer, frame)
        self.name = self.kind if name is None else f"{name} ({self.kind})"
        self._stand_in.remember()
        if any(group.get("lr") is None for group in optimizer.param_groups):
            self.trouble = "it has no learning rate of its own"
            return
        # A norm over shards takes all ranks, and the others are not watched: the sample is local.
        sharded = any(hasattr(p, "device_mesh") for p in params)  # DTensors
        self.monitor = StabilityMonitor(
            cast(Optimizer, self._stand_in),
            track=("loss", "step") if sharded else ("loss", "grad_sq", "step"),
            models=(),
            process_group=None,
        )
        self.monitor.losses = self._losses
        optimizer.register_step_pre_hook(torch.compiler.disable(self._before))  # type: ignore[no-untyped-call]
        optimizer.register_step_post_hook(torch.compiler.disable(self._after))  # type: ignore[no-untyped-call]

    @property
    def memory(self) -> float:
        """Bytes that watching takes, about."""
        return 4 * 8 * min(self.parameters, SAMPLE) + ROW * self.steps

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Let the monitor look before the step; whatever fails, the step does not."""
        if self.monitor is None or self.trouble is not None:
            return None
        if self._losses is not None and self._losses.pending is None:
            self.deaf = self._losses.doubt or "no backward() of a loss was heard before the step"
        try:
            return self.monitor.before_step(optimizer, args, kwargs)
        except Exception as error:
            self._give_up(error)
        return None

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Let the monitor look behind the step."""
        if self.monitor is not None and self.trouble is None:
            try:
                self.monitor.after_step(optimizer, args, kwargs)
            except Exception as error:
                self._give_up(error)
        self.steps += 1

    def _give_up(self, error: Exception) -> None:
        self.trouble = f"{type(error).__name__}: {error}"

    # -- between steps ------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[str]:
        """The steps that were not asked for yet, as rows of the trace."""
        if self.monitor is None:
            return
        numbers = self.monitor.numbers()
        columns = [numbers["loss"], numbers["rate"], np.sqrt(numbers["grad_sq"])]
        since = self.curves["batch loss"].count
        self.curves = {title: Curve.of(values) for title, values in zip(CURVES, columns, strict=True)}
        name = f'"{self.name}"' if "," in self.name else self.name
        fresh = zip(*(values[since:].tolist() for values in columns), strict=True)
        for step, cells in enumerate(fresh, since):
            yield ",".join([name, str(step), *("" if cell != cell else repr(cell) for cell in cells)])

    def ask(self, frame: FrameType | None) -> Verdict | None:
        """Ask for the verdict; returned if it is known and another one than before."""
        if self.monitor is None:
            return None
        if frame is not None:
            self.planned.look(self.steps, frame)
        self._stand_in.remember()
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
        """Take what is left of an optimizer that is gone, as rows of the trace, and let go of the monitor."""
        yield from self.rows()
        self.ask(None)
        self.monitor = self._losses = None

    @property
    def is_heard(self) -> bool:
        """Whether any loss is known."""
        curve = self.curves["batch loss"]
        return bool(curve.bad) or bool(np.isfinite(curve.rows[:, 2]).any())

    def _judged(self, verdict: Verdict) -> Verdict:
        """The verdict, which a dead network overrules; takes note whether going on is any use."""
        assert self.monitor is not None
        numbers = self.monitor.numbers()
        loss, squares = numbers["loss"], numbers["grad_sq"]
        since, self._asked = min(self._asked, len(loss) - 1), len(loss)
        if len(loss) >= _LOST and np.isinf(loss[-_LOST:]).all():
            self.hopeless = f"the loss has not been finite for {_LOST} steps and more"
            return verdict
        if len(loss) >= 3 * _DEAD.window:
            since = max(since, 2 * _DEAD.window - 1)  # windows that reach back into the start do not count
            dead = _DEAD.first(History(loss, squares, np.zeros(len(loss)), np.ones(len(loss)), since=since))
            if dead is not None:
                self.hopeless = dead.reason
                span = verdict.lr_range if verdict.state is State.TOO_LARGE else None
                return replace(verdict, state=State.TOO_LARGE, reason=dead.reason, lr_range=span, more_steps=0)
        finite = loss[np.isfinite(loss)]
        if verdict.state is State.TOO_LARGE and len(finite):
            first, now = float(finite[:5].mean()), float(finite[-20:].mean())
            rise = 0.0 if self.planned.known is not None else 0.5 * abs(first)
            if now > first + rise:
                self.hopeless = f"the rate is too large, and the loss has gone from {first:.3g} to {now:.3g}"
        return verdict


def _name_of(optimizer: Optimizer, frame: FrameType | None) -> str | None:
    """What the script calls its optimizer, a variable or an attribute of ``self``; the outermost name says most."""
    outermost: str | None = None
    for outer in outwards(frame):
        if outer.f_globals.get("__name__", "").partition(".")[0] in ("torch", "surefoot", "accelerate", "lightning"):
            continue
        local = variables(outer)
        owner = local.get("self")
        attributes = vars(owner) if hasattr(owner, "__dict__") else {}
        names = [name for name, value in local.items() if _is_it(value, optimizer)]
        names += [f"self.{name}" for name, value in attributes.items() if value is optimizer]
        outermost = names[0] if names else outermost
    return outermost


def _is_it(value: Any, optimizer: Optimizer) -> bool:
    """Whether a variable is the optimizer, or Accelerate's wrapper of it."""
    return isinstance(value, Optimizer) and (value is optimizer or getattr(value, "optimizer", None) is optimizer)


class StandIn:
    """Looks like an optimizer to its monitor, and holds it weakly: watching keeps no model alive.

    When the optimizer is gone, its class and its settings are still there, so that a verdict can be asked for.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._kind = type(optimizer)
        self._settings: list[dict[str, Any]] = []
        self._said: dict[str, Any] = {}

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._kind

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups; once it is gone, those that were remembered, without their parameters."""
        optimizer = self._optimizer()
        return self._settings if optimizer is None else optimizer.param_groups

    def remember(self) -> None:
        """Take note of the settings as they are now."""
        self._settings = [{**group, "params": []} for group in self.param_groups]
        optimizer = self._optimizer()
        if optimizer is not None:
            self._said = {name: getattr(optimizer, name) for name in _SAID if hasattr(optimizer, name)}

    def __getattr__(self, name: str) -> Any:
        optimizer = self._optimizer()
        if optimizer is not None:
            return getattr(optimizer, name)
        if name in self._said:
            return self._said[name]
        raise AttributeError(f"{self._kind.__name__} is gone, and its {name!r} with it")
