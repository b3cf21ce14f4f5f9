"""What every optimizer here has in common: torch's interface, the loss, the numbers that are kept, the parameters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim._distributed import (
    Shards,
    check_parameter,
    check_process_group,
    has_ranks,
    is_distributed,
    local,
    mean_over_ranks,
    placed_as,
    refuse_partition,
    shards_of,
)
from surefoot.optim._losses import Losses, check_closure, scalar
from surefoot.optim._tensors import scalar_dtype
from surefoot.theory.models import Step

_FIRST, _LATER, _ON_A_DEVICE = 5, 20, 1000
"""Steps after which, and then between which, counters are looked at for a warning: on a device reading them waits."""

_REPORT = ("skipped", "violations", "delta", "grad_sq")
"""Numbers about the steps; behind them come the groups' step sizes."""


def is_number(value: Any) -> bool:
    """Whether the value is a real number, which True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_rate(name: str, value: Any) -> Any:
    """A learning rate or weight decay, refused if it is no finite number of at least 0; tensors only for ``lr``.

    Numbers become Python floats: NumPy's would make a checkpoint one that ``torch.load`` refuses.
    """
    number = value
    if isinstance(value, Tensor) and name == "lr":
        if value.numel() != 1:
            raise ValueError(f"lr must be a number or a tensor of one element, got one of shape {tuple(value.shape)}")
        if value.device.type != "cpu":
            return value  # reading it would wait for the device
        number = value.item()
    if not is_number(number):
        raise TypeError(f"{name} must be a number, got {number!r}")
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {number!r}")
    return value if isinstance(value, Tensor) else float(number)


class Part(NamedTuple):
    """Parameters of a group that have a gradient, on one device, of one dtype and held by the same ranks.

    Tensors are those of this rank: a sum over their elements is this rank's part until :meth:`total` has added it up.
    """

    params: list[Tensor]
    grads: list[Tensor]
    originals: list[Tensor]
    """The parameters as the user knows them: DTensors, if they are sharded."""
    shards: Shards | None
    """The ranks that hold the other shards of all these tensors; None if they are whole."""

    def total(self, value: Tensor) -> Tensor:
        """A sum over elements of these tensors, added up over the ranks that hold shards of them."""
        return value if self.shards is None else self.shards.total(value)


class LossOptimizer(Optimizer):
    """Base of the optimizers that want to know the loss: they receive it from ``loss.backward()``.

    A loss can also be handed to ``step``, returned by its closure, or added beforehand by :meth:`add_loss`. All numbers
    that are kept from one step to the next are in two vectors in the first parameter group, so that they are in the
    checkpoint, and no step has to read them: ``memory``, which a skipped step leaves alone, and ``report``.
    """

    def __init__(
        self,
        params: Any,
        defaults: dict[str, Any],
        *,
        on_nonfinite: str,
        process_group: Any,
        listen: bool,
        maximize: bool,
    ) -> None:
        if on_nonfinite not in ("skip", "raise"):
            raise ValueError(f"on_nonfinite must be one of 'skip', 'raise', got {on_nonfinite!r}")
        check_process_group(process_group)
        refuse_partition()
        self._on_nonfinite, self._process_group = on_nonfinite, process_group
        self._listen, self.maximize = bool(listen), bool(maximize)
        self._start()
        super().__init__(params, defaults)

    def _start(self) -> None:
        """What is not in a checkpoint or a copy."""
        self._losses = Losses(self, listen=self._listen, sample=True)
        self._steps = self._idle = 0
        self._warned = False

    def _memory(self) -> Mapping[str, float]:
        """Names and initial values of the scalars that a step takes from the one before; one is the ``bound``."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group with its own ``lr`` and ``weight_decay``."""
        for name in ("lr", "weight_decay"):
            if name in param_group:
                param_group[name] = check_rate(name, param_group[name])
        super().add_param_group(param_group)
        try:
            for p in self.param_groups[-1]["params"]:
                check_parameter(p)
            self._check_group(self.param_groups[-1])
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise
        self._complete()
        self._losses.attach()

    def _check_group(self, group: dict[str, Any]) -> None:
        """Refuse a group that the optimizer cannot serve."""

    def _complete(self) -> None:
        """Bring the kept numbers into the form that this optimizer wants: for new groups, and after loading."""
        params = [p for group in self.param_groups for p in group["params"]]
        device = next((p.device for p in params), torch.device("cpu"))
        first = self.param_groups[0]
        self._like = torch.zeros((), dtype=scalar_dtype(device), device=device)
        self._sharded = any(is_distributed(p) for p in params)
        old = dict(zip(first.get("memory_names", ()), first.get("memory", ()), strict=True))
        start = dict(self._memory())
        missing = [name for name in old if name not in start and not name.startswith("momentum_")]
        if missing:
            warnings.warn(
                f"the checkpoint was written by another kind of {type(self).__name__}: its {', '.join(missing)} "
                "are not used",
                stacklevel=4,
            )
        first["memory_names"] = tuple(start)
        first["memory"] = self._vector([old.get(name, number) for name, number in start.items()])
        self._count = float(self._remembered("count"))
        report = list(first.get("report", ()))
        length = len(_REPORT) + len(self.param_groups)
        first["report"] = self._vector((report + [0.0] * length)[:length])

    def _vector(self, numbers: list[Tensor | float]) -> Tensor:
        return torch.stack([torch.as_tensor(number).to(self._like) for number in numbers])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint; distributed ones leave out a state that is empty."""
        super().load_state_dict({"state": {}, **state_dict})

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_losses", "_kept", "_zero_grad_profile_name")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_losses" not in self.__dict__:  # a copy; load_state_dict comes here too
            self._start()
        for group in self.param_groups:
            if isinstance(group.get("betas"), list):  # from a file that knows no tuples
                group["betas"] = tuple(group["betas"])
        self._complete()
        self._losses.attach()

    def __repr__(self) -> str:
        groups = []
        for group in self.param_groups:
            options = [f"{name}={group[name]}" for name in ("lr", "weight_decay", "momentum", "betas") if name in group]
            count = sum(p.numel() for p in group["params"])
            groups.append(f"{len(group['params'])} tensors with {count} elements, {', '.join(options)}")
        return f"{type(self).__name__}({'; '.join(groups)})"

    def step(self, closure: Callable[[], Any] | None = None, *, loss: Tensor | float | None = None) -> Any:
        """Take a step with the loss of this batch: received from ``loss.backward()``, or handed over."""
        raise NotImplementedError

    # What is known about the steps.

    def _reported(self, name: str) -> Tensor:
        value: Tensor = self.param_groups[0]["report"][_REPORT.index(name)]
        return value.clone()

    def _remembered(self, name: str) -> Tensor:
        first = self.param_groups[0]
        value: Tensor = first["memory"][first["memory_names"].index(name)]
        return value.clone()

    @property
    def last_step(self) -> Step:
        """The last step: ``size`` (t·α; one entry per group, in their order, if the rates differ) and ``delta``.

        Both are copies, on the parameters' device. A group without any gradient has the size that its step would have
        had. A step that was skipped has size 0, and δ = ∞ if loss or gradient were not finite.
        """
        lrs = [group["lr"] for group in self.param_groups]
        same = all(lr is lrs[0] or (not isinstance(lr, Tensor) and lr == lrs[0]) for lr in lrs)
        sizes = self.param_groups[0]["report"][len(_REPORT) :]
        return Step(sizes[0].clone() if same else sizes.clone(), self._reported("delta"))

    @property
    def last_grad_sq(self) -> Tensor:
        """‖g‖² of the last step's gradient over all groups, before averaging and clipping: a copy, as ``last_step``."""
        return self._reported("grad_sq")

    @property
    def skipped(self) -> Tensor:
        """How many steps were skipped because the loss or the gradient was not finite."""
        return self._reported("skipped")

    @property
    def violations(self) -> Tensor:
        """How often the loss was below its lower bound (such a step is skipped, or an estimated bound lowered)."""
        return self._reported("violations")

    @property
    def lower_bound(self) -> Tensor:
        """The lower bound of the last step; the current estimate if it is estimated."""
        return self._remembered("bound")

    # The loss.

    @property
    def pending_loss(self) -> Tensor | float | None:
        """The loss that a ``step()`` would take now: what was added, else what was received; None if there is none."""
        return self._losses.pending

    def add_loss(self, loss: Tensor | float) -> None:
        """Add a loss to the one that the coming ``step`` uses.

        For gradient accumulation, and for frameworks that call ``step()`` without a loss: call it once per micro batch,
        with the loss as it was differentiated (divided by the number of micro batches, if the mean is meant). The step
        uses the sum and clears it; so does :meth:`zero_grad`.
        """
        self._losses.add(scalar(loss, copied=True))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and the losses that belong to them."""
        super().zero_grad(set_to_none)
        self.forget_loss()

    def forget_loss(self) -> None:
        """Forget the losses that were added or received since the last step."""
        self._losses.forget()

    def _loss_of_step(
        self, closure: Callable[[], Any] | None, loss: Tensor | float | None
    ) -> tuple[Any, Tensor | float | None]:
        """What ``step`` returns, and the value that it works with.

        Without any loss it is an error, unless every rate is 0: then the state is created and nothing else happens,
        which distributed checkpointing relies on.
        """
        check_closure(closure, ": a loss is handed over as step(loss=loss)")
        losses = self._losses
        returned = None
        earlier, forgotten = losses.received, losses.forgotten
        if closure is not None:
            with torch.enable_grad():
                returned = closure()
        ways = (("closure", returned), ("loss", loss), ("add_loss", losses.added))
        given = {name: value for name, value in ways if value is not None}
        if len(given) > 1:
            raise ValueError(f"the loss was given more than once: by {' and by '.join(given)}")
        for name, value in given.items():
            number = scalar(value)
            if name == "closure" and earlier is not None and forgotten == losses.forgotten:
                number = number + scalar(earlier)  # gradients of earlier backward passes, which the closure has kept
            return number if name == "add_loss" else value, number
        if losses.pending is not None:
            return losses.pending, scalar(losses.pending)
        if all(float(group["lr"]) == 0.0 for group in self.param_groups):
            return None, None
        why = losses.doubt or "it has received none, from no loss.backward()"
        raise ValueError(
            f"{type(self).__name__}.step needs the loss ({why}): step(loss=loss), step(closure), or "
            "add_loss(loss) before"
        )

    def _begin(self, value: Tensor | float | None, parts: Sequence[Any]) -> tuple[Tensor | None, Tensor | None]:
        """The loss f that is minimised, and c if gradients were clipped by hand; no f if there is nothing to do."""
        if value is None:
            return None, None
        factor = self._losses.clip_factor(value) if parts else None
        self._losses.forget()
        if not parts:
            self._notice_no_gradient()
            return None, None
        return self._scalar(-value if self.maximize else value), factor

    def _scalar(self, value: Tensor | float) -> Tensor:
        """A number or a tensor of one element as a scalar; a number becomes one by a fill, which waits for nothing."""
        if isinstance(value, Tensor):
            return value.detach().reshape(()).to(self._like)
        return torch.full_like(self._like, value)

    def _agreed(self, loss: Tensor, sums: Tensor, bound: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Loss and bound of the step as means over the ranks, and whether loss and sums are finite on all of them.

        All ranks get the same bits, so that all of them take the same step or none.
        """
        probe = loss + sums
        if self._process_group is not None and has_ranks():
            sent = torch.stack([loss, 0.0 * probe, loss if bound is None else bound])
            loss, probe, mean_bound = mean_over_ranks(self._process_group, sent).unbind()
            bound = None if bound is None else mean_bound
        return loss, torch.isfinite(probe), bound

    # The parameters.

    def _parts(self, params: list[Tensor]) -> list[Part]:
        """Parameters of one group with their gradients, by device, dtype and way of being sharded."""
        params = [p for p in params if p.grad is not None]
        grads = [p.grad for p in params if p.grad is not None]
        for layout in {grad.layout for grad in grads}:
            if layout is not torch.strided:
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients (layout {layout})")
        if self.maximize and grads:
            grads = list(torch._foreach_neg(grads))
        if not self._sharded and len({(p.device, p.dtype) for p in params}) == 1:
            return [Part(params, grads, params, None)]
        parts: dict[Any, Part] = {}
        for p, grad in zip(params, grads, strict=True):
            shards = shards_of(p)
            part = parts.setdefault((shards, p.device, p.dtype), Part([], [], [], shards))
            part.params.append(local(p))
            part.grads.append(local(placed_as(grad, p)))
            part.originals.append(p)
        return list(parts.values())

    def _buffer(self, name: str, part: Part, first: Callable[[Tensor, Tensor], Tensor] | None = None) -> list[Tensor]:
        """A buffer of this name for every parameter; a new one is zero, or ``first`` of parameter and gradient."""
        states = [self.state[p] for p in part.originals]
        for p, values, grad, state in zip(part.originals, part.params, part.grads, states, strict=True):
            if name not in state:
                state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
                if first is not None:
                    local(state[name]).copy_(first(values, grad))
        return [local(state[name]) for state in states] if self._sharded else [state[name] for state in states]

    # What is kept.

    def _record(
        self,
        memory: Mapping[str, Tensor],
        loss: Tensor,
        finite: Tensor,
        skip: Tensor,
        delta: Tensor,
        grad_sq: Tensor,
        sizes: Sequence[Tensor],
        violated: Tensor | None = None,
    ) -> None:
        """Keep what the coming step wants to know, unless this one was skipped, and report in any case."""
        first = self.param_groups[0]
        kept, report = first["memory"], first["report"]
        kept.copy_(torch.where(skip, kept, torch.stack([memory[name] for name in first["memory_names"]])))
        counts = [report[0] + ~finite, report[1] if violated is None else report[1] + (violated & finite)]
        delta, *sizes = torch.stack([delta, *sizes]).masked_fill(skip, 0.0).unbind()
        report.copy_(torch.stack([*counts, delta.masked_fill(~finite, math.inf), grad_sq, *sizes]))
        if not torch.compiler.is_compiling():
            self._notice_skipped(loss, finite, skip, memory["bound"])

    def _notice_skipped(self, loss: Tensor, finite: Tensor, skip: Tensor, bound: Tensor) -> None:
        """With ``on_nonfinite="raise"`` an error, else one warning where all steps since the last look were skipped."""
        self._steps += 1
        due = self._steps == _FIRST or self._steps % (_LATER if self._like.is_cpu else _ON_A_DEVICE) == 0
        if self._on_nonfinite == "raise" and bool(skip):
            raise ValueError(f"{_why_skipped(loss, finite, bound)}; the parameters are unchanged")
        if self._warned or not due:
            return
        before, self._count = self._count, float(self._remembered("count"))
        if before == self._count:
            self._warned = True
            cure = 'give a lower_bound that no loss is below, or lower_bound="level", which needs none'
            if not bool(finite):
                cure = "the training has diverged, or the data are broken"
            when = "its first" if self._steps == _FIRST else "many"
            why = _why_skipped(loss, finite, bound)
            warnings.warn(
                f"{type(self).__name__} has skipped {when} steps in a row: {why}; {cure}",
                stacklevel=5,
            )

    def _notice_no_gradient(self) -> None:
        """Warn after some steps in which no parameter had a gradient."""
        if torch.compiler.is_compiling():
            return
        self._idle += 1
        if self._idle == _FIRST:
            warnings.warn(
                f"{type(self).__name__} has taken {_FIRST} steps in which no parameter had a gradient, and moved none "
                "of them: call loss.backward() before step(), and zero_grad() before that",
                stacklevel=4,
            )


def _why_skipped(loss: Tensor, finite: Tensor, bound: Tensor) -> str:
    if bool(finite):
        return f"the loss {float(loss):g} is below lower_bound={float(bound):g}"
    return "the gradient is not finite" if math.isfinite(float(loss)) else f"the loss is {float(loss):g}"
