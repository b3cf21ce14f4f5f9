"""Receiving the loss: what ``loss.backward()`` differentiates is what the coming ``step()`` wants to know.

Every parameter of a listening optimizer has a hook that autograd (for sharded ones FSDP2) calls when it has received a
gradient, and ``torch.autograd.backward``, which ``Tensor.backward`` calls, is wrapped. The hooks say which optimizers a
backward pass concerns; after the pass the wrapper, in the thread that has called it, notes the loss for these and looks
at no others. When the last listening optimizer is gone, torch is as it was.

A loss that was received belongs to the gradients that are in place: it is summed as they are, divided where a
``GradScaler`` divides them, and forgotten where they are. Where that cannot be followed, the optimizer has a *doubt*,
and a step without an explicit loss says so.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from surefoot.optim._distributed import has_ranks, is_distributed, local, whole
from surefoot.optim._tensors import WIDE, scalar_dtype

_NO_SCALAR = "backward() was called on several losses or elements at once: call it on their sum"
_CHANGED = "the gradients were changed between two backward passes"
_FAILED = "a backward pass has failed"
_UNSYNCHRONISED = "a backward pass has left no gradient in the sharded parameters, so it is not known whose it was"
_FEW = 4
"""Elements of every gradient that are remembered, to tell what gradients were multiplied by."""


def scalar(value: Any, name: str = "loss", *, copied: bool = False) -> Tensor | float:
    """The value detached, if it is one real number.

    A copy, if asked for, is in float32 or better, in which losses can be added up.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} must have one element, got a tensor of shape {tuple(value.shape)}")
        if value.is_complex():
            raise TypeError(f"{name} must be real, got a tensor of dtype {value.dtype}")
        number = whole(value.detach())
        number = number.reshape(()) if number.ndim else number
        return number if not copied else number.clone() if number.dtype in WIDE else number.float()
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{name} must be a number or a tensor of one element, got {type(value).__name__}")


class Losses:
    """The losses that belong to an optimizer's gradients: those that were added by hand, and those received.

    Optimizers of surefoot have one each; whoever watches a foreign optimizer can listen for it:
    ``Losses(optimizer, listen=True)``, to be asked for ``pending`` and told to ``forget`` at every step.

    Args:
        optimizer: the optimizer.
        listen: receive losses from ``backward()``.
        sample: remember a few elements of the gradients, for :meth:`clip_factor`.
    """

    def __init__(self, optimizer: Optimizer, *, listen: bool, sample: bool = False) -> None:
        self.added: Tensor | float | None = None
        """The sum of the losses that were added by hand."""
        self.received: Tensor | None = None
        """The sum of the losses of backward passes."""
        self.doubt: str | None = None
        """Why what was received cannot be used."""
        self.forgotten = 0
        """How often everything was forgotten."""
        self.optimizer = weakref.ref(optimizer)
        self.is_sharded = False
        self._listens, self._samples = listen, sample
        self._added_late = False
        """Whether a loss was added when its gradients were in place."""
        self._mark: tuple[int, int] | None = None
        self._sample: Tensor | None = None
        self._hooks: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Handles of the hooks by parameter."""
        self._frozen: list[weakref.ref[Tensor]] = []
        self._groups = 0
        if listen:
            _listen(self, self._hooks)
            self.attach()

    @property
    def pending(self) -> Tensor | float | None:
        """The loss of a step that is given none."""
        return self.added if self.added is not None else None if self.doubt else self.received

    def attach(self) -> None:
        """Put a hook on every parameter that has none: for new parameter groups, and for frozen ones that are free."""
        if not self._listens:
            return
        self._groups, self._frozen = len(self._param_groups()), []
        self.is_sharded = any(is_distributed(p) for p in self._params())
        for p in self._params():
            if p.requires_grad and p.is_leaf and p not in self._hooks:
                self._hooks[p] = p.register_post_accumulate_grad_hook(_hook(self))  # type: ignore[no-untyped-call]
            elif p not in self._hooks:
                self._frozen.append(weakref.ref(p))

    def add(self, loss: Tensor | float) -> None:
        """Take a loss that is given by hand."""
        self._added_late = self._first_grad() is not None
        if self.received is not None and not self._added_late:
            self.forget()  # of gradients that are gone: the step was left out
        self.added = loss if self.added is None else self.added + loss

    def forget(self) -> None:
        """Forget everything."""
        self.added = self.received = self.doubt = self._mark = self._sample = None
        self._added_late = False
        self.forgotten += 1
        if self._listens and not torch.compiler.is_compiling():
            is_free = any(p is not None and p.requires_grad for p in (ref() for ref in self._frozen))
            if is_free or self._groups != len(self._param_groups()):
                self.attach()

    def check(self) -> None:
        """Before a backward pass: forget losses whose gradients are gone, and notice gradients that were changed."""
        if self.doubt is _UNSYNCHRONISED:
            return
        first = self._first_grad()
        if first is None and self.added is not None and not self._added_late:
            self.received = self.doubt = None  # added before its backward pass, which is the one that comes
        elif first is None:
            self.forget()
        elif self._mark != _version(first):
            if any(p.grad is not None and bool(local(p.grad).any()) for p in self._params()):
                self.doubt = self.doubt or _CHANGED
            else:
                self.forget()

    def receive(self, roots: list[Any], weights: Any, doubt: str | None = None) -> None:
        """Take the loss of a backward pass that has changed the gradients, or note why it is not known."""
        root, weight = roots[0], weights[0] if isinstance(weights, list | tuple) and weights else weights
        if len(roots) > 1 or not isinstance(root, Tensor) or root.numel() != 1 or root.is_complex():
            doubt = doubt or _NO_SCALAR
        if doubt is not None:
            self.doubt = doubt
            return
        loss: Any = scalar(root, copied=True)
        loss = loss if weight is None else loss * weight.detach().reshape(())
        self.received = loss if self.received is None else self.received + loss
        self._remember_gradients()

    def divide(self, scale: Tensor) -> None:
        """Follow the gradients, which were divided."""
        if self.received is not None:
            self.received = self.received / scale.to(self.received.device, self.received.dtype)
            self._remember_gradients()

    def clip_factor(self, loss: Tensor | float) -> Tensor | None:
        """c, if all gradients were multiplied by one c since the backward pass, clipped by hand for example; else None.

        c is 1 where they were changed in another way: a network of which a part was scaled has other gradients. A loss
        that is not the one that was received belongs to the gradients as they are. Changes that autograd does not count
        (``p.grad.data.mul_``) are not seen.
        """
        then, received = self._sample, self.received
        if then is None or received is None or self.doubt or torch.compiler.is_compiling():
            return None
        now = None if self._mark == _version(self._first_grad()) else _few_elements(list(self._params()))
        if now is None or now.shape != then.shape:
            return None
        rounding, dtype = 4 * torch.finfo(now.dtype).eps, scalar_dtype(now.device)
        now, then, received = now.to(dtype), then.to(dtype), received.to(now.device, dtype)
        factor = torch.dot(now, then) / torch.dot(then, then)
        is_factor = ((now - factor * then).abs() <= rounding * now.abs()).all() & (then.count_nonzero() >= 3)
        is_same_loss = (received - torch.as_tensor(loss).to(received)).abs() <= 1e-3 * received.abs()
        return torch.where(is_factor & (factor > 0) & factor.isfinite() & is_same_loss, factor, 1.0)

    def _remember_gradients(self) -> None:
        self._mark = _version(self._first_grad())
        self._sample = _few_elements(list(self._params())) if self._samples else None

    def _param_groups(self) -> list[dict[str, Any]]:
        return getattr(self.optimizer(), "param_groups", [])

    def _params(self) -> Iterator[Tensor]:
        for group in self._param_groups():
            yield from group["params"]

    def _first_grad(self) -> Tensor | None:
        """The first gradient that there is."""
        return next((p.grad for p in self._params() if p.grad is not None), None)


def check_closure(closure: Any, hint: str = "") -> None:
    """Refuse a closure that is no function: the first argument of ``step`` is easily taken for the loss."""
    if closure is not None and not callable(closure):
        raise TypeError(f"closure must be a function that returns the loss, got {type(closure).__name__}{hint}")


def _version(gradient: Tensor | None) -> tuple[int, int] | None:
    """Two numbers of which one changes with the gradient."""
    return None if gradient is None else (id(gradient), local(gradient)._version)


def _few_elements(params: list[Tensor]) -> Tensor | None:
    """A few elements of every gradient as one vector; None where they are on several devices, sparse or sharded."""
    few: list[Tensor] = []
    for grad in [p.grad for p in params if p.grad is not None]:
        size = grad.numel()
        if is_distributed(grad) or grad.layout is not torch.strided:
            return None
        if grad.is_contiguous():
            few.append(torch.as_strided(grad.detach(), (min(_FEW, size),), (max(1, size // _FEW),)))
        else:
            few.append(grad.detach().select(-1, 0).reshape(-1)[:_FEW])
    return torch.cat(few) if len({part.device for part in few}) == 1 else None


# Those that listen, and the functions of torch that are wrapped for them.

_all: set[weakref.ref[Losses]] = set()
_wrapped: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []
_lock = threading.RLock()
_passes: dict[int, set[Losses]] = {}
"""The running backward passes by autograd's number of them, and whose gradients each has changed."""
_of_thread = threading.local()
"""``recent``: those that have received losses in this thread, and may not have used them."""


def _alive() -> list[Losses]:
    return [losses for losses in (reference() for reference in list(_all)) if losses is not None]


def _listen(losses: Losses, hooks: WeakIdKeyDictionary) -> None:
    reference = weakref.ref(losses)
    with _lock:
        if not _all:
            _wrap(torch.autograd, "backward", _backward)
            _wrap(torch.amp.GradScaler, "unscale_", _unscale)
        sharded = getattr(sys.modules.get("torch.distributed.fsdp.sharded_grad_scaler"), "ShardedGradScaler", None)
        if sharded is not None and all(owner is not sharded for owner, *_ in _wrapped):  # unscale_ is its own there
            _wrap(sharded, "unscale_", _unscale)
        _all.add(reference)
    weakref.finalize(losses, _leave, reference, hooks)


def _leave(reference: weakref.ref[Losses], hooks: WeakIdKeyDictionary) -> None:
    """Remove hooks, and the wrappers once nobody listens any more, unless somebody has wrapped them in turn."""
    for handle in list(hooks.values()):  # type: ignore[no-untyped-call]
        handle.remove()
    with _lock:
        _all.discard(reference)
        for owner, name, original, wrapper in () if _all else _wrapped:
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)
        if not _all:
            _wrapped.clear()


def _wrap(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    setattr(owner, name, wrapper)
    _wrapped.append((owner, name, original, wrapper))


def _hook(losses: Losses) -> Callable[[Tensor], None]:
    """What autograd calls when a parameter has received a gradient, in whichever thread that is."""
    reference = weakref.ref(losses)

    def note(parameter: Tensor) -> None:
        reached, losses = _passes.get(torch._C._current_graph_task_id()), reference()
        if reached is not None and losses is not None:
            reached.add(losses)

    return note


def _backward(original: Callable[..., Any], tensors: Any, weights: Any = None, *args: Any, **kwargs: Any) -> Any:
    roots = list(tensors) if isinstance(tensors, list | tuple) and not hasattr(tensors, "node") else [tensors]
    outer = torch._C._current_graph_task_id()
    if outer != -1:  # inside of another pass: a checkpointed part of the network, for example
        with _following(roots, _passes.get(outer, set())):
            return original(tensors, weights, *args, **kwargs)
    recent: weakref.WeakSet[Losses] = _of_thread.__dict__.setdefault("recent", weakref.WeakSet())
    for losses in list(recent):
        if losses.received is None and losses.doubt is None:
            recent.discard(losses)
        else:
            losses.check()
    reached: set[Losses] = set()
    doubt: str | None = _FAILED
    try:
        with _following(roots, reached):
            result = original(tensors, weights, *args, **kwargs)
        doubt = None
        return result
    finally:
        if not reached and has_ranks():  # it may be one of those after which FSDP2 does not synchronise gradients
            reached, doubt = {losses for losses in _alive() if losses.is_sharded}, _UNSYNCHRONISED
        for losses in reached:
            losses.receive(roots, weights, doubt)
        recent.update(reached)


@contextlib.contextmanager
def _following(roots: list[Any], reached: set[Losses]) -> Iterator[None]:
    """While a backward pass runs, its number leads to the set of those whose gradients it changes."""
    numbers: list[int] = []

    def begin(gradients: Any) -> None:
        numbers.append(torch._C._current_graph_task_id())
        _passes[numbers[-1]] = reached

    nodes = [getattr(root, "node", None) or getattr(root, "grad_fn", None) for root in roots]
    handles = [node.register_prehook(begin) for node in nodes if node is not None]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for number in numbers:
            _passes.pop(number, None)


def _unscale(original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(scaler, optimizer, *args, **kwargs)
    for losses in _alive() if scaler.is_enabled() else ():
        if losses.optimizer() is optimizer:
            losses.divide(scaler._get_scale_async())
    return result
