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

_REPORT = ("skipped", "violations", "grad_sq", "delta")
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


class ReportingOptimizer(Optimizer):
    """Base of all optimizers here: torch's interface, and what is known about the steps.

    All numbers that are kept from one step to the next are in one vector in the first parameter group, ``memory``, so
    that they are in the checkpoint, and no step has to read them. A skipped step leaves them alone, but for those that
    report it.
    """

    def __init__(self, params: Any, defaults: dict[str, Any], *, on_nonfinite: str, process_group: Any) -> None:
        if on_nonfinite not in ("skip", "raise"):
            raise ValueError(f"on_nonfinite must be one of 'skip', 'raise', got {on_nonfinite!r}")
        if isinstance(process_group, str) and process_group != "auto":
            raise ValueError(f'process_group must be "auto", None or a process group, got {process_group!r}')
        refuse_partition()
        self._on_nonfinite, self._process_group = on_nonfinite, process_group
        self._start()
        super().__init__(params, defaults)

    def _start(self) -> None:
        """What is not in a checkpoint or a copy."""
        self._steps, self._warned, self._started = 0, False, True

    def _memory(self) -> Mapping[str, float]:
        """Names and initial values of what a step takes from the one before: a ``count``, a ``bound``, and others."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group with its own ``lr`` and ``weight_decay``."""
        kept = ("memory", "memory_names", "turn")  # of another optimizer that was made of the same groups
        param_group = {name: value for name, value in param_group.items() if name not in kept}
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

    def _check_group(self, group: dict[str, Any]) -> None:
        """Refuse a group that the optimizer cannot serve."""

    def _complete(self) -> None:
        """Bring the kept numbers into the form that this optimizer wants: for new groups, and after loading."""
        params = [p for group in self.param_groups for p in group["params"]]
        device = params[0].device if params else torch.device("cpu")
        self._like = torch.zeros((), dtype=scalar_dtype(device), device=device)
        self._sharded = any(is_distributed(p) for p in params)
        first, learned = self.param_groups[0], self._memory()
        old = dict(zip(first.get("memory_names", ()), first.get("memory", ()), strict=True))
        start = {**learned, **dict.fromkeys(_REPORT, 0.0)}
        start |= {f"size_{place}": 0.0 for place in range(len(self.param_groups))}
        per_group = ("size_", "momentum_")  # of groups that are no longer there
        if unknown := [name for name in old if name not in start and not name.startswith(per_group)]:
            warnings.warn(
                f"the checkpoint was written by another kind of {type(self).__name__}: its {', '.join(unknown)} "
                "are not used",
                stacklevel=4,
            )
        numbers = [torch.as_tensor(old.get(name, value)).to(self._like) for name, value in start.items()]
        first["memory_names"], first["memory"] = tuple(start), torch.stack(numbers)
        self._learned = torch.arange(len(start), device=device) < len(learned)
        self._count = float(self._kept("count"))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint; distributed ones leave out a state that is empty."""
        super().load_state_dict({"state": {}, **state_dict})

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_started", "_losses", "_scratch", "_zero_grad_profile_name")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_started" not in self.__dict__:  # a copy; load_state_dict comes here too
            self._start()
        for group in self.param_groups:
            if isinstance(group.get("betas"), list):  # from a file that knows no tuples
                group["betas"] = tuple(group["betas"])
        self._complete()

    def __repr__(self) -> str:
        groups = []
        for group in self.param_groups:
            options = [f"{name}={group[name]}" for name in ("lr", "weight_decay", "momentum", "betas") if name in group]
            count = sum(p.numel() for p in group["params"])
            groups.append(f"{len(group['params'])} tensors with {count} elements, {', '.join(options)}")
        return f"{type(self).__name__}({'; '.join(groups)})"

    # What is known about the steps: copies, on the parameters' device.

    def _kept(self, name: str) -> Tensor:
        first = self.param_groups[0]
        value: Tensor = first["memory"][first["memory_names"].index(name)]
        return value.clone()

    @property
    def last_step(self) -> Step:
        """The last step: ``size`` (t·α; one entry per group, in their order, if the rates differ) and ``delta``.

        A group without any gradient has the size that its step would have had. A step that was skipped has size 0, and
        δ = ∞ if loss or gradient were not finite.
        """
        lrs = [group["lr"] for group in self.param_groups]
        same = all(lr is lrs[0] or (not isinstance(lr, Tensor) and lr == lrs[0]) for lr in lrs)
        sizes = self.param_groups[0]["memory"][-len(lrs) :]
        return Step(sizes[0].clone() if same else sizes.clone(), self._kept("delta"))

    @property
    def last_grad_sq(self) -> Tensor:
        """‖g‖² of the last step's gradient over all groups, before averaging and clipping."""
        return self._kept("grad_sq")

    @property
    def skipped(self) -> Tensor:
        """How many steps were skipped because the loss or the gradient was not finite."""
        return self._kept("skipped")

    def _scalar(self, value: Tensor | float) -> Tensor:
        """A number or a tensor of one element as a scalar; a number becomes one by a fill, which waits for nothing."""
        if isinstance(value, Tensor):
            return value.detach().reshape(()).to(self._like)
        return torch.full_like(self._like, value)

    # What is kept.

    def _past(self) -> dict[str, Tensor]:
        """The numbers that were kept, by name."""
        first = self.param_groups[0]
        return dict(zip(first["memory_names"], first["memory"].unbind(), strict=True))

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
        kept, bad = self.param_groups[0]["memory"], ~finite
        skipped, violations = kept[-len(sizes) - len(_REPORT)], kept[-len(sizes) - len(_REPORT) + 1]
        violations = violations if violated is None else violations + (violated & finite)
        delta, *sizes = torch.stack([delta, *sizes]).masked_fill(skip, 0.0).unbind()
        names = self.param_groups[0]["memory_names"][: -len(sizes) - len(_REPORT)]
        report = [skipped + bad, violations, grad_sq, delta.masked_fill(bad, math.inf), *sizes]
        new = torch.stack([*[memory[name] for name in names], *report])
        kept.copy_(torch.where(skip & self._learned, kept, new))
        if not torch.compiler.is_compiling():
            self._notice_skipped(loss, finite, skip, memory["bound"])

    def _notice_skipped(self, loss: Tensor, finite: Tensor, skip: Tensor, bound: Tensor) -> None:
        """With ``on_nonfinite="raise"`` an error, else one warning where all steps since the last look were skipped."""
        self._steps += 1
        due = self._steps == _FIRST or self._steps % (_LATER if self._like.is_cpu else _ON_A_DEVICE) == 0
        is_raised = self._on_nonfinite == "raise" and bool(skip)
        before = self._count
        if due and not is_raised:
            self._count = float(self._kept("count"))
        if not is_raised and (self._warned or not due or before != self._count):
            return
        cure = "the training has diverged, or the data are broken"
        if not bool(finite):
            why = "the gradient is not finite" if math.isfinite(float(loss)) else f"the loss is {float(loss):g}"
        else:
            why = f"the loss {float(loss):g} is below lower_bound={float(bound):g}"
            cure = 'give a lower_bound that no loss is below, or lower_bound="level", which needs none'
        if is_raised:
            raise ValueError(f"{why}; the parameters are unchanged")
        self._warned = True
        when = "its first" if self._steps == _FIRST else "many"
        warnings.warn(f"{type(self).__name__} has skipped {when} steps in a row: {why}; {cure}", stacklevel=5)


class LossOptimizer(ReportingOptimizer):
    """Base of the optimizers that want to know the loss: they receive it from ``loss.backward()``.

    A loss can also be handed to ``step``, returned by its closure, or added beforehand by :meth:`add_loss`.
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
        self._listen, self.maximize = bool(listen), bool(maximize)
        super().__init__(params, defaults, on_nonfinite=on_nonfinite, process_group=process_group)

    def _start(self) -> None:
        super()._start()
        self._losses = Losses(self, listen=self._listen, sample=True)

    def _complete(self) -> None:
        super()._complete()
        self._losses.attach()

    def step(self, closure: Callable[[], Any] | None = None, *, loss: Tensor | float | None = None) -> Any:
        """Take a step with the loss of this batch: received from ``loss.backward()``, or handed over."""
        raise NotImplementedError

    @property
    def violations(self) -> Tensor:
        """How often the loss was below its lower bound (such a step is skipped, or an estimated bound lowered)."""
        return self._kept("violations")

    @property
    def lower_bound(self) -> Tensor:
        """The lower bound of the last step; the current estimate if it is estimated."""
        return self._kept("bound")

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
    ) -> tuple[Any, Tensor | None, Tensor | None]:
        """What ``step`` returns, the loss f that is minimised, and c if gradients were multiplied by it (clipped).

        Without any loss it is an error, unless every rate is 0: then f is None.
        """
        check_closure(closure, ": a loss is handed over as step(loss=loss)")
        losses, returned = self._losses, None
        earlier, forgotten = losses.received, losses.forgotten
        if closure is not None:
            with torch.enable_grad():
                returned = closure()
        ways = (("closure", returned), ("loss", loss), ("add_loss", losses.added))
        given = [(name, value) for name, value in ways if value is not None]
        if len(given) > 1:
            raise ValueError(f"the loss was given more than once: by {' and by '.join(name for name, _ in given)}")
        name, value = given[0] if given else ("backward", losses.pending)
        if value is None:
            if all(float(group["lr"]) == 0.0 for group in self.param_groups):
                return None, None, None
            why = losses.doubt or "it has received none, from no loss.backward()"
            raise ValueError(
                f"{type(self).__name__}.step needs the loss ({why}): step(loss=loss), step(closure), or "
                "add_loss(loss) before"
            )
        number = scalar(value)
        if name == "closure" and earlier is not None and forgotten == losses.forgotten:
            number = number + scalar(earlier)  # gradients of earlier backward passes, which the closure has kept
        factor = losses.clip_factor(number)
        losses.forget()
        return value, self._scalar(-number if self.maximize else number), factor

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
        kinds = {(grad.device, grad.dtype, grad.layout) for grad in grads}
        for *_, layout in kinds:
            if layout is not torch.strided:
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients (layout {layout})")
        if self.maximize and grads:
            grads = list(torch._foreach_neg(grads))
        if not self._sharded and len(kinds) == 1:
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
