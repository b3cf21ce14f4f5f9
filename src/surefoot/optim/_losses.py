"""Receiving the loss: what ``loss.backward()`` differentiates is what the coming ``step()`` wants to know.

Every parameter of a listening optimizer has a hook that autograd calls when it has received a gradient, and
``torch.autograd.backward`` (which ``Tensor.backward`` calls) is wrapped. The hooks say which optimizers a backward pass
concerns; after the pass the wrapper, in the thread that has called it, notes the loss for these and looks at no others.
When the last listening optimizer is gone, torch is as it was.

A loss that was received belongs to the gradients that are in place: it is summed as they are, divided where a
``GradScaler`` divides them, and forgotten where they are. Where that cannot be followed, the optimizer has a *doubt*,
and a step without an explicit loss says so.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from surefoot.optim._clipping import GradientSample, version
from surefoot.optim._distributed import has_ranks, is_distributed, local, whole
from surefoot.optim._tensors import WIDE

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
        self.listens = listen
        self.thread = threading.get_ident()
        """The thread that has used the optimizer last."""
        self._added_late = False
        """Whether a loss was added when its gradients were in place."""
        self._mark: tuple[int, int] | None = None
        self._samples = sample
        self._sample: GradientSample | None = None
        self._optimizer = weakref.ref(optimizer)
        self._hooks: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Handles of the hooks by parameter."""
        self._frozen: list[weakref.ref[Tensor]] = []
        if listen:
            _listeners.add(self, self._hooks)
            if hasattr(optimizer, "param_groups"):
                self.attach()

    @property
    def pending(self) -> Tensor | float | None:
        """The loss of a step that is given none."""
        return self.added if self.added is not None else None if self.doubt else self.received

    def attach(self) -> None:
        """Put a hook on every parameter that has none: for new parameter groups, and for frozen ones that are free."""
        new = [p for p in self._params() if p not in self._hooks and not is_distributed(p)] if self.listens else []
        self._frozen = [weakref.ref(p) for p in new if not (p.requires_grad and p.is_leaf)]
        for p in new:
            if p.requires_grad and p.is_leaf:
                self._hooks[p] = p.register_post_accumulate_grad_hook(_hook(self))  # type: ignore[no-untyped-call]

    def add(self, loss: Tensor | float) -> None:
        """Take a loss that is given by hand."""
        has_gradient = self._first_grad() is not None
        if self.received is not None and not has_gradient:
            self.forget()  # of gradients that are gone: the step was left out
        self._added_late = has_gradient
        self.added = loss if self.added is None else self.added + loss

    def forget(self) -> None:
        """Forget everything."""
        self.added, self.received, self.doubt, self._mark, self._added_late = None, None, None, None, False
        self._sample = None
        self.forgotten += 1
        if torch.compiler.is_compiling():
            return
        self.thread = threading.get_ident()
        if any(p is not None and p.requires_grad for p in (ref() for ref in self._frozen)):
            self.attach()

    def divide(self, scale: Tensor) -> None:
        """Follow the gradients, which were divided."""
        if self.received is not None:
            self.received = self.received / scale.to(self.received.device, self.received.dtype)
            self._remember_gradients()

    def clip_factor(self, loss: Tensor | float) -> Tensor | None:
        """c, if all gradients were multiplied by one c since the backward pass, clipped by hand for example; else None.

        A loss that is not the one that was received belongs to the gradients as they are.
        """
        if self._sample is None or self.received is None or self.doubt or torch.compiler.is_compiling():
            return None
        factor = self._sample.factor()
        if factor is None:
            return None
        received = self.received.to(factor)
        another = (received - torch.as_tensor(loss).to(factor)).abs() > 1e-3 * received.abs()
        return torch.where(another, 1.0, factor)

    def check(self) -> None:
        """Before a backward pass: forget losses whose gradients are gone, and notice gradients that were changed."""
        if self.received is None and self.doubt is None:
            return
        first = self._first_grad()
        if first is None:
            if self.added is not None and not self._added_late:
                self.received = None  # added before its backward pass, which is the one that comes
            elif not (self.doubt is _SHARDED and self.is_sharded()):
                self.forget()
        elif self._mark != version(first):
            if all(p.grad is None or not bool(local(p.grad).any()) for p in self._params()):
                self.forget()
            else:
                self.doubt = self.doubt or _CHANGED

    def versions(self) -> list[tuple[int, int] | None]:
        """What the gradients are: to be compared before and after a backward pass, where there are no hooks."""
        return [version(p.grad) for p in self._params()]

    def receive(self, roots: list[tuple[Any, Tensor | None]]) -> None:
        """Take the losses of a backward pass that has changed the gradients."""
        if len(roots) > 1 and self.is_sharded():
            self.doubt = _ROOTS
            return
        param_ids = {id(p) for p in self._params()} if len(roots) > 1 else set()
        for root, gradient in roots:
            if len(roots) > 1 and param_ids.isdisjoint(_leaves(root)):
                continue
            if not isinstance(root, Tensor) or root.numel() != 1 or root.is_complex():
                self.doubt = _SEVERAL
                return
            loss = _copied(whole(root.detach()))
            if gradient is not None:
                loss = loss * gradient.detach().reshape(())
            self.received = loss if self.received is None else self.received + loss
        self._remember_gradients()

    def is_sharded(self) -> bool:
        """Whether the optimizer has sharded parameters, in which autograd does not accumulate by itself."""
        return any(is_distributed(p) for p in self._params())

    def belongs_to(self, optimizer: Any) -> bool:
        """Whether these are the losses of this optimizer."""
        return self._optimizer() is optimizer

    def _remember_gradients(self) -> None:
        self._mark = version(self._first_grad())
        self._sample = GradientSample.of(list(self._params())) if self._samples else None

    def _params(self) -> Iterator[Tensor]:
        optimizer = self._optimizer()
        for group in optimizer.param_groups if optimizer is not None else ():
            yield from group["params"]

    def _first_grad(self) -> Tensor | None:
        """The first gradient that there is."""
        return next((p.grad for p in self._params() if p.grad is not None), None)


def _hook(losses: Losses) -> Callable[[Tensor], None]:
    """What autograd calls when a parameter has received a gradient, in whichever thread that is."""
    reference = weakref.ref(losses)

    def note(parameter: Tensor) -> None:
        concerned = _listeners.passes.get(torch._C._current_graph_task_id())
        losses = reference()
        if concerned is not None and losses is not None:
            concerned.add(losses)

    return note


class _Listeners:
    """All that listen, and the functions of torch that are wrapped for them."""

    def __init__(self) -> None:
        self.passes: dict[int, set[Losses]] = {}
        """The running backward passes by autograd's number of them, and whose gradients each has changed."""
        self._all: weakref.WeakSet[Losses] = weakref.WeakSet()
        self._of_thread = threading.local()
        self._count = 0
        self._lock = threading.RLock()
        self._wrapped: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []
        self._unscaling: set[int] = set()

    def add(self, losses: Losses, hooks: WeakIdKeyDictionary) -> None:
        with self._lock:
            self._all.add(losses)
            self._count += 1
            weakref.finalize(losses, self._leave, hooks).atexit = False
            if not self._wrapped:
                self._wrap(torch.autograd, "backward", self._backward)
                self._wrap(torch.optim.Optimizer, "add_param_group", self._add_param_group)
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

    def _leave(self, hooks: WeakIdKeyDictionary) -> None:
        """Remove hooks, and the wrappers once nobody listens any more, unless somebody has wrapped them in turn."""
        for handle in list(hooks.values()):  # type: ignore[no-untyped-call]
            handle.remove()
        with self._lock:
            self._count -= 1
            if self._count == 0:
                for owner, name, original, wrapper in self._wrapped:
                    if getattr(owner, name) is wrapper:
                        setattr(owner, name, original)
                self._wrapped.clear()

    def _recent(self) -> weakref.WeakSet[Losses]:
        """Those that have received losses in this thread."""
        if not hasattr(self._of_thread, "recent"):
            self._of_thread.recent = weakref.WeakSet()
        recent: weakref.WeakSet[Losses] = self._of_thread.recent
        return recent

    def _of(self, optimizer: Any) -> list[Losses]:
        return [losses for losses in list(self._all) if losses.belongs_to(optimizer)]

    def _backward(
        self, original: Callable[..., Any], tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        gradients = kwargs.get("grad_variables") if grad_tensors is None else grad_tensors
        roots = _pairs(tensors, gradients)
        outer = torch._C._current_graph_task_id()
        if outer != -1:  # inside of another pass: a checkpointed part of the network, for example
            with self._following(roots, self.passes.get(outer, set())):
                return original(tensors, grad_tensors, *args, **kwargs)
        recent, me = self._recent(), threading.get_ident()
        for losses in list(recent):
            losses.check()
            if losses.received is None and losses.doubt is None:
                recent.discard(losses)
        candidates = list(self._all) if has_ranks() else []  # without ranks nothing is sharded
        sharded = [(each, each.versions()) for each in candidates if each.thread == me and each.is_sharded()]
        concerned: set[Losses] = set()
        failed = True
        try:
            with self._following(roots, concerned):
                result = original(tensors, grad_tensors, *args, **kwargs)
            failed = False
        finally:
            concerned.update(losses for losses, before in sharded if losses.versions() != before)
            for losses in concerned:
                if failed:
                    losses.doubt = _FAILED
                else:
                    losses.receive(roots)
                recent.add(losses)
        for losses, _ in sharded if not concerned else ():
            losses.doubt = _SHARDED
            recent.add(losses)
        return result

    @contextlib.contextmanager
    def _following(self, roots: list[tuple[Any, Tensor | None]], concerned: set[Losses]) -> Iterator[None]:
        """While a backward pass runs, its number leads to the set of those whose gradients it changes."""
        numbers: list[int] = []

        def begin(gradients: Any) -> None:
            numbers.append(torch._C._current_graph_task_id())
            self.passes[numbers[-1]] = concerned

        handles = []
        for root, _ in roots:
            node = getattr(root, "node", None) or getattr(root, "grad_fn", None)
            if node is not None:
                handles.append(node.register_prehook(begin))
            elif isinstance(root, Tensor) and root.requires_grad:  # a parameter is the loss
                handles.append(root.register_hook(begin))  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for number in numbers:
                self.passes.pop(number, None)

    def _add_param_group(self, original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        for losses in self._of(optimizer):
            losses.attach()
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
        for losses in self._of(optimizer) if outermost and scaler.is_enabled() else ():
            losses.divide(scaler._get_scale_async())
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
