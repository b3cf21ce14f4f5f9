"""The optimizer whose step comes from a model of the loss: model × geometry × momentum."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor

from surefoot.optim._distributed import gathered, local, shard
from surefoot.optim._geometry import Diagonal, Euclidean, Geometry
from surefoot.optim._interface import LossOptimizer, Part, check_rate, is_number
from surefoot.optim._losses import scalar
from surefoot.optim._lower_bound import LOWER_BOUNDS, Bounded, LowerBound
from surefoot.optim._momentum import HeavyBall, Linearisations, Momentum, ScheduleFree
from surefoot.optim._tensors import WIDE, inner, lerp_, move_, mul_, sum_sq, wide
from surefoot.theory.arrays import namespace
from surefoot.theory.level import average_weight
from surefoot.theory.models import Linear, Model, Point, SquareRoot, Truncated, safe_delta

_COMMON = (
    "model",
    "geometry",
    "beta",
    "betas",
    "eps",
    "lower_bound",
    "max_grad_norm",
    "on_nonfinite",
    "process_group",
)
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


class Share(NamedTuple):
    """A part of a group with one geometry, and what a step knows of it."""

    group: int
    part: Part
    geometry: Geometry
    lr: float | Tensor
    weight_decay: float
    average: list[Tensor]
    """Momentum's buffer: d, the mean of past directions, or schedule-free's z."""
    buffers: list[list[Tensor]]
    """The geometry's buffers."""


class Measured(NamedTuple):
    """The gradient that the model sees in a share, ``factor·seen``, and its direction."""

    part: Part
    seen: list[Tensor]
    directions: list[Tensor]
    dual_sq: Tensor
    """‖·‖_*² over all ranks."""
    factor: Tensor | None

    def along(self, moves: list[Tensor], like: Tensor) -> Tensor:
        """⟨d, moves⟩ over all ranks."""
        value = self.part.total(inner(self.seen, moves, like))
        return value if self.factor is None else value * self.factor

    def norm_sq(self, like: Tensor) -> Tensor:
        """‖d‖² over all ranks."""
        value = self.part.total(sum_sq(self.seen, like))
        return value if self.factor is None else value * self.factor**2


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

    The groups hold β under torch's names, where schedulers such as ``OneCycleLR`` change it: ``momentum``, or ``betas``
    and ``eps`` in Adam's metric.

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
        self._model, self._bound = _model_and_bound(model, lower_bound)
        self._geometry, self._momentum = geometry, momentum
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

    def _check_group(self, group: dict[str, Any]) -> None:
        for name in _COMMON:
            if name in group and name not in self.defaults:
                raise ValueError(
                    f"{name} is the same for all parameter groups: give it to {type(self).__name__}, not to a group"
                )
        for geometry, params in self._geometry.split(group["params"], group):
            if not geometry.holds_half and any(p.dtype is torch.float16 for p in params):
                raise TypeError(
                    f"parameters in the {type(geometry).__name__} geometry must not be float16, whose range its "
                    "second moments leave: keep them in float32 under autocast, or use bfloat16"
                )

    def _memory(self) -> Mapping[str, float]:
        memory = {"count": 0.0}
        if isinstance(self._momentum, Linearisations):
            memory |= {"age": 0.0, "value": 0.0}
        else:  # HeavyBall's scale of a group's mean direction, or ScheduleFree's sum of weights
            memory |= dict.fromkeys([f"momentum_{i}" for i in range(len(self.param_groups))], 0.0)
        return memory if isinstance(self._bound, float) else memory | dict(self._bound.start())

    def _first_bound(self) -> float:
        return self._bound if isinstance(self._bound, float) else self._bound.start().get("estimate", 0.0)

    @property
    def model(self) -> Model:
        """The model of the loss."""
        return self._model

    @property
    def geometry(self) -> Geometry:
        """The geometry of the steps."""
        return self._geometry

    @property
    def momentum(self) -> Momentum:
        """The kind of momentum; schedulers and checkpoints change its β in the parameter groups."""
        return self._momentum

    @property
    def lower_bound_rule(self) -> float | LowerBound:
        """What the gap is measured from: a number, or a rule."""
        return self._bound

    @property
    def certifies(self) -> bool:
        """Whether δ may stand in a bound: Euclidean, a fixed lower bound, no momentum, clipping or weight decay."""
        plain = isinstance(self._momentum, Linearisations) and not self._beta_of(self.param_groups)
        fixed = isinstance(self._bound, float) and self._max_grad_norm is None
        undecayed = not any(group["weight_decay"] for group in self.param_groups)
        return plain and fixed and undecayed and isinstance(self._geometry, Euclidean)

    def reset_level(self) -> None:
        """Forget what a :class:`Level` (or another lower bound) has learned of the losses: for new data."""
        if isinstance(self._bound, LowerBound):
            group, start = self.param_groups[0], self._bound.start()
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
        if not isinstance(self._momentum, ScheduleFree):
            return
        beta = self._momentum.beta
        for group in self.param_groups:
            if group["train_mode"] is train:
                continue
            group["train_mode"] = train
            for p in group["params"]:
                if "z" in self.state.get(p, ()):
                    local(p.detach()).lerp_(local(self.state[p]["z"]), 1.0 - beta if train else 1.0 - 1.0 / beta)

    def _beta_of(self, groups: list[dict[str, Any]]) -> float:
        """The momentum that constructor, scheduler or checkpoint have put into the groups."""
        if isinstance(self._momentum, ScheduleFree):
            return self._momentum.beta
        name = "betas" if isinstance(self._geometry, Diagonal) else "momentum"
        betas = [group[name][0] if name == "betas" else group[name] for group in groups]
        if any(beta != betas[0] for beta in betas):
            raise ValueError(f"{name} must be the same in all parameter groups, for one loss is averaged; got {betas}")
        if not is_number(betas[0]) or not 0 <= betas[0] < 1:
            raise ValueError(f"{name} must be a number in [0, 1), got {betas[0]!r}")
        return float(betas[0])

    def _shares(self, buffer: str | None, corrected: float) -> list[Share]:
        """What a step works on, by group and geometry; ``buffer`` is the name of momentum's, if it has one."""
        shares = []
        count = self.param_groups[0]["memory"][0]
        for index, group in enumerate(self.param_groups):
            lr = group["lr"]
            if type(lr) is not float or not 0.0 <= lr < math.inf:
                check_rate("lr", lr)
            for geometry, params in self._geometry.split(group["params"], group):
                for part in self._parts(params):
                    average = [] if buffer is None else self._buffer(buffer, part, self._first_average(part, corrected))
                    moment = _first_moment(part, geometry, count) if isinstance(geometry, Diagonal) else None
                    buffers = [self._buffer(name, part, moment) for name in list(geometry.buffer_names)]
                    shares.append(Share(index, part, geometry, lr, group["weight_decay"], average, buffers))
        return shares

    def _first_average(self, part: Part, corrected: float) -> Callable[[int], Tensor] | None:
        """What momentum's buffer begins with, if not with zero: z with the parameter, a corrected average as below."""
        if isinstance(self._momentum, ScheduleFree):
            return lambda place: part.params[place]
        if not corrected or not isinstance(self._geometry, Diagonal):
            return None
        left: Tensor = 1.0 - corrected ** self.param_groups[0]["memory"][0]
        return lambda place: torch.nan_to_num(part.grads[place], 0.0, 0.0, 0.0) * left.to(part.grads[place])

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
        momentum, beta = self._momentum, self._beta_of(self.param_groups)
        linearises = isinstance(momentum, Linearisations) and beta > 0
        bias_correction = isinstance(momentum, Linearisations) and momentum.bias_correction
        if isinstance(momentum, ScheduleFree) and not all(g["train_mode"] for g in self.param_groups):
            raise RuntimeError("the parameters hold the average for evaluation: call train() before step()")
        batch_bound = self._bound_of_batch(lower_bound)
        returned, value = self._loss_of_step(closure, loss)
        buffer = "z" if isinstance(momentum, ScheduleFree) else "average" if beta else None
        corrected = beta if linearises and bias_correction else 0.0
        shares = self._shares(buffer, corrected)
        if value is None:
            return returned
        if not shares:
            self._losses.forget()
            self._notice_no_gradient()
            return returned
        clipped_by_hand = self._losses.clip_factor(value)
        self._losses.forget()

        # The loss, the mean over the ranks. If it or the gradient is not finite, or it is below a fixed bound, the
        # step is skipped: everything runs as ever, and nothing changes.
        group = self.param_groups[0]
        past = dict(zip(group["memory_names"], group["memory"].unbind(), strict=True))
        f = self._scalar(value)
        f = -f if self.maximize else f
        norms = [share.part.total(sum_sq(share.part.grads, f)) for share in shares]
        grad_sq = sum(norms[1:], norms[0])
        f, finite, batch_bound = self._agreed(f, grad_sq, batch_bound)
        fixed = self._fixed_bound(batch_bound)
        below = f < fixed if fixed is not None else None
        skip = ~finite if below is None else ~finite | below
        count = past["count"] + 1.0
        memory = {"count": count}

        # What the model sees: the value f̃ and a gradient d. With schedule-free averaging it is asked at z; averages of
        # gradients that were clipped by hand are those of the loss C + c(f − C).
        seen_value = f
        shrunk = clipped_by_hand
        if isinstance(momentum, Linearisations):
            age = past["age"] + 1.0 if linearises else torch.zeros_like(count)
            if linearises:
                if shrunk is not None:
                    f, shrunk = (f if fixed is None else fixed + shrunk * (f - fixed)), None
                weight = average_weight(beta, age, bias_correction=bias_correction)
                seen_value = past["value"] + weight * (f - past["value"])
            memory |= {"age": age, "value": torch.zeros_like(f)}
        elif isinstance(momentum, ScheduleFree):
            for share in shares:
                ahead = torch._foreach_sub(share.average, share.part.params)
                ahead_value = share.part.total(inner(share.part.grads, ahead, f))
                seen_value = seen_value + (ahead_value if shrunk is None else ahead_value / shrunk)

        # Directions, and the decrease q that the linear model promises for a full step at the rates α, clipped.
        averaging = (weight, corrected) if linearises else None
        found = [self._measure(*each, count, skip, averaging) for each in zip(shares, norms, strict=True)]
        clip: Tensor | None = None
        if self._max_grad_norm is not None:
            clip = clip_factor(sum([each.norm_sq(f) for each in found], torch.zeros_like(f)), self._max_grad_norm)
        rates = [share.lr if clip is None else share.lr * clip for share in shares]
        decrease = sum([rate * each.dual_sq for rate, each in zip(rates, found, strict=True)], torch.zeros_like(f))
        if shrunk is not None:  # a step along cg promises α⟨g, cg⟩ = α‖cg‖²/c
            decrease = decrease / shrunk

        if type(self._geometry) is not Euclidean:  # whose norm was looked at above
            finite = finite & torch.isfinite(decrease)
            skip = skip | ~finite

        # The gap F = f̃ − C, the scale t of the step and its index δ, in units where the rate is 1.
        bounded = self._bounded(f, seen_value, decrease, past, fixed, batch_bound)
        gap = seen_value - bounded.bound
        scale, delta = self._model_step(gap, bounded.decrease)
        if isinstance(self._bound, LowerBound):
            if batch_bound is None and self._bound.safe_index:
                delta = safe_delta(gap, decrease, torch.ones_like(gap), scale)
            memory |= bounded.memory | self._bound.after(seen_value, decrease, scale, {**past, **bounded.memory})

        # x ← x − tα·direction, and what momentum makes of it.
        falls = [
            self._move(share, each, scale * rate, skip, beta, past, memory)
            for share, each, rate in zip(shares, found, rates, strict=True)
        ]
        if linearises:
            memory["value"], delta = seen_value - sum(falls), delta + (f - seen_value)

        # What is kept, unless the step was skipped, and what is reported in any case.
        kept = {**past, **memory}
        new = torch.stack([kept[name] for name in past])
        group["memory"].copy_(torch.where(skip, group["memory"], new))
        _, _, skipped, violations, old_bound, *_ = group["report"].unbind()
        violated = bounded.lowered if below is None else below
        scale = torch.where(skip, 0.0, scale if clip is None else scale * clip)
        report = [
            torch.where(finite, torch.where(skip, 0.0, delta), math.inf),
            grad_sq if shrunk is None else grad_sq / shrunk**2,
            skipped + ~finite,
            violations if violated is None else violations + (violated & finite),
            torch.where(skip, old_bound, bounded.bound),
            *(scale * g["lr"] for g in self.param_groups),
        ]
        group["report"].copy_(torch.stack(report))
        self._notice_skipped(f, finite, fixed)
        return returned

    def _bound_of_batch(self, lower_bound: Tensor | float | None) -> Tensor | None:
        """The lower bound of a single step, checked where that waits for nothing."""
        if lower_bound is None:
            return None
        if isinstance(self._model, Linear):
            raise ValueError(f"lower_bound of a single step does not go with the linear model, got {lower_bound!r}")
        if isinstance(lower_bound, Tensor):
            bound = scalar(lower_bound, "lower_bound")
            if torch.compiler.is_compiling() or not lower_bound.is_cpu:
                return self._scalar(bound)
            lower_bound = float(bound)
        return self._scalar(check_bound(lower_bound))

    def _fixed_bound(self, batch_bound: Tensor | None) -> Tensor | None:
        """A number below which no loss can be; None for the linear model and for bounds that adapt."""
        if batch_bound is not None:
            return batch_bound
        if isinstance(self._model, Linear) or not isinstance(self._bound, float):
            return None
        return torch.full_like(self._like, self._bound)

    def _measure(
        self, share: Share, norm: Tensor, count: Tensor, skip: Tensor, averaging: tuple[Tensor, float] | None
    ) -> Measured:
        """The gradient that the model sees, its direction and ‖·‖_*²; averages and geometry are brought up to date.

        ``averaging`` is the weight of the new gradient in the average, and β if that is corrected for its start at 0.
        """
        part, geometry, buffers = share.part, share.geometry, share.buffers
        if averaging is None and type(geometry) is Euclidean:
            return Measured(part, part.grads, part.grads, norm, None)
        seen, factor = part.grads, None
        weight, corrected = (norm, 0.0) if averaging is None else averaging
        if averaging is not None:
            seen = share.average
        if isinstance(geometry, Diagonal) and (averaging is None or corrected):
            # Adam's average starts at 0, and is corrected as a whole.
            factor = 1.0 / (1.0 - corrected**count) if corrected else None
            directions = geometry.learn_and_measure(part.grads, seen, buffers[0], corrected, count, skip)
            if directions is not None:
                dual_sq = part.total(inner(seen, directions, norm))
                return Measured(part, seen, directions, dual_sq if factor is None else dual_sq * factor, factor)
            weight = torch.full_like(norm, 1.0 - corrected)
        if averaging is not None:
            lerp_(seen, part.grads, weight, skip)
        if part.shards is not None and not geometry.separable:
            return Measured(part, seen, *self._measure_gathered(share, seen, count, skip), None)
        geometry.learn(part.grads, buffers, count, skip)
        directions, dual_sq = geometry.measure(seen, buffers, count, norm)
        if factor is not None:
            dual_sq = dual_sq * factor**2
            directions = [u * factor.to(u.device, wide(u.dtype)) for u in directions]
        return Measured(part, seen, directions, part.total(dual_sq), factor)

    def _measure_gathered(
        self, share: Share, seen: list[Tensor], count: Tensor, skip: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Directions of sharded parameters in a geometry that needs them whole: one at a time, on every rank."""
        directions, total = [], torch.zeros_like(count)
        for i, original in enumerate(share.part.originals):
            grad, d = gathered(share.part.grads[i], original), gathered(seen[i], original)
            buffers = [[gathered(buffer[i], original)] for buffer in share.buffers]
            share.geometry.learn([grad], buffers, count, skip)
            for buffer, (learned,) in zip(share.buffers, buffers, strict=True):
                buffer[i].copy_(shard(learned, original))
            (direction,), dual_sq = share.geometry.measure([d], buffers, count, count)
            directions.append(shard(direction, original))
            total = total + dual_sq
        return directions, total

    def _bounded(
        self,
        f: Tensor,
        value: Tensor,
        decrease: Tensor,
        past: Mapping[str, Tensor],
        fixed: Tensor | None,
        batch_bound: Tensor | None,
    ) -> Bounded:
        """C, and what an adaptive lower bound makes of the step; the linear model needs none."""
        if isinstance(self._bound, LowerBound):
            bounded = self._bound.observe(f, value, decrease, past)
            return bounded if batch_bound is None else bounded._replace(bound=batch_bound, decrease=decrease)
        return Bounded(torch.zeros_like(f) if fixed is None else fixed, decrease, {})

    def _model_step(self, gap: Tensor, decrease: Tensor) -> tuple[Tensor, Tensor]:
        """t and δ at the gap F and the promised decrease q, with a rate of 1.

        Models with a closed form are asked directly: what their guards look for was looked at before, but for F = 0.
        """
        if type(self._model) not in (Linear, Truncated, SquareRoot):
            size, delta = self._model.step(gap, decrease, torch.ones_like(gap))
            return size, delta
        one = torch.ones_like(gap)
        live = gap > 0.0
        if isinstance(self._model, Linear):
            return one, 0.5 * decrease
        height = torch.where(live, gap, one)
        point = Point(height, decrease, one, 0.5 * decrease, decrease / height, regular=True)
        size, delta = self._model.solve(namespace(gap), point)
        return size * live, delta * live

    def _move(
        self,
        share: Share,
        found: Measured,
        size: Tensor,
        skip: Tensor,
        beta: float,
        past: Mapping[str, Tensor],
        memory: dict[str, Tensor],
    ) -> Tensor:
        """Move the parameters of a share; returns how far averaged linearisations fall with that, ⟨d, x − x⁺⟩."""
        params, momentum, name = share.part.params, self._momentum, f"momentum_{share.group}"
        directions, decay = found.directions, share.weight_decay
        if isinstance(momentum, ScheduleFree):
            # With z⁺ = z − s the new y is y + c(z − y) − (1 − β(1 − c))·s: x need not be kept.
            weight = self._scalar(share.lr) ** momentum.power
            memory[name] = past[name] + weight
            weight = torch.where(memory[name] > 0.0, weight / memory[name], 0.0)
            kept = 1.0 - beta * (1.0 - weight)
            lerp_(params, share.average, weight, skip)
            if decay:
                move_(params, share.average, kept * size * decay, skip)
                mul_(share.average, 1.0 - size * decay, skip)
            move_(params, directions, kept * size, skip)
            move_(share.average, directions, size, skip)
            return size
        linearises = isinstance(momentum, Linearisations) and beta > 0
        rounded = linearises and any(p.dtype not in WIDE for p in params)  # steps in low precision may round away
        before = [p.clone() for p in params] if rounded else []
        fall = size * found.dual_sq
        if decay:
            fall = fall + size * decay * found.along(params, size) if linearises else fall
            mul_(params, 1.0 - size * decay, skip)
        if isinstance(momentum, HeavyBall) and beta:
            # The buffer is the mean of the directions, weighted by their sizes; a rate of 0 stops the group at once.
            new = (1.0 - beta) * size
            memory[name] = beta * past[name] + new
            lerp_(share.average, directions, torch.where(memory[name] > 0.0, new / memory[name], 0.0), skip)
            move_(params, share.average, memory[name] * (self._scalar(share.lr) > 0.0), skip)
            return fall
        if isinstance(momentum, HeavyBall):
            memory[name] = torch.zeros_like(size)  # switched off: nothing is under way
        move_(params, directions, size, skip)
        return found.along(list(torch._foreach_sub(before, params)), size) if rounded else fall


def _first_moment(part: Part, geometry: Diagonal, count: Tensor) -> Callable[[int], Tensor]:
    """What a second moment begins with where a parameter's first gradient g comes after ``count`` steps of others.

    The correction for the start at 0 is the same for all parameters: (1 − β₂^k)g² is as if all gradients had been g.
    """
    left: Tensor = 1.0 - geometry.beta**count
    return lambda place: torch.nan_to_num(part.grads[place], 0.0, 0.0, 0.0).square() * left.to(part.grads[place])


def _model_and_bound(model: Model, bound: Any) -> tuple[Model, float | LowerBound]:
    """The model with a bound of 0, and what the gap is measured from: the bound of either of the two."""
    if isinstance(bound, str) and bound in LOWER_BOUNDS:
        bound = LOWER_BOUNDS[bound]()
    if isinstance(model, Linear):
        if isinstance(bound, LowerBound) or bound != 0.0:
            raise ValueError(f"lower_bound does not go with the linear model, which knows none, got {bound!r}")
        return model, 0.0
    if not isinstance(bound, LowerBound):
        bound = check_bound(bound)
    if not is_number(model.lower_bound):
        raise ValueError(f"lower_bound of an optimizer's model must be a number, got {model.lower_bound!r}")
    own = float(model.lower_bound)
    if own != 0.0:
        if bound not in (0.0, own):
            raise ValueError(f"lower_bound={bound!r} is not that of {model!r}; give one of the two")
        model, bound = dataclasses.replace(model, lower_bound=0.0), check_bound(own)  # type: ignore[type-var]
    return model, bound


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
