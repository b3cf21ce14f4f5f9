"""Hearing the loss: what ``loss.backward()`` differentiates is what the coming ``step()`` wants to know.

While an optimizer listens, ``torch.autograd.backward`` (which ``Tensor.backward`` calls) is wrapped. After a backward
pass the wrapper looks which optimizers' parameters have received gradients, and notes the loss for them. When the last
listening optimizer is gone, torch is as it was.

What was heard belongs to the gradients that are in place: it is summed as they are, divided where a ``GradScaler``
divides them, and forgotten where they are. Where that cannot be followed, the optimizer has a *doubt*, and a step
without an explicit loss says so.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from surefoot.optim._clipped import Sample, serves, version
from surefoot.optim._distributed import is_distributed, local, whole
from surefoot.optim._sums import WIDE

_SEVERAL = "backward() was called on a tensor of several elements, which is no loss"
_CHANGED = "the gradients were changed between two backward passes"
_FAILED = "a backward pass has failed"
_SHARDED = "a backward pass has left no gradient in the sharded parameters, so it is not known whose it was"
_ROOTS = "backward() was called on several losses at once, and which of them belong to sharded parameters is not known"


def scalar(value: Any, name: str = "loss", *, copied: bool = False) -> Tensor | float:
    """The value detached, if it is one real number; as a copy, if asked for, in which others can be added up."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} must have one element, got a tensor of shape {tuple(value.shape)}")
        if value.is_complex():
            raise TypeError(f"{name} must be real, got a tensor of dtype {value.dtype}")
        number = whole(value.detach())
        return _copied(number) if copied else number.reshape(()) if number.ndim else number
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{name} must be a number or a tensor of one element, got {type(value).__name__}")


def _copied(loss: Tensor) -> Tensor:
    """A loss of its own, in float32 or better: sums need it, and its tensor may be changed before the step."""
    copy = loss.clone() if loss.dtype in WIDE else loss.float()
    return copy.reshape(()) if copy.ndim else copy


def check_closure(closure: Any, hint: str = "") -> None:
    """Refuse a closure that is no function: the first argument of ``step`` is easily taken for the loss."""
    if closure is not None and not callable(closure):
        raise TypeError(f"closure must be a function that returns the loss, got {type(closure).__name__}{hint}")


class Losses:
    """The losses that belong to an optimizer's gradients: those it was told, and those it has heard.

    Ours have one each; whoever watches a foreign optimizer can listen for it: ``Losses(optimizer, listen=True)``, to be
    asked for ``pending`` and told to ``forget`` at every step.
    """

    def __init__(self, optimizer: Optimizer, *, listen: bool) -> None:
        self.added: Tensor | float | None = None
        """The sum of what was told."""
        self.heard: Tensor | None = None
        """The sum of what was heard."""
        self.doubt: str | None = None
        """Why what was heard cannot be used."""
        self.era = 0
        """How often everything was forgotten."""
        self._late = False
        """Whether a loss was told when its gradients were in place."""
        self._mark: tuple[int, int] | None = None
        self._sample: Sample | None = None
        self._sampled: list[Tensor] = []
        self._optimizer = weakref.ref(optimizer)
        if listen:
            _listeners.add(self)

    @property
    def pending(self) -> Tensor | float | None:
        """The loss of a step that is told none."""
        return self.added if self.added is not None else None if self.doubt else self.heard

    def add(self, loss: Tensor | float) -> None:
        """Take a loss that is told."""
        has_gradient = self._first_grad() is not None
        if self.heard is not None and not has_gradient:
            self.forget()  # of gradients that are gone: the step was left out
        self._late = has_gradient
        self.added = loss if self.added is None else self.added + loss

    def forget(self) -> None:
        """Forget everything."""
        self.added, self.heard, self.doubt, self._mark, self._late = None, None, None, None, False
        self._sample = None
        self.era += 1

    def divide(self, optimizer: Any, scale: Tensor) -> None:
        """Follow the gradients of an optimizer, which were divided."""
        if self._optimizer() is optimizer and self.heard is not None:
            self.heard = self.heard / scale.to(self.heard.device, self.heard.dtype)
            self._mark = version(self._first_grad())
            self._take_sample()

    def shrunk(self, loss: Tensor | float) -> Tensor | float:
        """What the gradients were multiplied by since the backward pass, clipped by hand for example: c, or 1.

        A loss that is not the one that was heard belongs to the gradients as they are.
        """
        if self._sample is None or self.heard is None or self.doubt or torch.compiler.is_compiling():
            return 1.0
        factor = self._sample.factor()
        if factor is None:
            return 1.0
        heard = self.heard.to(factor)
        another = (heard - torch.as_tensor(loss).to(factor)).abs() > 1e-3 * heard.abs()
        return torch.where(another, 1.0, factor)

    def _take_sample(self) -> None:
        if not self._sampled or not all(map(serves, self._sampled)):
            self._sampled = [] if self._sharded() else Sample.serving(self._params())
        self._sample = Sample(self._sampled) if self._sampled else None

    def before(self) -> list[tuple[int, int] | None] | None:
        """What the gradients are before a backward pass; None if there are none."""
        if self._first_grad() is None:
            if self.added is not None and not self._late:
                self.heard = None  # told before its backward pass, which is the one that comes
            elif not (self.doubt is _SHARDED and self._sharded()):
                self.forget()
            return None
        if (self.heard is not None or self.doubt) and self._mark != version(self._first_grad()):
            if all(p.grad is None or not bool(local(p.grad).any()) for p in self._params()):
                self.forget()
            else:
                self.doubt = self.doubt or _CHANGED
        return [version(p.grad) for p in self._params()]

    def after(self, before: list[tuple[int, int] | None] | None) -> bool:
        """Whether a backward pass has changed the gradients."""
        if before is None:
            return self._first_grad() is not None
        if self._optimizer() is None:  # collected meanwhile
            return False
        return any(version(p.grad) != old for p, old in zip(self._params(), before, strict=True))

    def hear(self, roots: list[tuple[Any, Tensor | None]]) -> None:
        """Take the losses of a backward pass that has changed the gradients."""
        if len(roots) > 1 and self._sharded():
            self.doubt = _ROOTS
            return
        param_ids = {id(p) for p in self._params()} if len(roots) > 1 else set()
        for root, gradient in roots:
            if len(roots) > 1 and param_ids.isdisjoint(_leaves(root)):
                continue
            if not isinstance(root, Tensor) or root.numel() != 1 or root.is_complex():
                self.doubt = _SEVERAL
                return
            loss = _copied(root.detach())
            if gradient is not None:
                loss = loss * gradient.detach().reshape(())
            self.heard = loss if self.heard is None else self.heard + loss
        self._mark = version(self._first_grad())
        self._take_sample()

    def miss(self) -> None:
        """Take note of a backward pass that has changed no gradients of any listening optimizer."""
        if self._sharded():
            self.doubt = _SHARDED

    def _params(self) -> Iterator[Tensor]:
        optimizer = self._optimizer()
        for group in optimizer.param_groups if optimizer is not None else ():
            yield from group["params"]

    def _first_grad(self) -> Tensor | None:
        """The first gradient that there is."""
        return next((p.grad for p in self._params() if p.grad is not None), None)

    def _sharded(self) -> bool:
        return any(is_distributed(p) for p in self._params())


class _Listeners:
    """All that listen, and the functions of torch that are wrapped for them."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Losses] = weakref.WeakSet()
        self._count = 0
        self._lock = threading.RLock()
        self._wrapped: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []
        self._unscaling: set[int] = set()

    def add(self, losses: Losses) -> None:
        with self._lock:
            self._all.add(losses)
            self._count += 1
            weakref.finalize(losses, self._leave).atexit = False
            if not self._wrapped:
                self._wrap(torch.autograd, "backward", self._backward)
                self._wrap(torch.amp.GradScaler, "__init__", self._make_scaler)
                self._wrap_scalers(torch.amp.GradScaler)

    def _wrap(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @torch.compiler.disable  # type: ignore[untyped-decorator]
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return replacement(original, *args, **kwargs)

        setattr(owner, name, wrapper)
        self._wrapped.append((owner, name, original, wrapper))

    def _wrap_scalers(self, kind: Any) -> None:
        """Wrap ``unscale_`` of a class of scalers and of its subclasses, where it is their own, as FSDP's is."""
        wrapped = [owner for owner, name, *_ in self._wrapped if name == "unscale_"]
        if "unscale_" in vars(kind) and kind not in wrapped:
            self._wrap(kind, "unscale_", self._unscale)
        for subclass in kind.__subclasses__():
            self._wrap_scalers(subclass)

    def _leave(self) -> None:
        """Undo the wrapping once nobody listens any more; whoever has wrapped on top of it keeps a hollow wrapper."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                for owner, name, original, wrapper in self._wrapped:
                    if getattr(owner, name) is wrapper:
                        setattr(owner, name, original)
                self._wrapped.clear()

    def _backward(
        self, original: Callable[..., Any], tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        nested = torch._C._current_graph_task_id() != -1  # for example a checkpointed part of the network
        listening = [] if nested else list(self._all)
        if not listening:
            return original(tensors, grad_tensors, *args, **kwargs)
        before = [losses.before() for losses in listening]
        try:
            result = original(tensors, grad_tensors, *args, **kwargs)
        except BaseException:
            for losses, old in zip(listening, before, strict=True):
                losses.doubt = _FAILED if losses.after(old) else losses.doubt
            raise
        changed = [losses for losses, old in zip(listening, before, strict=True) if losses.after(old)]
        if changed:
            gradients = kwargs.get("grad_variables") if grad_tensors is None else grad_tensors
            roots = _pairs(tensors, gradients)
            for losses in changed:
                losses.hear(roots)
        else:
            for losses in listening:
                losses.miss()
        return result

    def _make_scaler(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            if self._wrapped:
                self._wrap_scalers(torch.amp.GradScaler)  # its class may be newer than the listeners
        return original(*args, **kwargs)

    def _unscale(self, original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        outermost = id(scaler) not in self._unscaling
        self._unscaling.add(id(scaler))
        try:
            result = original(scaler, optimizer, *args, **kwargs)
        finally:
            if outermost:
                self._unscaling.remove(id(scaler))
        if outermost and scaler.is_enabled():
            for losses in list(self._all):
                losses.divide(optimizer, scaler._get_scale_async())
        return result


_listeners = _Listeners()


def _pairs(tensors: Any, gradients: Any) -> list[tuple[Any, Tensor | None]]:
    """The roots of a backward pass, with the gradients that were given for them."""
    roots = list(tensors) if isinstance(tensors, list | tuple) and not hasattr(tensors, "node") else [tensors]
    weights = list(gradients) if isinstance(gradients, list | tuple) else [gradients]
    return list(zip(roots, weights * len(roots) if len(weights) == 1 else weights, strict=True))


def _leaves(root: Any) -> set[int]:
    """The ids of the parameters that a loss depends on."""
    if getattr(root, "grad_fn", None) is None:
        return {id(root)}
    seen, leaves, todo = set(), set(), [root.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.add(id(node.variable))
        todo += [following for following, _ in node.next_functions]
    return leaves


class Listening(Optimizer):
    """What an optimizer does about losses: it is told them, hears them, and forgets them with their gradients."""

    _losses: Losses

    @property
    def pending_loss(self) -> Tensor | float | None:
        """The loss that a ``step()`` would take now: what was added, else what was heard; None if there is none."""
        return self._losses.pending

    def add_loss(self, loss: Tensor | float) -> None:
        """Add a loss to the one that the coming :meth:`step` uses.

        For gradient accumulation, and for frameworks that call ``step()`` without a loss: call it once a micro batch,
        with the loss as it was differentiated (divided by the number of micro batches, if the mean is meant).
        :meth:`step` uses the sum and clears it; so does :meth:`zero_grad`.
        """
        self._losses.add(scalar(loss, copied=True))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and the losses that belong to them."""
        super().zero_grad(set_to_none)
        self.forget_loss()

    def forget_loss(self) -> None:
        """Forget the losses that were told or heard since the last step."""
        self._losses.forget()

    def _loss_of_step(
        self, closure: Callable[[], Any] | None, loss: Tensor | float | None
    ) -> tuple[Any, Tensor | float | None]:
        """What ``step`` returns, and the loss of the backward pass."""
        losses = self._losses
        if closure is None and losses.added is None and loss is not None:
            return loss, scalar(loss)
        returned = None
        earlier, era = losses.heard, losses.era
        if closure is not None:
            with torch.enable_grad():
                returned = closure()
        ways = (("closure", returned), ("loss", loss), ("add_loss", losses.added))
        given = [(name, value) for name, value in ways if value is not None]
        if len(given) > 1:
            raise ValueError(f"the loss was given more than once: by {' and by '.join(name for name, _ in given)}")
        if not given:
            return None, None if losses.pending is None else scalar(losses.pending)
        given_loss = given[0][1]
        value = scalar(given_loss)
        if returned is not None and earlier is not None and era == losses.era:
            value = value + scalar(earlier)  # gradients of earlier backward passes, which the closure has kept
        return given_loss if losses.added is None else None, value
