"""One optimizer of the script: its monitor, its verdicts, and its curves."""

from __future__ import annotations

import csv
import io
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from surefoot._base.text import visible
from surefoot.monitor import Dead, StabilityMonitor, State, Verdict
from surefoot.optim import Losses, LossOptimizer
from surefoot.plots import short
from surefoot.watch._chart import Curve
from surefoot.watch._frames import outwards, package, variables
from surefoot.watch._horizon import Planned

SAMPLE = 1 << 18
"""Elements of the parameters that a monitor measures, at most; it keeps four vectors of them."""
ROW = 2 * 8 * 13
"""Bytes that are kept per step: the numbers of the monitor, in an array that doubles when it is full."""
FIRST_JUDGEMENT = 50
"""Steps after which a run of unknown length is judged, and again at twice as many, and so on."""
_LOST = 3
"""Steps in a row whose loss is not finite, after which there is no way back."""
CURVES = ("batch loss", "learning rate", "gradient norm")
"""What is drawn of an optimizer."""


class Watched:
    """What is known of one optimizer; it holds the optimizer weakly, and outlives it."""

    def __init__(self, optimizer: Optimizer, horizon: int | None) -> None:
        self.kind = visible(type(optimizer).__name__)
        self.name = self.kind
        self.planned = Planned(horizon)
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
        """Loss, rate and gradient norm over the steps, as they were when last asked for."""
        self.missing: str | None = None
        """Why the last loss that is missing is not known."""
        self.monitor: StabilityMonitor | None = None
        self._next_judgement = FIRST_JUDGEMENT
        self._losses = None if isinstance(optimizer, LossOptimizer) else Losses(optimizer, listen=True)

    # -- at a step ----------------------------------------------------------------------------------------------------

    def begin(self, optimizer: Optimizer, frame: FrameType | None) -> None:
        """Attach a monitor at the first step, when the optimizer has all its parameters."""
        self.parameters = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
        name = _name_of(optimizer, frame)
        self.name = self.kind if name is None else f"{name} ({self.kind})"
        if any(group.get("lr") is None for group in optimizer.param_groups):
            self.trouble = "it has no learning rate of its own"
            return
        self.monitor = StabilityMonitor(optimizer, models=(), stop=Dead(), process_group=None, listen=False)
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
            self.missing = self._losses.doubt or "there was no backward() of a loss before the step"
        try:
            return self.monitor.before_step(optimizer, args, kwargs)
        except Exception as error:
            self._give_up(error)
        return None

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Let the monitor look after the step."""
        if self.monitor is not None and self.trouble is None:
            try:
                self.monitor.after_step(optimizer, args, kwargs)
            except Exception as error:
                self._give_up(error)
        self.steps += 1

    def _give_up(self, error: Exception) -> None:
        self.trouble = f"{type(error).__name__}: {error}"

    # -- between steps ------------------------------------------------------------------------------------------------

    def rows(self) -> str:
        """The steps that were not asked for yet, as rows of the trace."""
        if self.monitor is None:
            return ""
        numbers = self.monitor.numbers()
        columns = [numbers["loss"], numbers["rate"], np.sqrt(numbers["grad_sq"])]
        since = self.curves["batch loss"].count
        self.curves = {title: Curve.of(values) for title, values in zip(CURVES, columns, strict=True)}
        text = io.StringIO()
        fresh = zip(*(values[since:].tolist() for values in columns), strict=True)
        csv.writer(text, lineterminator="\n").writerows(
            [self.name, step, *("" if cell != cell else cell for cell in cells)]
            for step, cells in enumerate(fresh, since)
        )
        return text.getvalue()

    def ask(self, frame: FrameType | None) -> Verdict | None:
        """Ask for the verdict; returned if it is known and another one than before."""
        if self.monitor is None or self.trouble is not None:
            return None
        if frame is not None:
            self.planned.look(self.steps, frame)
        known, loss = self.planned.known, self.monitor.numbers()["loss"]
        self.next_ask = self.steps + (1 if known is None and self.steps < 5 else max(self.steps // 4, 1))
        if known is None and not self.is_over:  # a run of unknown length: it is judged now and then
            self.next_ask = min(self.next_ask, self._next_judgement)
            if self.steps < self._next_judgement and not np.isinf(loss).any():
                return None
            while self._next_judgement <= self.steps:
                self._next_judgement *= 2
        self.monitor.horizon = None if known is None else known.steps
        before = self.verdict
        try:
            self.verdict = verdict = self.monitor.verdict()
            self.hopeless = self._why_hopeless(verdict) or self.hopeless
        except Exception as error:
            self._give_up(error)
            return None
        if verdict.more_steps:
            self.next_ask = self.steps + verdict.more_steps
        if verdict.state is (State.UNKNOWN if before is None else before.state) or verdict.more_steps:
            return None
        self.changes.append((self.steps, verdict))
        return verdict

    def conclude(self) -> None:
        """Ask for the last time; a run that was broken off is judged by what there is of it."""
        self.is_over = True
        self.ask(None)
        if self.verdict is not None and self.verdict.more_steps:
            self.planned.known = None
            self.ask(None)

    def lost(self) -> str:
        """Take what is left of an optimizer that is gone, as rows of the trace, and let go of the monitor."""
        rows = self.rows()
        self.is_over = True
        self.planned.settle(self.steps)
        self.ask(None)
        self.monitor = self._losses = None
        return rows

    @property
    def has_losses(self) -> bool:
        """Whether any loss is known."""
        curve = self.curves["batch loss"]
        return bool(curve.bad) or bool(np.isfinite(curve.rows[:, 2]).any())

    def _why_hopeless(self, verdict: Verdict) -> str | None:
        """Why going on is no use; None while it may be."""
        assert self.monitor is not None
        loss = self.monitor.numbers()["loss"]
        if len(loss) >= _LOST and np.isinf(loss[-_LOST:]).all():
            return f"the loss has not been finite for {_LOST} steps and more"
        if self.monitor.stopped is not None:
            return self.monitor.stopped.reason
        finite = loss[np.isfinite(loss)]
        if verdict.state is State.TOO_LARGE and len(finite):
            first, now = float(finite[:5].mean()), float(finite[-20:].mean())
            if now > first + (0.0 if self.planned.known is not None else 0.5 * abs(first)):
                return f"the rate is too large, and the loss has gone from {short(first)} to {short(now)}"
        return None


def _name_of(optimizer: Optimizer, frame: FrameType | None) -> str | None:
    """What the script calls its optimizer, a variable or an attribute of ``self``; the outermost name says most."""
    outermost: str | None = None
    for outer in outwards(frame):
        if package(outer) in ("torch", "surefoot", "accelerate", "lightning"):
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
