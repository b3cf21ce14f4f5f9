"""Putting a trainer, its model, its data and all random numbers back, bit for bit."""

from __future__ import annotations

import argparse
import functools
import operator
import random
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

_DESCENDED = (types.SimpleNamespace, argparse.Namespace)
"""Classes of the standard library whose objects are looked into."""
_ATOMS = (str, bytes, int, float, complex, type(None), type)
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_SOURCES = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
"""What random numbers come from, apart from the global generators."""


class Snapshot:
    """All that can change of some objects, and of everything that they refer to; :meth:`restore` puts it back in place.

    Objects keep their identity: the same parameters, lists and dicts get their old content again, and tensors their old
    memory. Data sets are looked at from outside only, for counters and random generators: their items are not copied.

    Args:
        *roots: Where to begin; these are looked into in any case.
        data: Further classes that hold data.
        skip: Classes whose objects are not touched, and so need not be put back.
    """

    def __init__(self, *roots: Any, data: tuple[type, ...] = (), skip: tuple[type, ...] = ()) -> None:
        self._data = (Dataset, *data)
        self._seen: dict[int, Any] = {}
        """All objects by identity; it keeps them alive, so that no other object gets the same one."""
        self._undo: list[Callable[[], None]] = []
        self._random = random_states()
        waiting = [inner for root in roots for inner in self._visit(root)]
        while waiting:
            value = waiting.pop()
            if not isinstance(value, skip):
                waiting.extend(self._visit(value))

    def restore(self) -> None:
        """Put everything back; Ctrl-C waits until that is done."""
        with _uninterrupted():
            for undo in self._undo:
                undo()
            set_random_states(self._random)

    def _visit(self, value: Any) -> list[Any]:
        """Remember what a value holds; the values to go on with."""
        if isinstance(value, _ATOMS + _CODE) or id(value) in self._seen:
            return []
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            if value.dtype != object and value.flags.writeable:
                self._undo.append(functools.partial(np.copyto, value, value.copy()))
            return []
        if isinstance(value, _SOURCES):
            self._undo.append(functools.partial(set_source, value, source_state(value)))
            return []
        if isinstance(value, self._data):
            self._refill_later(vars(value))
            return [inner for inner in vars(value).values() if isinstance(inner, _SOURCES + self._data)]
        if isinstance(value, dict):
            self._refill_later(value)
            return [*value.values(), *getattr(value, "__dict__", {}).values()]
        if isinstance(value, list | deque | set):
            self._refill_later(value)
            return list(value)
        if isinstance(value, tuple | frozenset):
            return list(value)
        if isinstance(value, functools.partial):
            return [value.func, *value.args, *value.keywords.values()]
        if isinstance(value, types.MethodType):
            return [value.__self__]
        if not hasattr(value, "__dict__") or (_is_standard(value) and not isinstance(value, _DESCENDED)):
            return []
        self._refill_later(vars(value))
        return list(vars(value).values())

    def _refill_later(self, live: Any) -> None:
        content = dict(live) if isinstance(live, dict) else list(live)
        self._undo.append(functools.partial(_refill, live, content))

    def _tensor(self, value: Tensor) -> list[Any]:
        with torch.no_grad():
            memory, content = value.data, value.data.clone()
        leaf, needed = value.is_leaf, value.requires_grad
        grad = value.grad if leaf else None

        def undo() -> None:
            with torch.no_grad():
                rewrite(memory, content)
                if value.data_ptr() != memory.data_ptr() or value.shape != memory.shape:
                    value.data = memory
            if leaf:
                value.requires_grad_(needed)
                value.grad = grad

        self._undo.append(undo)
        return [] if grad is None else [grad]


def rewrite(live: Tensor, content: Tensor) -> None:
    """Fill a tensor with what it has held; elements that share their memory (``expand``) are written once."""
    for dim, stride in enumerate(live.stride() if live.layout is torch.strided else ()):
        if stride == 0 and live.shape[dim] > 1:
            live, content = live.narrow(dim, 0, 1), content.narrow(dim, 0, 1)
    with torch.inference_mode(live.is_inference()):
        live.copy_(content)


def random_states() -> dict[str, Any]:
    """The states of the global generators of Python, NumPy and torch, as tensors, numbers and strings."""
    legacy: Any = np.random.get_state(legacy=True)  # noqa: NPY002
    kind, keys, place, has_gauss, gauss = legacy
    numpy = [str(kind), torch.from_numpy(keys.astype(np.int64)), int(place), int(has_gauss), float(gauss)]
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"python": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state(), "cuda": cuda}


def set_random_states(states: dict[str, Any]) -> None:
    """Put the global generators where they were."""
    random.setstate(states["python"])
    kind, keys, place, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), place, has_gauss, gauss))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])


def sources(*holders: Any) -> list[Any]:
    """The generators that data loaders, their samplers and data sets have of their own."""
    generators: list[Any] = []
    waiting, seen = list(holders), set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _SOURCES):
            generators.append(value)
        elif isinstance(value, list | tuple) and len(value) < 100:
            waiting.extend(value)
        elif isinstance(value, torch.utils.data.DataLoader | torch.utils.data.Sampler | Dataset):
            waiting.extend(vars(value).values())
    return generators


def seed_source(source: Any, seed: int) -> None:
    """Seed a generator of any kind."""
    if isinstance(source, torch.Generator):
        source.manual_seed(seed)
    elif isinstance(source, np.random.Generator):
        source.bit_generator.state = type(source.bit_generator)(seed).state
    else:
        source.seed(seed)


def source_state(source: Any) -> Any:
    """The state of a generator of any kind."""
    if isinstance(source, torch.Generator):
        return source.get_state()
    if isinstance(source, np.random.Generator):
        return source.bit_generator.state
    return source.get_state() if isinstance(source, np.random.RandomState) else source.getstate()


def set_source(source: Any, state: Any) -> None:
    """Give a generator of any kind its state back."""
    if isinstance(source, np.random.Generator):
        source.bit_generator.state = state
    elif isinstance(source, random.Random):
        source.setstate(state)
    else:
        source.set_state(state)


def _refill(live: Any, content: Any) -> None:
    """Give a container what it has held, unless it still does."""
    is_same = len(live) == len(content) and all(map(operator.is_, live, content))
    if is_same and isinstance(live, dict):
        is_same = all(map(operator.is_, live.values(), content.values()))
    if not is_same:
        live.clear()
        (live.extend if isinstance(live, list | deque) else live.update)(content)


def _is_standard(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in sys.stdlib_module_names


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *call: heard.append(call))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard and callable(before):
            before(*heard[0])
