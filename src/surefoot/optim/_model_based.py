"""The optimizer whose step comes from a model of the loss: model × geometry × momentum."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor

from surefoot.optim._distributed import gathered, local, shard
from surefoot.optim._geometry import Diagonal, Euclidean, Geometry
from surefoot.optim._interface import LossOptimizer, Part, check_rate, is_number
from surefoot.optim._losses import scalar
from surefoot.optim._lower_bound import LOWER_BOUNDS, Bounded, LowerBound
from surefoot.optim._momentum import HeavyBall, Linearisations, Momentum, Now, ScheduleFree
from surefoot.optim._tensors import WIDE, inner, is_fusable, lerp_, move_, mul_, sum_sq, times, total, wide
from surefoot.theory.arrays import namespace
from surefoot.theory.level import average_weight
from surefoot.theory.models import Linear, Model, Point, SquareRoot, Truncated, safe_delta

_COMMON = ["model", "geometry", "beta", "betas", "eps", "lower_bound", "max_grad_norm", "on_nonfinite", "process_group"]
"""Arguments of the constructors that are no option of a single parameter group."""


class Options(TypedDict, total=False):
    """What every optimizer takes beside its own arguments; explained at :class:`ModelBased`."""

    momentum: Momentum | None
    """In place of the optimizer's own momentum."""
    weight_decay: float
    lower_bound: float | str | LowerBound
    max_grad_norm: float | None
    on_nonfinite: str
    process_group: Any
    listen: bool
    maximize: bool


class Subset(NamedTuple):
    """Parameters of one group with one geometry, and what a step knows of them."""

    group: int
    part: Part
    geometry: Geometry
    average: list[Tensor]
    """Momentum's buffer, if there is any: of gradients, of directions, or schedule-free's z."""
    model_grads: list[Tensor]
    """The gradients that the model sees, up to a factor: those of the batch, or their running averages."""
    buffers: list[list[Tensor]]
    """The geometry's buffers."""

    def along(self, tensors: Sequence[Tensor], like: Tensor) -> Tensor:
        """⟨model_grads, tensors⟩ over all ranks."""
        return self.part.total(inner(self.model_grads, list(tensors), like))


class ModelBased(LossOptimizer):
    r"""Gradient descent whose step size comes from a model of the loss: model × geometry × momentum.

    With F = f − C (the batch loss over its lower bound), directions u_g and q = Σ_g α_g‖g_g‖²_* over the parameter
    groups, every group moves by

        x_g ← x_g − t·α_g·u_g

    where the one scale t ∈ [0, 1] and the stability index δ are those of the model at (F, q): see
    :mod:`surefoot.theory.models` for the table, and the paper's Section 4 for the derivations.

    Args:
        params: parameters or parameter groups; groups may have their own ``lr`` and ``weight_decay``.
        lr: the rate α, a number or a tensor of one element; changed by any scheduler of torch.
        model: a model of the loss, from :mod:`surefoot.theory.models`.
        geometry: :class:`Euclidean` (default), :class:`Diagonal` (Adam's metric), or a class of your own.
        momentum: :class:`Linearisations` (MoMo's), :class:`HeavyBall`, :class:`ScheduleFree`, or None.
        weight_decay: λ: x ← (1 − tαλ)x before the step, which ignores it (t is the step's scale, so that decay and step
            keep their proportion).
        lower_bound: C, a number; ``"level"`` or :class:`Level`, which need no lower bound; ``"estimate"`` (MoMo's
            online rule) or :class:`Estimate`; or a :class:`LowerBound` of your own.
        max_grad_norm: clip by scaling α with min{1, max_grad_norm/‖g‖}, where g is the gradient that the model sees.
            Gradients that were clipped by hand, all by one factor, are recognised, and F is scaled with them;
            averages of gradients need a number as ``lower_bound`` for that, so clip here with other ones.
        on_nonfinite: ``"skip"`` leaves parameters and averages untouched and counts, if loss or gradient are not finite
            (in float32, where their squares are summed) or the loss is below C; ``"raise"`` raises ``ValueError`` then,
            for which it has to wait for the device.
        process_group: the loss is averaged over this group, so that every rank takes the same step; ``"auto"`` is the
            default group if there is one, None leaves the loss as it is. The norms of sharded parameters (FSDP2) are
            added up over their own mesh in any case.
        listen: receive the loss from ``loss.backward()``, so that ``step()`` needs none.
        maximize: the loss is an objective that should grow; ``lower_bound`` is then one of its negative.

    ``model``, ``geometry``, ``momentum`` and ``lower_bound_rule`` are attributes. The groups hold β under torch's
    names, where schedulers such as ``OneCycleLR`` change it: ``momentum``, or ``betas`` and ``eps`` in Adam's metric.

    >>> from surefoot.theory.models import SquareRoot
    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> opt = ModelBased([x], lr=1.0, model=SquareRoot())
    >>> loss = 0.5 * x.square().sum()
    >>> loss.backward()
    >>> _ = opt.step()
    >>> x.detach(), opt.last_step.size.item()
    (tensor([1.5000, 2.0000]), 0.5)
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        *,
        model: Model,
        geometry: Geometry | None = None,
        momentum: Momentum | None = None,
        weight_decay: float = 0.0,
        lower_bound: float | str | LowerBound = 0.0,
        max_grad_norm: float | None = None,
        on_nonfinite: str = "skip",
        process_group: Any = "auto",
        listen: bool = True,
        maximize: bool = False,
    ) -> None:
        geometry = Euclidean() if geometry is None else geometry
        momentum = Linearisations(0.0) if momentum is None else momentum
        if not isinstance(model, Model):
            raise TypeError(f"model must be a surefoot.theory.models.Model, got {model!r}")
        if not isinstance(geometry, Geometry):
            raise TypeError(f"geometry must be a surefoot.optim.Geometry, got {geometry!r}")
        if not isinstance(momentum, Momentum):
            raise TypeError(f"momentum must be None, Linearisations, HeavyBall or ScheduleFree, got {momentum!r}")
        if max_grad_norm is not None and not (is_number(max_grad_norm) and max_grad_norm > 0):
            raise ValueError(f"max_grad_norm must be None or a number above 0, got {max_grad_norm!r}")
        self.model, self.lower_bound_rule = _model_and_bound(model, lower_bound)
        self.geometry, self.momentum = geometry, momentum
        self._max_grad_norm = max_grad_norm
        defaults = {"lr": check_rate("lr", lr), "weight_decay": check_rate("weight_decay", weight_decay)}
        beta = 0.0 if isinstance(momentum, ScheduleFree) else float(momentum.beta)
        if isinstance(geometry, Diagonal):
            defaults |= {"betas": (beta, geometry.beta), "eps": geometry.eps}
        elif not isinstance(momentum, ScheduleFree):
            defaults["momentum"] = beta
        if isinstance(momentum, ScheduleFree):
            defaults["train_mode"] = True
        super().__init__(
            params,
            defaults,
            on_nonfinite=on_nonfinite,
            process_group=process_group,
            listen=listen,
            maximize=maximize,
        )

    def _start(self) -> None:
        super()._start()
        self._scratch: dict[int, tuple[list[int], list[Tensor]]] = {}

    def _check_group(self, group: dict[str, Any]) -> None:
        for name in _COMMON:
            if name in group and name not in self.defaults:
                raise ValueError(
                    f"{name} is the same for all parameter groups: give it to {type(self).__name__}, not to a group"
                )
        for geometry, params in self.geometry.split(group["params"], group):
            if isinstance(geometry, Diagonal) and any(p.dtype is torch.float16 for p in params):
                raise TypeError(
                    "parameters in Adam's metric must not be float16, whose range its second moments leave: keep them "
                    "in float32 under autocast, or use bfloat16"
                )

    def _memory(self) -> Mapping[str, float]:
        start = {} if isinstance(self.lower_bound_rule, float) else self.lower_bound_rule.start()
        bound = self.lower_bound_rule if isinstance(self.lower_bound_rule, float) else start.get("estimate", 0.0)
        memory = {"count": 0.0, "bound": bound}
        if isinstance(self.momentum, Linearisations):
            memory |= {"age": 0.0, "value": 0.0}
        else:  # HeavyBall's scale of a group's mean direction, or ScheduleFree's sum of weights
            memory |= dict.fromkeys([f"momentum_{i}" for i in range(len(self.param_groups))], 0.0)
        return memory | start

    @property
    def certifies(self) -> bool:
        """Whether δ may stand in a bound: Euclidean, a fixed lower bound, no momentum, clipping or weight decay."""
        plain = isinstance(self.momentum, Linearisations) and not self._beta()
        fixed = isinstance(self.lower_bound_rule, float) and self._max_grad_norm is None
        undecayed = not any(group["weight_decay"] for group in self.param_groups)
        return plain and fixed and undecayed and isinstance(self.geometry, Euclidean)

    def reset_level(self) -> None:
        """Forget what a :class:`Level` (or another lower bound) has learned of the losses: for new data."""
        if isinstance(self.lower_bound_rule, LowerBound):
            group, start = self.param_groups[0], self.lower_bound_rule.start()
            for name, value in start.items():
                group["memory"][group["memory_names"].index(name)] = value

    @torch.no_grad()
    def train(self) -> None:
        """Before training: with :class:`ScheduleFree`, bring back the point where gradients are taken."""
        self._switch(train=True)

    @torch.no_grad()
    def eval(self) -> None:
        """Before evaluating or saving the network: with :class:`ScheduleFree`, put its average in place."""
        self._switch(train=False)

    def _switch(self, *, train: bool) -> None:
        if not isinstance(self.momentum, ScheduleFree):
            return
        beta = self.momentum.beta
        for group in self.param_groups:
            if group["train_mode"] is train:
                continue
            group["train_mode"] = train
            for p in group["params"]:
                if "z" in self.state.get(p, ()):
                    local(p.detach()).lerp_(local(self.state[p]["z"]), 1.0 - beta if train else 1.0 - 1.0 / beta)

    def _beta(self) -> float:
        """The momentum that constructor, scheduler or checkpoint have put into the groups."""
        if isinstance(self.momentum, ScheduleFree):
            return self.momentum.beta
        name = "betas" if isinstance(self.geometry, Diagonal) else "momentum"
        betas = [group[name][0] if name == "betas" else group[name] for group in self.param_groups]
        if any(beta != betas[0] for beta in betas):
            raise ValueError(f"{name} must be the same in all parameter groups, for one loss is averaged; got {betas}")
        if not is_number(betas[0]) or not 0 <= betas[0] < 1:
            raise ValueError(f"{name} must be a number in [0, 1), got {betas[0]!r}")
        return float(betas[0])

    def _subsets(self, beta: float) -> list[Subset]:
        """What a step works on, by group and geometry.

        Where a parameter's first gradient g comes after steps of others, averages that start at 0 and are corrected for
        that, with one correction for all parameters, begin with (1 − β^k)·g: as if all gradients had been g.
        """
        momentum, count, subsets = self.momentum, self.param_groups[0]["memory"][0], []

        def as_if_always(share: float, power: int) -> Callable[[Tensor, Tensor], Tensor]:
            left = 1.0 - share**count
            return lambda p, gradient: torch.nan_to_num(gradient, 0.0, 0.0, 0.0) ** power * left.to(gradient)

        start = as_if_always(beta, 1) if is_corrected(momentum) else None
        for index, group in enumerate(self.param_groups):
            if type(group["lr"]) is not float or not 0.0 <= group["lr"] < math.inf:
                check_rate("lr", group["lr"])
            for geometry, params in self.geometry.split(group["params"], group):
                moment = as_if_always(geometry.beta, 2) if isinstance(geometry, Diagonal) else None
                for part in self._parts(params):
                    average: list[Tensor] = []
                    if isinstance(momentum, ScheduleFree):
                        average = self._buffer("z", part, lambda p, gradient: p)
                    elif beta:
                        average = self._buffer("average", part, start)
                    elif is_corrected(momentum):  # switched off: it begins anew
                        for p in part.originals:
                            self.state[p].pop("average", None)
                    model_grads = average if average and isinstance(momentum, Linearisations) else part.grads
                    buffers = [self._buffer(name, part, moment) for name in list(geometry.buffer_names)]
                    subsets.append(Subset(index, part, geometry, average, model_grads, buffers))
        return subsets

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        loss: Tensor | float | None = None,
        lower_bound: Tensor | float | None = None,
    ) -> Any:
        """Take a step with the loss of this batch: the one that ``loss.backward()`` was called on.

        A loss that is handed over wins: as ``loss=``, from the closure, or by :meth:`add_loss` beforehand.

        Args:
            closure: computes the loss and its gradients, and returns the loss; with None in its place, the loss is one
                of the others.
            loss: the loss whose gradients are in place; it is not differentiated.
            lower_bound: the lower bound of this batch's loss, in place of the constructor's or the estimated one.

        Returns the loss. Without any loss it is an error, unless every rate is 0: then the state is created and nothing
        else happens, which distributed checkpointing relies on.
        """
        momentum, beta, groups = self.momentum, self._beta(), self.param_groups
        if isinstance(momentum, ScheduleFree) and not all(group["train_mode"] for group in groups):
            raise RuntimeError("the parameters hold the average for evaluation: call train() before step()")
        batch_bound = self._bound_of_batch(lower_bound)
        returned, f, clipped_by_hand = self._loss_of_step(closure, loss)
        subsets = self._subsets(beta)
        if f is None or not subsets:
            return returned
        past = self._past()
        memory = {**past, "count": past["count"] + 1.0}

        # The loss, the mean over the ranks. If it or the gradient is not finite, or it is below a fixed bound, the step
        # is skipped: everything runs as ever, and nothing changes.
        norms = [each.part.total(sum_sq(each.part.grads, f)) for each in subsets]
        grad_sq = add(norms)
        f, finite, fixed = self._agreed(f, grad_sq, batch_bound)
        if fixed is None and isinstance(self.lower_bound_rule, float) and not isinstance(self.model, Linear):
            fixed = self._scalar(self.lower_bound_rule)
        violated = None if fixed is None else f < fixed
        skip = ~finite if violated is None else ~finite | violated

        # Averages and geometry are brought up to date.
        linearises, weight = isinstance(momentum, Linearisations) and beta > 0, f
        now = Now(memory["count"], skip, beta, weight, 1.0, False)
        if linearises:
            memory["age"] = past["age"] + 1.0
            weight = average_weight(beta, memory["age"], bias_correction=is_corrected(momentum))
            now = now._replace(weight=weight)
            if is_corrected(momentum):
                now = Now(now.step, skip, beta, torch.full_like(f, 1.0 - beta), 1.0 / (1.0 - beta**now.step), True)
        elif isinstance(momentum, Linearisations):  # switched off: it begins anew when it is switched on
            memory |= {"age": self._like, "value": self._like}
        measured = [self._measure(*each, now) for each in zip(subsets, norms, strict=True)]

        # The linear model promises the decrease q for a full step at the rates α, clipped. A step along gradients cg
        # that were clipped by hand promises α⟨g, cg⟩ = α‖cg‖²/c.
        rates = [group["lr"] for group in groups]
        if self._max_grad_norm is not None:
            norms = [each.part.total(sum_sq(each.model_grads, f)) * now.factor**2 for each in subsets]
            clip = clip_factor(add(norms), self._max_grad_norm)
            rates = [rate * clip for rate in rates]
        pairs = zip(subsets, measured, strict=True)
        decrease = add([rates[each.group] * dual_sq for each, (_, dual_sq) in pairs])
        if clipped_by_hand is not None and not linearises:
            decrease, grad_sq = decrease / clipped_by_hand, grad_sq / clipped_by_hand**2
        if type(self.geometry) is not Euclidean:  # whose norm was looked at above
            finite = finite & torch.isfinite(decrease)
            skip = skip | ~finite
            now = now._replace(skip=skip)

        # The model's value f̃. With schedule-free averaging it is asked at z; averages of gradients that were clipped
        # by hand are those of the loss C + c(f − C).
        value = f
        if linearises:
            if clipped_by_hand is not None and fixed is not None:
                f = fixed + clipped_by_hand * (f - fixed)
            value = past["value"] + weight * (f - past["value"])
        elif isinstance(momentum, ScheduleFree):  # f + ⟨g, z − y⟩
            ahead = add([each.along(torch._foreach_sub(each.average, each.part.params), f) for each in subsets])
            value = f + (ahead if clipped_by_hand is None else ahead / clipped_by_hand)

        # The gap F = f̃ − C, the scale t of the step and its index δ, in units where the rate is 1.
        rule = self.lower_bound_rule if isinstance(self.lower_bound_rule, LowerBound) else None
        bounded = Bounded(self._like, decrease, {}) if rule is None else rule.observe(f, value, decrease, past)
        if fixed is not None:
            bounded = Bounded(fixed, decrease, bounded.memory, violated)
        gap = value - bounded.bound
        scale, delta = self._model_step(gap, bounded.decrease)
        memory |= {**bounded.memory, "bound": bounded.bound}
        if rule is not None:
            memory |= rule.after(value, decrease, scale, memory)
            if rule.safe_index and fixed is None:
                delta = safe_delta(gap, decrease, torch.ones_like(gap), scale)

        # x ← x − tα·direction, and what momentum makes of it: averaged linearisations fall with that by ⟨d, x − x⁺⟩.
        sizes = [scale * rate for rate in rates]
        pairs = zip(subsets, measured, strict=True)
        falls = [self._move(each, *found, sizes[each.group], now, past, memory) for each, found in pairs]
        if linearises:
            memory["value"], delta = value - add(falls), delta + (f - value)
        self._record(memory, f, finite, skip, delta, grad_sq, sizes, bounded.lowered)
        return returned

    def _bound_of_batch(self, lower_bound: Tensor | float | None) -> Tensor | None:
        """The lower bound of a single step, checked where that waits for nothing."""
        if lower_bound is None:
            return None
        if isinstance(self.model, Linear):
            raise ValueError(f"lower_bound of a single step does not go with the linear model, got {lower_bound!r}")
        bound = scalar(lower_bound, "lower_bound")
        if not isinstance(bound, Tensor) or (bound.is_cpu and not torch.compiler.is_compiling()):
            check_bound(float(bound))
        return self._scalar(bound)

    def _measure(self, subset: Subset, norm: Tensor, now: Now) -> tuple[list[Tensor], Tensor]:
        """Directions and ‖d‖_*² over all ranks; averages and geometry are updated."""
        part, geometry, averages = subset.part, subset.geometry, subset.model_grads
        if isinstance(geometry, Diagonal):
            directions = self._directions(part)
            dual_sq = geometry.advance_(directions, part.grads, averages, subset.buffers[0], now)
            return directions, part.total(dual_sq) * now.factor
        if averages is not part.grads:
            lerp_(averages, part.grads, now.weight, now.skip)
        if type(geometry) is not Euclidean:
            return self._measure_tensors(subset, now)
        directions = times(averages, now.factor)
        return directions, norm if averages is part.grads else part.total(sum_sq(directions, norm))

    def _directions(self, part: Part) -> list[Tensor]:
        """Memory for directions: kept on the CPU, where touching new pages takes longer than the rest of the step."""
        params = [id(p) for p in part.originals]
        known, directions = self._scratch.get(params[0], ([], []))
        if known != params or not is_fusable(directions, part.grads):
            directions = [torch.zeros_like(grad) for grad in part.grads]
            if part.grads[0].is_cpu and not torch.compiler.is_compiling():
                self._scratch[params[0]] = params, directions
        return directions

    def _measure_tensors(self, subset: Subset, now: Now) -> tuple[list[Tensor], Tensor]:
        """In a geometry of whole tensors: those that are sharded are gathered, one at a time, on every rank."""
        part, geometry = subset.part, subset.geometry
        gathers = part.shards is not None and not geometry.separable
        directions, slopes = [], []
        for i, original in enumerate(part.originals):
            buffers = [buffer[i] for buffer in subset.buffers]
            tensors = [part.grads[i], *times([subset.model_grads[i]], now.factor), *[each.clone() for each in buffers]]
            g, d, *held = [gathered(each, original) for each in tensors] if gathers else tensors
            geometry.observe(g, held, now.step)
            u = geometry.direction(d, held, now.step)
            slopes.append(torch.sum(d.to(wide(d.dtype)) * u.to(wide(d.dtype))))
            direction, *new = [shard(each, original) for each in (u, *held)] if gathers else [u, *held]
            directions.append(direction)
            for buffer, value in zip(buffers, new, strict=True):
                buffer.copy_(torch.where(now.skip.to(buffer.device), buffer, value))
        dual_sq = total(slopes, now.step)
        return directions, dual_sq if gathers else part.total(dual_sq)

    def _model_step(self, gap: Tensor, decrease: Tensor) -> tuple[Tensor, Tensor]:
        """t and δ at the gap F and the promised decrease q, with a rate of 1.

        Models with a closed form are asked directly: what their guards look for was looked at before, but for F = 0.
        """
        one = torch.ones_like(gap)
        if isinstance(self.model, Linear):
            return one, 0.5 * decrease
        if type(self.model) not in (Truncated, SquareRoot):
            size, delta = self.model.step(gap, decrease, one)
            return size, delta
        gap = gap.clamp_min(torch.finfo(gap.dtype).tiny)
        point = Point(gap, decrease, one, 0.5 * decrease, decrease / gap, regular=True)
        return self.model.solve(namespace(gap), point)

    def _move(
        self,
        subset: Subset,
        directions: list[Tensor],
        dual_sq: Tensor,
        size: Tensor,
        now: Now,
        past: Mapping[str, Tensor],
        memory: dict[str, Tensor],
    ) -> Tensor:
        """Move the parameters of a subset; returns how far averaged linearisations fall with that, ⟨d, x − x⁺⟩."""
        params, average, skip, momentum = subset.part.params, subset.average, now.skip, self.momentum
        group, name = self.param_groups[subset.group], f"momentum_{subset.group}"
        lr, decay = group["lr"], group["weight_decay"]
        if isinstance(momentum, ScheduleFree):
            # With z⁺ = z − s the new y is y + c(z − y) − (1 − β(1 − c))·s: x need not be kept.
            weight = self._scalar(lr) ** momentum.power
            memory[name] = past[name] + weight
            weight = torch.where(memory[name] > 0.0, weight / memory[name], 0.0)
            kept = 1.0 - now.beta * (1.0 - weight)
            lerp_(params, average, weight, skip)
            if decay:
                move_(params, average, kept * size * decay, skip)
                mul_(average, 1.0 - size * decay, skip)
            move_(params, directions, kept * size, skip)
            move_(average, directions, size, skip)
            return size
        linearises = subset.model_grads is average
        rounded = linearises and params[0].dtype not in WIDE  # steps in low precision may round away
        before = [p.clone() for p in params] if rounded else []
        fall = size * dual_sq
        if decay:
            fall = fall + size * decay * now.factor * subset.along(params, size) if linearises else fall
            mul_(params, 1.0 - size * decay, skip)
        if isinstance(momentum, HeavyBall):
            # The buffer is the mean of the directions, weighted by their sizes; a rate of 0 stops the group at once.
            new = (1.0 - now.beta) * size
            memory[name] = now.beta * past[name] + new if now.beta else torch.zeros_like(size)
            if now.beta:
                lerp_(average, directions, torch.where(memory[name] > 0.0, new / memory[name], 0.0), skip)
                directions, size = average, memory[name] * (self._scalar(lr) > 0.0)
        move_(params, directions, size, skip)
        return now.factor * subset.along(torch._foreach_sub(before, params), size) if rounded else fall


def is_corrected(momentum: Momentum) -> bool:
    """Whether averages are those of Adam, which start at zero and are corrected for it."""
    return isinstance(momentum, Linearisations) and momentum.bias_correction


def add(values: Sequence[Tensor]) -> Tensor:
    """The sum of one or more tensors."""
    return functools.reduce(torch.add, values)


def _model_and_bound(model: Model, bound: Any) -> tuple[Model, float | LowerBound]:
    """The model with a bound of 0, and what the gap is measured from: the bound of either of the two."""
    if isinstance(bound, str) and bound in LOWER_BOUNDS:
        bound = LOWER_BOUNDS[bound]()
    if isinstance(model, Linear):
        if isinstance(bound, LowerBound) or bound != 0.0:
            raise ValueError(f"lower_bound does not go with the linear model, which knows none, got {bound!r}")
        return model, 0.0
    bound = bound if isinstance(bound, LowerBound) else check_bound(bound)
    if not is_number(model.lower_bound):
        raise ValueError(f"lower_bound of an optimizer's model must be a number, got {model.lower_bound!r}")
    own = float(model.lower_bound)
    if own == 0.0:
        return model, bound
    if bound not in (0.0, own):
        raise ValueError(f"lower_bound={bound!r} is not that of {model!r}; give one of the two")
    return dataclasses.replace(model, lower_bound=0.0), check_bound(own)  # type: ignore[type-var]


def check_bound(value: Any) -> float:
    """A lower bound, refused if it is no finite number."""
    if not is_number(value) or not math.isfinite(value):
        words = ", ".join(f'"{word}"' for word in LOWER_BOUNDS)
        raise ValueError(f"lower_bound must be a finite number, {words} or a surefoot.optim.LowerBound, got {value!r}")
    return float(value)


def clip_factor(grad_sq: Tensor, max_norm: float) -> Tensor:
    """min{1, max_norm/‖g‖}: the factor of the *rate* that clips a step.

    Scaling g instead would leave F unchanged and make a Polyak step overshoot by up to the inverse factor.
    """
    return (max_norm / grad_sq.sqrt()).clamp_max(1.0)
