"""One optimizer of the script: its monitor, its numbers and its verdicts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from surefoot._base.text import visible
from surefoot.monitor import Dead, StabilityMonitor, State, Verdict
from surefoot.optim import Losses, LossOptimizer
from surefoot.plots import short
from surefoot.watch._horizon import Planned

FIRST_JUDGEMENT = 50
"""Steps after which a run of unknown length is judged, and again at twice as many, and so on."""
_LOST = 3
"""Steps in a row whose loss is not finite, after which there is no way back."""
CURVES = ("batch loss", "learning rate", "gradient norm")
"""What is drawn of an optimizer."""


class Watched:
    """What is known of one optimizer; it refers to the optimizer weakly, and outlives it."""

    def __init__(self, optimizer: Optimizer, horizon: int | None) -> None:
        self.name = visible(type(optimizer).__name__).replace("\n", "\\n")
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
        self.curves = dict.fromkeys(CURVES, np.empty(0))
        """Loss, rate and gradient norm of every step that is in the trace."""
        self.missing = "no step was measured"
        """Why the last loss that is missing is not known."""
        self.monitor: StabilityMonitor | None = None
        self._next_judgement = FIRST_JUDGEMENT
        self._losses = None if isinstance(optimizer, LossOptimizer) else Losses(optimizer, listen=True)

    def listen(self) -> None:
        """Receive the losses of parameters that are new, from their first backward pass on."""
        if self._losses is not None:
            self._losses.attach()

    # -- at a step ----------------------------------------------------------------------------------------------------

    def begin(self, optimizer: Optimizer) -> None:
        """Attach a monitor at the first step, when the optimizer has its parameters."""
        self.parameters = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
        if any(group.get("lr") is None for group in optimizer.param_groups):
            self.trouble = "it has no learning rate of its own"
            return
        self.monitor = StabilityMonitor(optimizer, models=(), stop=Dead(), process_group=None, listen=False)
        self.monitor.losses = self._losses
        optimizer.register_step_pre_hook(self._guarded(self._before))
        optimizer.register_step_post_hook(self._guarded(self._after))

    def _guarded(self, hook: Callable[[StabilityMonitor, Optimizer, Any, Any], Any]) -> Callable[..., Any]:
        """A hook of a step that looks while the monitor can; whatever fails in it, the step does not."""

        def guarded(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
            if self.monitor is not None and self.trouble is None:
                try:
                    return hook(self.monitor, optimizer, args, kwargs)
                except Exception as error:
                    self._give_up(error)
            return None

        return torch.compiler.disable(guarded)  # type: ignore[no-untyped-call, no-any-return]

    def _before(self, monitor: StabilityMonitor, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if self._losses is not None and self._losses.pending is None:
            self.missing = self._losses.doubt or "there was no backward() of a loss before the step"
        return monitor.before_step(optimizer, args, kwargs)

    def _after(self, monitor: StabilityMonitor, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.steps += 1
        monitor.after_step(optimizer, args, kwargs)

    def _give_up(self, error: Exception) -> None:
        self.trouble = f"{type(error).__name__}: {error}"

    # -- between steps ------------------------------------------------------------------------------------------------

    def rows(self) -> str:
        """The steps that are not in the trace yet, as rows of it."""
        if self.monitor is None:
            return ""
        numbers = self.monitor.numbers()
        columns = [numbers["loss"].copy(), numbers["rate"].copy(), np.sqrt(numbers["grad_sq"])]
        since = len(self.curves["batch loss"])
        self.curves = dict(zip(CURVES, columns, strict=True))
        fresh = zip(*(values[since:].tolist() for values in columns), strict=True)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            [self.name, step, *("" if cell != cell else cell for cell in cells)]
            for step, cells in enumerate(fresh, since)
        )
        return text.getvalue()

    @np.errstate(all="ignore")
    def ask(self, frame: FrameType | None) -> Verdict | None:
        """Ask for the verdict; returned if it is known and another one than before."""
        if self.monitor is None or self.trouble is not None:
            return None
        if frame is not None:
            self.planned.look(self.steps, frame)
        known, numbers = self.planned.known, self.monitor.numbers()
        loss = numbers["loss"]
        if not (numbers["rate"] >= 0).all():
            self.trouble = "its learning rate was below 0 or NaN"
            return None
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
        except Exception as error:
            self._give_up(error)
            return None
        self.hopeless = self._why_hopeless(self.monitor, verdict, loss) or self.hopeless
        if verdict.more_steps:
            self.next_ask = self.steps + verdict.more_steps
        if verdict.state is (State.UNKNOWN if before is None else before.state) or verdict.more_steps:
            return None
        self.changes.append((self.steps, verdict))
        return verdict

    def conclude(self, *, is_complete: bool = True) -> str:
        """Judge for the last time, and let go of the monitor: the optimizer is gone, or the script is over.

        Args:
            is_complete: Whether it has made all its steps; else it is judged by what there is of it.

        Returns:
            What is left to write to the trace.
        """
        rows = self.rows()
        self.is_over = True
        if is_complete:
            self.planned.settle(self.steps)
        self.ask(None)
        if self.verdict is not None and self.verdict.more_steps:
            self.planned.known = None
            self.ask(None)
        self.monitor = self._losses = None
        return rows

    @property
    def summary(self) -> str:
        """What there is to say about it now."""
        if self.trouble is not None:
            return f"It could not be judged: {self.trouble}"
        if self.steps and np.isnan(self.curves["batch loss"]).all():
            return f"It could not be judged, because its loss is not known: {self.missing}"
        if self.verdict is None:
            return "It was not judged" if self.is_over else "Not judged yet"
        if self.is_over and self.verdict.state == "unknown":
            return f"Unknown: {self.verdict.reason}."
        return str(self.verdict)

    def _why_hopeless(self, monitor: StabilityMonitor, verdict: Verdict, loss: Any) -> str | None:
        """Why going on is no use; None while it may be."""
        if len(loss) >= _LOST and np.isinf(loss[-_LOST:]).all():
            return f"the loss has not been finite for {_LOST} steps and more"
        if monitor.stopped is not None:
            return monitor.stopped.reason
        finite = loss[np.isfinite(loss)]
        if verdict.state is State.TOO_LARGE and len(finite):
            first, now = float(finite[:5].mean()), float(finite[-20:].mean())
            if now > first + (0.0 if self.planned.known is not None else 0.5 * abs(first)):
                return f"the rate is too large, and the loss has gone from {short(first)} to {short(now)}"
        return None
