"""The optimizer: torch's interface around the one algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim._algorithm import Outcome, Progress, Share, advance
from surefoot.optim._arithmetic import Device, Host, Scalar
from surefoot.optim._averaging import Averaging
from surefoot.optim._geometry import Euclidean, Geometry
from surefoot.optim._settings import Estimate, Settings, check_bound, check_rate, settings
from surefoot.theory.models import Model, Step

_SKIPPED, _VIOLATIONS, _BOUND, _DELTA, _GRAD_SQ = 1, 2, 4, 5, 6
"""Places in ``progress``, a tensor of the first group for all: count, skipped, violations, value, bound, δ, ‖g‖²."""
_SIZE, _MOMENTUM = range(2)
"""Places in the tensor ``own`` of every group."""


class ModelBased(Optimizer):
    r"""Gradient descent whose step size comes from a model of the loss: model × geometry × averaging.

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
        beta: share of the past in the running average of linearisations (MoMo); 0 is no averaging.
        averaging: in place of ``beta``: :class:`Linearisations` or :class:`HeavyBall`.
        weight_decay: λ, a number.
        weight_decay_mode: ``"decoupled"``: x ← (1 − αλ)x before the step, which ignores it; ``"prox"``: λ/2‖x‖² is part
            of the proximal problem (Linear, Truncated, SquareRoot), and δ is the index of f + λ/2‖·‖².
        lower_bound: C, a number, ``"estimate"`` (MoMo's online rule), or :class:`Estimate`.
        max_grad_norm: clip by scaling α with min{1, max_grad_norm/‖g‖}, where g is the gradient that the model sees.
            Clipping the gradients themselves beforehand shrinks ‖g‖ but not F: a Polyak step is then too long by up
            to the inverse of the clip factor.
        on_nonfinite: ``"skip"`` leaves parameters and averages untouched and counts, if loss or gradient are not finite
            or the loss is below C; ``"raise"`` raises ``ValueError`` then, for which it has to wait for the device.
        process_group: the loss is averaged over this group, so that every rank takes the same step; ``"auto"`` is the
            default group if there is one, None never communicates.
        foreach: use torch's operations on lists (default) or loop over the parameters (False).
        fused: on CPU tensors, torch's fused Adam kernel for the :class:`Diagonal` geometry; needs scratch memory of the
            parameters' size. On other devices compile the step instead: ``torch.compile(opt.step)``.

    The loss is handed to :meth:`step`, returned by its closure, or added beforehand by :meth:`add_loss`.

    >>> import torch
    >>> from surefoot.theory.models import SquareRoot
    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> opt = ModelBased([x], lr=1.0, model=SquareRoot())
    >>> loss = 0.5 * x.square().sum()
    >>> loss.backward()
    >>> _ = opt.step(loss=loss)
    >>> x.detach(), opt.last_step.size.item()
    (tensor([1.5000, 2.0000]), 0.5)
    """

    _settings: Settings

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        *,
        model: Model,
        geometry: Geometry | None = None,
        beta: float = 0.0,
        averaging: Averaging | None = None,
        weight_decay: float = 0.0,
        weight_decay_mode: str = "decoupled",
        lower_bound: float | str | Estimate = 0.0,
        max_grad_norm: float | None = None,
        on_nonfinite: str = "skip",
        process_group: Any = "auto",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        self._settings = settings(
            model=model,
            geometry=Euclidean() if geometry is None else geometry,
            beta=beta,
            averaging=averaging,
            weight_decay_mode=weight_decay_mode,
            lower_bound=lower_bound,
            max_grad_norm=max_grad_norm,
            on_nonfinite=on_nonfinite,
            process_group=process_group,
            foreach=foreach,
            fused=fused,
        )
        self._added: Tensor | float | None = None
        self._scratch: dict[Tensor, Tensor] = {}
        check_rate("lr", lr)
        check_rate("weight_decay", weight_decay)
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group with its own ``lr`` and ``weight_decay``."""
        for name in ("lr", "weight_decay"):
            if name in param_group:
                check_rate(name, param_group[name])
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            if not p.is_floating_point() or hasattr(p, "device_mesh"):
                self.param_groups.pop()
                kind = f"one of dtype {p.dtype}" if not hasattr(p, "device_mesh") else "a DTensor (use DDP, not FSDP)"
                raise TypeError(f"parameters must be real floating-point tensors, whole on every rank, got {kind}")
        self._complete()

    def _complete(self) -> None:
        """Give every group the tensors that it lacks: a new group, or one from a checkpoint of an older version."""
        device = self._device()
        dtype = _scalar_dtype(device)
        for index, group in enumerate(self.param_groups):
            group.setdefault("weight_decay", 0.0)
            fresh = {"own": [0.0] * 2}
            if index == 0:
                fresh["progress"] = [0.0] * 7
                fresh["progress"][_BOUND] = self._initial_bound
            for name, values in fresh.items():
                old = group.get(name)
                if isinstance(old, Tensor) and old.numel() == len(values):
                    group[name] = old.to(device, dtype)
                else:
                    known = old.tolist() if isinstance(old, Tensor) else []
                    group[name] = torch.tensor(known + values[len(known) :], dtype=dtype).to(device)

    @property
    def _initial_bound(self) -> float:
        bound = self._settings.lower_bound
        return bound.floor if isinstance(bound, Estimate) else bound

    def _device(self) -> torch.device:
        """Where the scalars live: with the first parameter."""
        for group in self.param_groups:
            for p in group["params"]:
                device: torch.device = p.device
                return device
        return torch.device("cpu")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_settings": self._settings, "_added": self._added, "_scratch": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._complete()

    @property
    def last_step(self) -> Step:
        """The last step: ``size`` (t·α; one entry a group, in their order, if the rates differ) and ``delta``.

        Both are copies, on the parameters' device. A step that was skipped has size 0, and δ = ∞ if loss or gradient
        were not finite.
        """
        lrs = [group["lr"] for group in self.param_groups]
        same = all(lr is lrs[0] or (not isinstance(lr, Tensor) and lr == lrs[0]) for lr in lrs)
        sizes = [group["own"].unbind()[_SIZE] for group in self.param_groups]
        return Step(sizes[0].clone() if same else torch.stack(sizes), self._noted(_DELTA))

    @property
    def last_grad_sq(self) -> Tensor:
        """‖g‖² of the last step's gradient over all groups, before averaging and clipping: a copy, as ``last_step``."""
        return self._noted(_GRAD_SQ)

    @property
    def skipped(self) -> Tensor:
        """How many steps were skipped because the loss or the gradient was not finite."""
        return self._noted(_SKIPPED)

    @property
    def violations(self) -> Tensor:
        """How often the loss was below its lower bound (such a step is skipped, or an estimated bound lowered)."""
        return self._noted(_VIOLATIONS)

    @property
    def lower_bound(self) -> Tensor:
        """The lower bound of the last step; the current estimate if it is estimated."""
        return self._noted(_BOUND)

    def _noted(self, place: int) -> Tensor:
        return self._progress.unbind()[place].clone()

    @property
    def _progress(self) -> Tensor:
        progress: Tensor = self.param_groups[0]["progress"]
        return progress

    def add_loss(self, loss: Tensor | float) -> None:
        """Add a loss to the one that the coming :meth:`step` uses.

        For gradient accumulation, and for frameworks that call ``step()`` without a loss: call it once a micro batch,
        with the loss as it was differentiated (divided by the number of micro batches, if the mean is meant).
        :meth:`step` uses the sum and clears it; so does :meth:`zero_grad`.
        """
        loss = _scalar(loss)
        self._added = loss if self._added is None else self._added + loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and the losses that belong to them."""
        super().zero_grad(set_to_none)
        self._added = None

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        loss: Tensor | float | None = None,
        lower_bound: Tensor | float | None = None,
    ) -> Any:
        """Take a step with the loss of this batch: as ``loss=``, from the closure, or from :meth:`add_loss`.

        Args:
            closure: computes the loss and its gradients, and returns the loss.
            loss: the loss whose gradients are in place; it is not differentiated.
            lower_bound: the lower bound of this batch's loss, in place of the constructor's.

        Returns the loss. Without any loss it is an error, unless every rate is 0: then the state is created and nothing
        else happens, which distributed checkpointing relies on.
        """
        given = [n for n, x in (("closure", closure), ("loss", loss), ("add_loss", self._added)) if x is not None]
        if len(given) > 1:
            raise ValueError(f"the loss was given more than once: by {' and by '.join(given)}")
        bound = self._bound_of_step(lower_bound)
        returned = loss
        if closure is not None:
            with torch.enable_grad():
                returned = closure()
            if returned is None:
                raise ValueError("closure must return the loss, got None")
        value = self._added if self._added is not None else (None if returned is None else _scalar(returned))
        if value is None and not all(float(group["lr"]) == 0.0 for group in self.param_groups):
            raise ValueError(
                f"{type(self).__name__}.step needs the loss: step(loss=loss), step(closure), or add_loss(loss) before"
            )
        ops = self._arithmetic()
        shares = self._shares(ops)
        if value is None:
            return None
        self._added = None
        if any(share.params for share in shares):
            self._advance(ops, shares, value, bound)
        return value if returned is None else returned

    def _advance(self, ops: Host | Device, shares: list[Share], value: Tensor | float, bound: Any) -> None:
        """Run the algorithm, and write down what it says."""
        progress = self._progress
        active = [share for share in shares if share.params]
        if isinstance(ops, Host):
            count, skipped, violations, average, estimate, *_ = progress.tolist()
            loss, bound = self._agree(float(value), None if bound is None else float(bound))
            past = Progress(count, average, estimate)
            outcome = advance(self._settings, ops, active, loss, self._current(bound, estimate), past)
            self._raise_if_bad(outcome, loss, bound)
            skipped += not outcome.finite
            violations += bool(outcome.violated and outcome.finite)
            new = outcome.progress
            values = [new.count, skipped, violations, new.value, new.bound, outcome.delta, outcome.grad_sq]
        else:
            loss, bound = self._agree(_to(value, progress), None if bound is None else _to(bound, progress))
            count, skipped, violations, average, estimate, *_ = progress.unbind()
            past = Progress(count, average, estimate)
            outcome = advance(self._settings, ops, active, loss, self._current(bound, estimate), past)
            self._raise_if_bad(outcome, loss, bound)
            bad = torch.logical_not(outcome.finite).to(progress.dtype)
            violated = (outcome.violated & outcome.finite).to(progress.dtype)
            new = outcome.progress
            values = [
                new.count,
                skipped + bad,
                violations + violated,
                new.value,
                new.bound,
                outcome.delta,
                outcome.grad_sq,
            ]
        _write(progress, values)
        sizes = iter(zip(outcome.sizes, outcome.momenta, strict=True))
        for group, share in zip(self.param_groups, shares, strict=True):
            if share.params:
                _write(group["own"], next(sizes))

    def _current(self, bound: Scalar, estimate: Scalar) -> Scalar:
        """The lower bound of this step: its own, the estimated one, or the constructor's."""
        if bound is not None:
            return bound
        return estimate if isinstance(self._settings.lower_bound, Estimate) else self._settings.lower_bound

    def _raise_if_bad(self, outcome: Outcome, loss: Scalar, bound: Scalar) -> None:
        """With ``on_nonfinite="raise"``: say what was wrong. On a device this waits for the values."""
        if self._settings.on_nonfinite != "raise":
            return
        if not bool(outcome.finite):
            what = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {float(loss)}"
            raise ValueError(f"{what}; the parameters are unchanged")
        if bool(outcome.violated) and not isinstance(self._settings.lower_bound, Estimate):
            bound = self._initial_bound if bound is None else bound
            raise ValueError(
                f"the loss {float(loss)} is below lower_bound {float(bound)}; the parameters are unchanged"
            )

    def _bound_of_step(self, lower_bound: Tensor | float | None) -> Tensor | float | None:
        if lower_bound is None:
            return None
        if not self._settings.bounded or isinstance(self._settings.lower_bound, Estimate):
            kind = "an estimated bound" if self._settings.bounded else "the linear model"
            raise ValueError(f"lower_bound of a single step does not go with {kind}, got {lower_bound!r}")
        if isinstance(lower_bound, Tensor):
            return _scalar(lower_bound, "lower_bound")
        check_bound(lower_bound)
        return lower_bound

    def _arithmetic(self) -> Host | Device:
        # One look at each group: if other devices hide behind its first parameter, Host is slower there, not wrong.
        groups = self.param_groups
        if not torch.compiler.is_compiling() and all(g["params"][0].is_cpu for g in groups if g["params"]):
            for group in self.param_groups:
                check_rate("lr", group["lr"])
            return Host(self._settings.foreach)
        progress = self._progress
        return Device(self._settings.foreach, progress.device, progress.dtype)

    def _shares(self, ops: Host | Device) -> list[Share]:
        shares = []
        for group in self.param_groups:
            params: list[Tensor] = []
            grads: list[Tensor] = []
            buffers: list[list[Tensor]] = [[] for _ in self._settings.buffer_names]
            self._init_group(group, params, grads, *buffers)
            average = buffers.pop(0) if self._settings.averaging else []
            scratch: list[Tensor] = []
            lr, momentum = group["lr"], group["own"].unbind()[_MOMENTUM]
            if isinstance(ops, Host):
                lr, momentum = float(lr), float(momentum)
                if self._settings.fused:
                    scratch = [self._scratch_for(p) for p in params]
                    grads = [_laid_out_as(g, p) for g, p in zip(grads, params, strict=True)]
            elif isinstance(lr, Tensor):
                lr = _to(lr, momentum)
            shares.append(Share(lr, group["weight_decay"], params, grads, average, buffers, scratch, momentum))
        return shares

    def _scratch_for(self, p: Tensor) -> Tensor:
        """Room of the parameter's size that is reused in every step; not part of the state."""
        room = self._scratch.get(p)
        if room is None or room.shape != p.shape or room.dtype != p.dtype or room.stride() != p.stride():
            room = self._scratch[p] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return room

    def _init_group(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], *buffers: list[Tensor]
    ) -> None:
        """Collect the group's parameters with a gradient, their gradients and buffers; create what is missing."""
        found = [p.grad for p in group["params"]]
        if any(grad is None for grad in found):
            params.extend(p for p, grad in zip(group["params"], found, strict=True) if grad is not None)
            grads.extend(grad for grad in found if grad is not None)
        else:
            params.extend(group["params"])
            grads.extend(found)
        for layout in {grad.layout for grad in grads}:
            if layout is not torch.strided:
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients (layout {layout})")
        for name, buffer in zip(self._settings.buffer_names, buffers, strict=True):
            for p in params:
                state = self.state[p]
                if name not in state:
                    state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
                buffer.append(state[name])

    def _agree(self, loss: Scalar, bound: Scalar) -> tuple[Scalar, Scalar]:
        """Loss and bound as means over the process group, in one small all-reduce."""
        group = self._settings.process_group
        if group is None or not distributed.is_available() or not distributed.is_initialized():
            return loss, bound
        group = None if group == "auto" else group
        size = distributed.get_world_size(group)
        if size == 1:
            return loss, bound
        values = [loss] if bound is None else [loss, bound]
        on_host = not isinstance(loss, Tensor)
        sums = torch.tensor(values, dtype=torch.float64) if on_host else torch.stack(values)
        distributed.all_reduce(sums, group=group)
        means = (sums / size).tolist() if on_host else list(sums / size)
        return means[0], None if bound is None else means[1]


def _scalar_dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64


def _scalar(loss: Any, name: str = "loss") -> Tensor | float:
    """The loss detached, if it is one real number."""
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise ValueError(f"{name} must have one element, got a tensor of shape {tuple(loss.shape)}")
        if loss.is_complex():
            raise TypeError(f"{name} must be real, got a tensor of dtype {loss.dtype}")
        return loss.detach() if loss.ndim == 0 else loss.detach().reshape(())
    if isinstance(loss, int | float):
        return float(loss)
    raise TypeError(f"{name} must be a number or a tensor of one element, got {type(loss).__name__}")


def _to(value: Tensor | float, like: Tensor) -> Tensor:
    """A 0-d tensor beside another; a number becomes one by a fill, which needs no copy from the host."""
    if isinstance(value, Tensor):
        return value.detach().reshape(()).to(like.device, like.dtype, non_blocking=True)
    return torch.full((), value, dtype=like.dtype, device=like.device)


def _laid_out_as(grad: Tensor, p: Tensor) -> Tensor:
    """The gradient with the parameter's strides."""
    return grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)


def _write(target: Tensor, values: Sequence[Scalar]) -> None:
    """Fill a vector in place with scalars of either kind."""
    if isinstance(values[0], Tensor):
        torch._foreach_copy_(target.unbind(), list(values))
    else:
        target.numpy()[:] = values  # shares the memory, and is faster than a tensor on the way
