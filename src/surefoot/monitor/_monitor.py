"""The monitor: watches a torch optimizer through its step hooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.optim import Optimizer

from surefoot._base import checks
from surefoot.monitor import _optimizers
from surefoot.monitor._columns import (
    COLUMNS,
    SAMPLED,
    SOURCES,
    build_trace,
    named,
    own_index,
    peak_rate,
    planned_rates,
    tracked,
)
from surefoot.monitor._counterfactual import parse_models
from surefoot.monitor._judge import judge
from surefoot.monitor._ring import Ring
from surefoot.monitor._sample import Copies, StepSample
from surefoot.monitor._verdict import State, Verdict
from surefoot.optim import Host, Losses, ModelBased, scalar
from surefoot.rules import Floats, History, Stop, StopRule, check_rules, first_stop
from surefoot.theory import schedules
from surefoot.theory.bounds import Bound
from surefoot.theory.models import Model

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


class StabilityMonitor:
    r"""Watches any torch optimizer, and says whether its learning rate is too small, holds, or is too large.

    Of every step it keeps the loss f, ‖g‖², the rate α, and, on a sample of at most 2¹⁸ parameters, the step Δ that was
    taken: ⟨g, Δ⟩, ‖Δ‖², ⟨g⁺, Δ⟩ with the gradient of the *next* batch, which is negative where the step was too long,
    and the slope ⟨g, x_t − x_1⟩ of the whole way. :meth:`verdict` follows from these after a tenth of the horizon, for
    SGD, momentum, Adam, Muon and ours alike.

    From f, ‖g‖² and α follow the *counterfactual* steps: the size and index δ that SGD, SPS, NGN or LogNGN
    would have had at the same point (:mod:`surefoot.theory.models`), and the noise that the run has added so far to the
    bound of its last iterate, Ω = D²/(2 S_1) + Σ w_t δ_t (Theorem 3.4, telescoped).

    The monitor only reads: it works through torch's step hooks, changes nothing about a step, and reads numbers of a
    device in blocks, so that nobody waits for it. The loss is heard from ``loss.backward()``, as our own optimizers
    hear it; it can also come from the closure, from ``step(loss=…)`` or ``add_loss`` of ours, or from :meth:`record`,
    which wins.

    The index of the optimizer itself is its model's for ours, and exact for ``torch.optim.SGD`` without momentum and
    weight decay. For every other one track ``"interval"``: the step that was taken then gives an interval around
    ½⟨g, x_t − x_{t+1}⟩, which is a heuristic where no convex model stands behind the step (momentum, Adam); without it
    the index of plain SGD at the same rate stands in. ``trace().attrs["delta_source"]`` says which it is.

    Args:
        optimizer: Any torch optimizer.
        horizon: T, the steps of the whole run; by default those done so far for the bound, and ten times as many for
            the verdict.
        distance: D of the bound; without it the bias is left out, and the noise is a lower bound of Ω for every D.
        track: ``"loss"``, ``"grad_sq"`` (at most one pass over the gradients; sharded ones are measured by our
            optimizers only) and ``"step"`` (the sample, for the verdict: four vectors of at most 2¹⁸ numbers, 8 MB); at
            the price of a copy of the parameters and a pass over them each, which must not be sharded: ``"interval"``
            and ``"update_norm"`` (one copy for both), ``"distance"`` ‖x_t − x_1‖ (parameters that are added later count
            from there on).
        models: Counterfactual models, by name (``"sgd"``, ``"sps"``, ``"ngn"``, ``"log-ngn"``, ``"power(p=0.25)"``) or
            from :mod:`surefoot.theory.models`.
        every: Look at every k-th step only.
        stop: Rules such as :class:`NonFinite`; :attr:`stopped` says what they found.
        schedule: T factors of the rate, or a name such as ``"cosine"``, known beforehand, for the weights of the bound
            and the peak rate; by default the present rate is taken to stay, and the partial bound proves something for
            constant rates only.
        lower_bound: C of the models that are given by name.
        flush_every: Steps after which numbers are fetched from the device and rules are asked.
        process_group: The ranks whose losses are averaged, so that all of them stop at the same step; ``"auto"`` is the
            default group if there is one, None never communicates.
        listen: Hear the loss of an optimizer that is not ours from ``loss.backward()``, while attached.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> optimizer = torch.optim.SGD([x], lr=3.0)
    >>> with StabilityMonitor(optimizer, horizon=100) as monitor:
    ...     for _ in range(10):
    ...         optimizer.zero_grad()
    ...         loss = 0.5 * x.square().sum()
    ...         loss.backward()
    ...         optimizer.step()
    >>> print(monitor.verdict())
    Too large: after 10 steps the loss is 8.2e+04 times the first. Try 0.012 to 0.36.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        horizon: int | None = None,
        distance: float | None = None,
        track: Sequence[str] = ("loss", "grad_sq", "step"),
        models: Sequence[str | Model] = ("sgd", "sps", "ngn"),
        every: int = 1,
        *,
        stop: StopRule | Sequence[StopRule] = (),
        schedule: str | ArrayLike | None = None,
        lower_bound: float = 0.0,
        flush_every: int = 16,
        process_group: Any = "auto",
        listen: bool = True,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
        if any(group.get("lr") is None for group in optimizer.param_groups):
            raise ValueError(f"optimizer must have a learning rate 'lr' in every group, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.horizon = None if horizon is None else checks.whole("horizon", horizon, 1)
        self.distance = None if distance is None else checks.number("distance", distance, least=0)
        self.track = tracked(track)
        self.lower_bound = checks.number("lower_bound", lower_bound)
        self.models = parse_models(models, self.lower_bound)
        self.every = checks.whole("every", every, 1)
        self.rules = check_rules(stop)
        self._schedule: Floats | None = None
        if schedule is not None:
            _, self._schedule = schedules.factors(schedule, self.horizon, may_rest=True)
            self.horizon = len(self._schedule)
        flush_every = checks.whole("flush_every", flush_every, 1)
        self.stopped: Stop | None = None
        """What the first stop rule that held has said; the same on all ranks."""
        self.steps = 0
        """Steps seen."""
        self._ops = _optimizers.arithmetic(optimizer)
        device = None if isinstance(self._ops, Host) else self._ops.one.device
        self._ring = Ring(len(COLUMNS), flush_every, device, process_group)
        self.losses: Losses | None = None
        """What hears the losses of an optimizer that is not ours, while it is attached."""
        self._takes_norms = "grad_sq" in self.track and not _optimizers.is_sharded(optimizer)
        self._listens = listen and "loss" in self.track and not _optimizers.knows_index(optimizer)
        self._handles: list[Any] = []
        self._recorded: Tensor | float | None = None
        self._row: dict[str, Any] = {}
        self._carried: dict[str, Any] = {}
        self._is_due = False
        self._copies = Copies(optimizer, self._ops, self.track)
        self._sample = StepSample(optimizer) if "step" in self.track else None

    def attach(self) -> Self:
        """Start watching the optimizer."""
        if not self._handles:
            self.losses = Losses(self.optimizer, listen=True) if self._listens else None
            self._handles = [
                self.optimizer.register_step_pre_hook(self.before_step),
                self.optimizer.register_step_post_hook(self.after_step),
            ]
        return self

    def detach(self) -> None:
        """Stop watching; the optimizer is as it was, and what was seen can still be asked for."""
        for handle in self._handles:
            handle.remove()
        self._handles, self.losses = [], None
        self._copies.forget()
        if self._sample is not None:
            self._sample.forget()

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(self, *_: object) -> None:
        self.detach()

    def record(self, loss: Tensor | float) -> None:
        """Tell the loss of the coming step, where it cannot be heard or another one counts.

        With gradient accumulation call it once a micro batch, with the loss as it was differentiated: the sum counts.
        """
        loss = scalar(loss, copied=True)
        self._recorded = loss if self._recorded is None else self._recorded + loss

    def forget(self) -> None:
        """Drop what was recorded for a step that does not come: call it where you clear the gradients.

        With ``torch.amp.GradScaler``, which leaves out steps that overflow, their losses would else be added to the
        next one's.
        """
        self._recorded = None

    @property
    def should_stop(self) -> bool:
        """Whether a stop rule has held. Rules are asked every ``flush_every`` steps."""
        return self.stopped is not None

    @property
    def delta_source(self) -> str:
        """Where the optimizer's own index comes from: a key of ``SOURCES``."""
        if _optimizers.knows_index(self.optimizer):
            return "model"
        if _optimizers.is_plain_sgd(self.optimizer):
            return "linear"
        return "interval" if "interval" in self.track else "linear stand-in"

    def trace(self) -> xr.Dataset:
        """All steps seen, as an xarray data set over ``step`` (0, every, 2·every, …).

        ``loss``, ``grad_sq``, ``rate``, ``size`` (of the optimizer, where it is known), ``delta`` (of the optimizer),
        ``noise`` (the partial sum of the bound), what else is tracked, and over ``algorithm`` too
        ``counterfactual_size`` and ``counterfactual_delta``. Rates and sizes are those of the first parameter group.
        After divergence numbers are ∞; NaN stands for what was not measured.
        """
        columns = self.numbers()
        history = self._history(columns)
        attributes = {
            "optimizer": type(self.optimizer).__name__,
            "delta_source": self.delta_source,
            "delta_note": SOURCES[self.delta_source],
            "horizon": len(history.rates),
            "bias": history.bias(),
        }
        return build_trace(columns, history, self.models, self.track, attributes)

    def numbers(self) -> dict[str, Floats]:
        """The measured numbers of all steps that were looked at, as plain arrays.

        For whoever follows a run while it is going on: ``loss``, ``grad_sq``, ``rate`` and the other columns of which
        :meth:`trace` is made. ∞ is what is not finite, NaN what was not measured.
        """
        return named(self._ring.all())

    def bound(self) -> Bound:
        """The partial bound Ω of the last iterate: ``bias``, the ``noise`` of the steps so far, and their ``total``.

        With a horizon and rates that are known beforehand it can only grow (as long as every δ ≥ 0), and at step T it
        is the bound itself.
        """
        history = self._history(self.numbers())
        noise = history.partial_noise()
        return Bound(history.bias(), float(noise[-1]) if len(noise) else 0.0)

    def verdict(self) -> Verdict:
        """Too small, holds, at the edge or too large: why, and which rates to try.

        It is known once a tenth of the horizon is done. It looks at what the slopes ⟨g, Δ⟩ of the steps have promised,
        at whether the way from the start leads uphill by now, at how far the parameters have moved, and at the loss;
        ``verdict().details`` has the numbers. A run without a horizon is taken to be ten times as long as it is now.
        """
        if not {"loss", "step"} <= set(self.track):
            return Verdict(State.UNKNOWN, f'a verdict needs "loss" and "step" in track, which is {self.track}')
        obstacle = _optimizers.obstacle(self.optimizer)
        if obstacle is not None:
            return Verdict(State.UNKNOWN, obstacle)
        if not self.steps and not self._handles:
            reason = "the monitor has not been watching; use it in a with statement, or call monitor.attach() first"
            return Verdict(State.UNKNOWN, reason)
        columns, stop = self.numbers(), self.stopped
        return judge(
            {**columns, "size": np.where(np.isnan(columns["size"]), columns["rate"], columns["size"])},
            horizon=self.horizon,
            peak=peak_rate(self._planned(columns), columns["rate"], self.optimizer.param_groups[0]),
            elements=0 if self._sample is None else self._sample.elements,
            every=self.every,
            stop_reason=None if stop is None or "with_bias=True" in stop.rule else stop.reason,
        )

    def plot(self) -> Figure:
        """Draw the run under its verdict: loss, what is left of the slope at the steps' ends, rates and indices."""
        from surefoot.monitor._plot import draw

        return draw(self.trace(), self.numbers(), self.verdict())

    def _repr_html_(self) -> str:
        """The verdict and the figure in a notebook."""
        from surefoot.monitor._plot import html

        return html(self.plot(), self.verdict())

    # -- what happens at a step ---------------------------------------------------------------------------------------

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """The hook before a step, which looks at its point.

        A closure is wrapped, because only it knows loss and gradient.
        """
        self._is_due = self.steps % self.every == 0
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not self._is_due:
            if self._sample is not None and closure is None:  # the first step after one that was looked at
                self._carried |= self._sample.remainder()
            return None
        self._row, self._carried = self._carried, {}
        with torch.no_grad():
            self._row |= {} if self._sample is None else self._sample.before()
            self._row |= self._copies.before()
        if closure is None:
            self._measure_gradient()
            loss = kwargs.get("loss")
            self._row["loss"] = self._pending(optimizer) if loss is None else loss
            return None
        wrapped = self._watched(closure, optimizer)
        return ((args[0], wrapped, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": wrapped})

    def _pending(self, optimizer: Optimizer) -> Tensor | float | None:
        """The loss that belongs to the gradients in place, if it was heard, or told to an optimizer of ours."""
        if isinstance(optimizer, ModelBased):
            return optimizer.pending_loss
        loss = None if self.losses is None else self.losses.pending
        scale = getattr(optimizer, "grad_scale", None)  # of a GradScaler that leaves the division to a fused step
        return loss if loss is None or scale is None else loss / scale

    def _watched(self, closure: Callable[[], Any], optimizer: Optimizer) -> Callable[[], Any]:
        """The closure, whose first call is at x_t; line searches call it again elsewhere."""
        calls = 0
        has_earlier = self._pending(optimizer) is not None  # micro batches, of which the closure does the last one

        def watched() -> Any:
            nonlocal calls
            loss = closure()
            calls += 1
            if calls == 1:
                total = self._pending(optimizer) if has_earlier else None
                self._row["loss"] = loss if total is None else total
                with torch.no_grad():
                    self._measure_gradient()
            else:
                self._row["moved"] = True  # the gradient in place is no longer that of x_t
            return loss

        return watched

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """The hook behind a step, which looks at what was taken, and writes a row."""
        recorded, self._recorded = self._recorded, None
        if self.losses is not None:
            self.losses.forget()
        if not self._is_due:
            self.steps += 1
            return
        row = self._row
        loss = row.get("loss") if recorded is None else recorded
        rates = row.get("rates") or _optimizers.rates(optimizer, self._ops)
        if loss is None and all(not isinstance(rate, Tensor) and rate == 0 for rate in rates):
            return  # somebody creates the state: no step
        self.steps += 1
        values = dict.fromkeys(COLUMNS, math.nan) | {"rate": rates[0]}
        if "loss" in self.track and loss is not None:
            values["loss"] = _optimizers.measured(loss, self._ops)
        if _optimizers.knows_index(optimizer):
            step = optimizer.last_step  # type: ignore[attr-defined]
            values["size"], values["delta"] = step.size.reshape(-1)[0], step.delta
            if "grad_sq" in self.track and "grad_sq" not in row:  # the optimizer has it already: no pass of our own
                row["grad_sq"] = optimizer.last_grad_sq  # type: ignore[attr-defined]
                if _optimizers.knows_square(optimizer):
                    row["decrease"] = rates[0] * row["grad_sq"]
        elif _optimizers.is_plain_sgd(optimizer):
            values["size"] = rates[0]
        if self._sample is not None and "moved" not in row:
            row |= self._sample.after()
        row |= self._copies.after(rates, "moved" not in row)
        for name in ("grad_sq", "decrease", "distance_sq", "update_sq", "inner", "scaled_update_sq", *SAMPLED):
            if name in row:
                values[name] = _optimizers.measured(row[name], self._ops)
        overflow = getattr(optimizer, "found_inf", None)  # of a GradScaler, with which a fused optimizer stays put
        for name in ("grad_sq", "decrease", "inner", "scaled_update_sq", *SAMPLED):
            values[name] = _optimizers.unless(overflow, values[name], self._ops)
        if self._ring.write([values[name] for name in COLUMNS]):
            self._ask_rules()

    def _measure_gradient(self) -> None:
        """Write the norm of the gradient, and products of its sample, to the row."""
        if self._sample is not None:
            self._row |= self._sample.gradient()
        if not self._takes_norms or _optimizers.knows_square(self.optimizer):
            return
        rates = _optimizers.rates(self.optimizer, self._ops)
        squares = _optimizers.squares(self.optimizer, self._ops)
        self._row["rates"] = rates
        self._row["grad_sq"] = sum(squares)
        self._row["decrease"] = sum(rate * square for rate, square in zip(rates, squares, strict=True))

    # -- what is made of the numbers ----------------------------------------------------------------------------------

    def _history(self, columns: dict[str, Floats], since: int = 0) -> History:
        delta = own_index(columns, self.delta_source)
        rates = self._planned(columns)
        return History(columns["loss"], columns["grad_sq"], delta, rates, self.distance, self.every, since)

    def _planned(self, columns: dict[str, Floats]) -> Floats:
        return planned_rates(columns["rate"], self.every, self.horizon, self._schedule)

    def _ask_rules(self) -> None:
        if self.rules and self.stopped is None:
            columns = named(self._ring.known)
            fresh = len(columns["loss"]) - self._ring.length
            self.stopped = first_stop(self.rules, self._history(columns, since=fresh))
