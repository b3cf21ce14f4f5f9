"""The monitor: watches a torch optimizer through its step hooks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.optim import Optimizer

from surefoot._base.arguments import number, one_of, whole
from surefoot.monitor import _measure
from surefoot.monitor._judge import Setting, judge, progress
from surefoot.monitor._measure import OVERFLOW, Records, StepSample, parameters
from surefoot.monitor._obstacles import obstacle, take_turns
from surefoot.monitor._verdict import State, Verdict
from surefoot.optim import Losses, LossOptimizer, scalar
from surefoot.rules import Floats, History, Stop, StopRule, check_rules, first_stop
from surefoot.theory import schedules
from surefoot.theory.bounds import Bound
from surefoot.theory.models import NAMED, Linear, Model, Step

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


class StabilityMonitor:
    r"""Watches any torch optimizer, and says whether its learning rate is too small, holds, or is too large.

    For every step it keeps the loss f, ‖g‖², the rate α, and inner products of gradients and the step Δ on a sample of
    at most 2¹⁸ parameters. :meth:`verdict` follows from these, for any optimizer with a rate. So do the steps of other
    models at the same point (:mod:`surefoot.theory.models`), and the noise that the run has added so far to the bound
    of its last iterate.

    The monitor only reads: it works through torch's step hooks, changes nothing about a step, and reads numbers of a
    device in blocks. The loss is taken from ``loss.backward()``, from the closure, from ``step(loss=…)`` or
    ``add_loss`` of our optimizers, or from :meth:`record`, which wins. The optimizer is held weakly.

    Args:
        optimizer: Any torch optimizer.
        horizon: T, the steps of the whole run; by default those done so far for the bound, and ten times as many for
            the verdict.
        distance: D of the bound; without it the bias is left out, and the noise is a lower bound of Ω for every D.
        models: Counterfactual models: ``"sgd"``, ``"sps"``, ``"ngn"``, ``"log-ngn"``, or others of
            :mod:`surefoot.theory.models` by a name, such as ``{"mine": Truncated(lower_bound=-2.0)}``.
        stop: Rules such as :class:`NonFinite`; :attr:`stopped` says what they found.
        schedule: T factors of the rate, or a name such as ``"cosine"``, known beforehand, for the weights of the bound
            and the peak rate; by default the present rate is taken to stay, and the partial bound proves something for
            constant rates only.
        flush_every: Steps after which numbers are fetched from the device and rules are asked.
        process_group: The ranks whose losses are averaged, so that all of them stop at the same step; ``"auto"`` is the
            default group if there is one, None never communicates.
        listen: Take the loss of an optimizer that is not ours from ``loss.backward()``, while attached.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> optimizer = torch.optim.SGD([x], lr=3.0)
    >>> with StabilityMonitor(optimizer, horizon=100) as monitor:
    ...     for _ in range(10):
    ...         optimizer.zero_grad()
    ...         loss = 0.5 * x.square().sum()
    ...         loss.backward()
    ...         optimizer.step()
    >>> monitor.verdict().state, monitor.verdict().reason
    (<State.TOO_LARGE: 'too large'>, 'after 10 steps the loss is 82000 times the first')
    """

    def __init__(
        self,
        optimizer: Optimizer,
        horizon: int | None = None,
        distance: float | None = None,
        models: Mapping[str, Model] | Sequence[str] = ("sgd", "sps", "ngn"),
        *,
        stop: StopRule | Sequence[StopRule] = (),
        schedule: str | ArrayLike | None = None,
        flush_every: int = 16,
        process_group: Any = "auto",
        listen: bool = True,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
        if any(group.get("lr") is None for group in optimizer.param_groups):
            raise ValueError(f"optimizer must have a learning rate 'lr' in every group, got {type(optimizer).__name__}")
        self._optimizer = weakref.ref(optimizer)
        self._kind = type(optimizer).__name__
        self.horizon = None if horizon is None else whole("horizon", horizon, 1)
        self.distance = None if distance is None else number("distance", distance, least=0)
        self.models = _named(models)
        self.rules = check_rules(stop)
        self._schedule: Floats | None = None
        if schedule is not None:
            _, self._schedule = schedules.factors(schedule, self.horizon, may_rest=True)
            self.horizon = len(self._schedule)
        self.stopped: Stop | None = None
        """What the first stop rule that held has reported; the same on all ranks."""
        self.steps = 0
        """Steps so far."""
        self.losses: Losses | None = None
        """What receives the losses of an optimizer that is not ours, while it is attached."""
        self.takes_turns = False
        """Whether the optimizer takes turns with another one that is monitored, as in a GAN."""
        self.overheard: tuple[weakref.ref[StabilityMonitor], float] | None = None
        """Another monitor, and a loss of its optimizer that concerned the parameters of this one."""
        params = parameters(optimizer)
        self._device = params[0].device if params else torch.device("cpu")
        self._records = Records(whole("flush_every", flush_every, 1), self._device, process_group)
        self._sample = StepSample()
        # Of DTensors this rank holds pieces only: a norm of their gradients would take all ranks.
        self._is_sharded = any(hasattr(p, "device_mesh") for p in params)
        is_ours = isinstance(optimizer, LossOptimizer)
        self._listens = listen and not is_ours
        self._source = "model" if is_ours else "linear" if _is_plain_sgd(optimizer) else "linear stand-in"
        self._handles: list[Any] = []
        self._recorded: Tensor | float | None = None
        self._row: dict[str, Any] = {}
        self._evaluations = 0
        self._several = 0
        self._goals: list[float] = []
        self._momentum = _measure.momentum(optimizer)
        self._obstacle = obstacle(optimizer)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer; None if it is gone."""
        return self._optimizer()

    def attach(self) -> Self:
        """Start watching the optimizer."""
        optimizer = self.optimizer
        if not self._handles and optimizer is not None:
            self.losses = Losses(optimizer, listen=True) if self._listens else None
            self._handles = [
                optimizer.register_step_pre_hook(self.before_step),
                optimizer.register_step_post_hook(self.after_step),
            ]
        return self

    def detach(self) -> None:
        """Stop watching; the optimizer is as it was, and the monitor keeps its numbers."""
        for handle in self._handles:
            handle.remove()
        self._handles, self.losses = [], None
        self._sample.forget()

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(self, *_: object) -> None:
        self.detach()

    def record(self, loss: Tensor | float) -> None:
        """Give the loss of the coming step, where ``backward`` does not have it or another one counts.

        With gradient accumulation call it once per micro batch, with the loss as it was differentiated: the sum counts.
        """
        value = _measure.number(scalar(loss))
        assert value is not None
        self._recorded = value if self._recorded is None else self._recorded + value

    def forget(self) -> None:
        """Drop what was recorded for a step that does not come, as ``torch.amp.GradScaler`` leaves out some.

        Call it where you clear the gradients; the loss would else be added to the next step's.
        """
        self._recorded = None

    @property
    def should_stop(self) -> bool:
        """Whether a stop rule has held. Rules are asked every ``flush_every`` steps."""
        return self.stopped is not None

    def trace(self) -> xr.Dataset:
        """All steps so far, as an xarray data set over ``step``.

        ``loss``, ``grad_sq``, ``rate``, ``size`` (of the optimizer, where it is known), ``delta`` (of the optimizer),
        ``noise`` (the partial sum of the bound), and over ``algorithm`` too ``counterfactual_size`` and
        ``counterfactual_delta``. Rates and sizes are those of the first parameter group. After divergence numbers are
        ∞; NaN stands for what was not measured. ``attrs["delta_source"]`` says what ``delta`` is: that of the
        ``model`` of an optimizer of ours, that of plain SGD (``linear``), or a ``linear stand-in`` for any other's.
        """
        import xarray as xr

        shown, history = self.scalars(), self._history(self.numbers())
        variables: dict[str, Any] = {
            name: ("step", shown[name]) for name in ("loss", "grad_sq", "rate", "size", "delta")
        }
        variables["noise"] = ("step", history.partial_noise())
        for name in ("size", "delta"):
            rows = [shown[f"{name}/{model}"] for model in self.models]
            table = np.reshape(rows, (len(rows), len(shown["step"])))
            variables[f"counterfactual_{name}"] = (("algorithm", "step"), table)
        known = {"horizon": len(history.rates), "bias": history.bias()}
        attributes = {"optimizer": self._kind, "delta_source": self._source, **known}
        return xr.Dataset(variables, {"step": shown["step"].astype(int), "algorithm": list(self.models)}, attributes)

    def numbers(self) -> dict[str, Floats]:
        """The measured numbers of all steps, as plain arrays, while the run goes on.

        ``loss``, ``grad_sq``, ``rate`` and the other columns of which :meth:`trace` and :meth:`verdict` are made. ∞ is
        what is not finite, NaN what was not measured.
        """
        return self._records.columns()

    def scalars(self, start: int = 0) -> dict[str, Floats]:
        """What a logger shows: one array per name over the steps from one on (-1 is the last).

        The names are those of :meth:`trace`, with ``size/sps`` and ``delta/sps`` for each counterfactual model. It
        costs what these steps cost, however long the run was before.
        """
        columns = self._records.columns(start)
        shown = {"step": np.arange(self.steps - len(columns["loss"]), self.steps, dtype=float)}
        shown |= {name: columns[name] for name in ("loss", "grad_sq", "rate", "size")}
        shown["delta"] = self._index(columns)
        for name, model in self.models.items():
            shown[f"size/{name}"], shown[f"delta/{name}"] = _counterfactual(model, columns)
        return shown

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

        It is known once a tenth of the horizon is done; ``verdict().details`` has the numbers that it depends on. More
        steps are more evidence: it may change, and says so. A run without a horizon is taken to be ten times as long as
        it is now. Where a rate cannot be judged, the state is ``unknown`` and the reason says why.
        """
        optimizer, columns = self.optimizer, self.numbers()
        if optimizer is not None:
            self._obstacle = obstacle(optimizer)
        reason = self._obstacle
        if reason is None and self.takes_turns:
            reason = "it takes turns with another optimizer, and each changes the other's loss, as in a GAN"
        if reason is None and 2 * self._several > self.steps:
            reason = f"{self._kind} evaluates its closure several times per step, and no single gradient explains it"
        if reason is None and not self.steps and not self._handles:
            reason = "the monitor has not been watching; use it in a with statement, or call monitor.attach() first"
        if reason is not None:
            doing = progress(columns["loss"]) if self._kind == "Surefoot" else None
            return Verdict(State.UNKNOWN, reason if doing is None else f"{reason}; {doing}")
        return judge(
            {**columns, "size": np.where(np.isnan(columns["size"]), columns["rate"], columns["size"])},
            Setting(self.horizon, self._peak(columns["rate"]), self._sample.elements, self._momentum),
            None if self.stopped is None else self.stopped.reason,
        )

    def plot(self) -> Figure:
        """Draw the run under its verdict: loss, what is left of the slope at the steps' ends, rates and indices."""
        from surefoot.monitor._plot import draw

        return draw(self.trace(), self.numbers(), self.verdict())

    def pending(self) -> Any:
        """The loss that belongs to the gradients in place, as far as it is known; None if it is not."""
        optimizer = self.optimizer
        if isinstance(optimizer, LossOptimizer):
            return optimizer.pending_loss
        loss = None if self.losses is None else self.losses.pending
        scale = getattr(optimizer, "grad_scale", None)  # of a GradScaler that leaves the division to a fused step
        return loss if loss is None or scale is None else loss / scale

    # -- what happens at a step ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """The hook before a step, which measures its point; a closure is wrapped: only it knows loss and gradient."""
        self._evaluations = 0
        self._row = dict(self._sample.before(parameters(optimizer)))
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            loss = kwargs.get("loss")
            self._measure_gradient(optimizer, self.pending() if loss is None else loss)
            return None
        wrapped = self._watched(closure, optimizer)
        return ((args[0], wrapped, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": wrapped})

    def _watched(self, closure: Callable[[], Any], optimizer: Optimizer) -> Callable[[], Any]:
        """The closure, whose first evaluation is at x_t; line searches evaluate it again elsewhere."""
        has_earlier = self.pending() is not None  # micro batches, of which the closure does the last one

        def watched() -> Any:
            loss = closure()
            self._evaluations += 1
            if self._evaluations == 1:
                total = self.pending() if has_earlier else None
                self._measure_gradient(optimizer, loss if total is None else total)
            return loss

        return watched

    @torch.no_grad()
    def _measure_gradient(self, optimizer: Optimizer, loss: Any) -> None:
        """Write the loss, the norm of the gradient, and products of its sample, to the row."""
        self._row["loss"] = _measure.number(loss)
        take_turns(self, optimizer, loss)
        self._row |= self._sample.gradient(parameters(optimizer), getattr(optimizer, "grad_scale", None))
        if not self._is_sharded:
            squares = _measure.squares(optimizer, self._device)
            products = (r * square for r, square in zip(_measure.rates(optimizer), squares, strict=True))
            self._row |= {"grad_sq": sum(squares), "decrease": sum(products)}

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """The hook after a step, which measures the step that was taken, and keeps the row."""
        recorded, self._recorded = self._recorded, None
        if self.losses is not None:
            self.losses.forget()
        row, rates = self._row, _measure.rates(optimizer)
        if recorded is not None:
            row["loss"] = recorded
        if row.get("loss") is None and not any(isinstance(rate, Tensor) or rate for rate in rates):
            return  # somebody creates the state: no step
        self.steps += 1
        row["rate"] = rates[0]
        if isinstance(optimizer, LossOptimizer):
            step = optimizer.last_step
            row["size"], row["delta"] = step.size.reshape(-1)[0].clone(), step.delta.clone()
        elif self._source == "linear":
            row["size"] = rates[0]
        if self._evaluations <= 1:
            row |= self._sample.after(parameters(optimizer))
        else:  # the gradient in place is no longer that of x_t
            self._several += 1
        row[OVERFLOW] = _measure.number(getattr(optimizer, "found_inf", None))
        group, self._momentum = optimizer.param_groups[0], _measure.momentum(optimizer)
        self._goals = [float(group[name]) for name in ("initial_lr", "max_lr") if name in group]
        if self._records.add({name: value for name, value in row.items() if value is not None}):
            self._ask_rules()

    # -- what is made of the numbers ----------------------------------------------------------------------------------

    def _history(self, columns: dict[str, Floats], since: int = 0) -> History:
        planned = self._planned(columns["rate"])
        return History(columns["loss"], columns["grad_sq"], self._index(columns), planned, self.distance, since=since)

    def _index(self, columns: dict[str, Floats]) -> Floats:
        """δ_t of the optimizer itself."""
        if self._source == "model":
            return columns["delta"]
        # The linear model's δ needs no loss; one that was not measured must not look like divergence.
        known = np.where(np.isnan(columns["loss"]), 0.0, columns["loss"])
        return np.asarray(_counterfactual(Linear(), {**columns, "loss": known}).delta)

    def _planned(self, measured: Floats) -> Floats:
        """The rates of all steps: those so far, then the schedule's, or the last one again and again."""
        done, schedule = len(measured), self._schedule
        if not done:
            return np.ones(self.horizon or 1)
        future = np.full(max((self.horizon or 0) - done, 0), measured[-1])
        if schedule is not None and done < len(schedule):
            largest = int(np.argmax(schedule[:done]))  # not the first: a warmup may start at 0
            if schedule[largest] > 0:
                future = schedule[done:] * (measured[largest] / schedule[largest])
        return np.concatenate([measured, future])

    def _peak(self, measured: Floats) -> float:
        """The largest rate of the run: of those planned, or the one that a warmup is on its way to.

        torch's schedulers leave the latter in the groups, as ``initial_lr`` or ``max_lr``. Far larger ones do not
        count: some schedules start from a rate of 1 and multiply it by the real one.
        """
        largest = float(np.max(self._planned(measured)))
        is_rising = len(measured) > 0 and measured[0] < measured[-1]
        return max([largest, *(goal for goal in self._goals if is_rising and goal < 20 * largest)])

    def _ask_rules(self) -> None:
        if self.rules and self.stopped is None:
            columns = self._records.columns(complete=True)
            self.stopped = first_stop(self.rules, self._history(columns, len(columns["loss"]) - self._records.block))


def _named(models: Mapping[str, Model] | Sequence[str]) -> dict[str, Model]:
    """Models by the names under which a trace shows them."""
    if isinstance(models, Mapping):
        return dict(models)
    names = [name for name in NAMED if name != "power"]  # it needs an exponent
    return {one_of("models", name, names): NAMED[name]() for name in models}


def _is_plain_sgd(optimizer: Optimizer) -> bool:
    """Whether a step is exactly x − α·g: torch's SGD without momentum, weight decay or maximisation."""
    return type(optimizer) is torch.optim.SGD and not any(
        group["momentum"] or group["weight_decay"] or group["maximize"] for group in optimizer.param_groups
    )


def _counterfactual(model: Model, columns: dict[str, Floats]) -> Step:
    """Size and δ of a model's step where the linear model promises the decrease q = Σ_g α_g‖g_g‖² (= α‖g‖²).

    The size is that of the first parameter group. What was not measured stays NaN.
    """
    loss, decrease, rate = (columns[name] for name in ("loss", "decrease", "rate"))
    missing = np.isnan(loss) | np.isnan(decrease) | np.isnan(rate)
    step = model.step(np.where(missing, 1.0, loss), np.where(missing, 1.0, decrease), np.ones_like(rate))
    return Step(np.where(missing, np.nan, step.size * rate), np.where(missing, np.nan, step.delta))
