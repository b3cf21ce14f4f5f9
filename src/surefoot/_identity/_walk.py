"""The walk over values: every kind of value as a hash of its parts."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    DynamicClassAttribute,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from surefoot._identity import _code
from surefoot._identity._packages import is_foreign, package_of, version_of

_ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range, np.dtype)
_SILENT = (logging.Logger, type(threading.Lock()), type(threading.RLock()))
"""Objects that no number depends on."""
_OF_CLASSES = {
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__match_args__",
    "__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__slots__", "__classcell__",
    "_value2member_map_", "__slotnames__",
}  # fmt: skip
"""Attributes of a class that its user has not written, or that are hashed elsewhere."""
_OF_SAVING = {
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
}  # fmt: skip
"""Attributes of a module of torch that have to do with saving only."""


class Walk:
    """Hashes values, and notes on the way what the hash rests on.

    A value inside of itself is hashed as the number of levels between the two; one that is met again is not walked
    again. Tensors and modules of torch that are met again count as the same ones: tied weights train differently.
    """

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.unknown: list[str] = []
        self._used: set[str] = set()
        self._known: dict[int, bytes] = {}
        self._shared: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no address is used twice
        self._around: list[int] = []
        self._path: list[str] = []

    def all_of(self, values: tuple[Any, ...]) -> bytes:
        """The hash of values, and of what was changed in torch if they use it."""
        hashed = self.digest(values)
        if "torch" in self._used:
            from surefoot._identity import _torch

            if settings := _torch.settings():
                hashed = self._all("settings", hashed, self._note("settings of torch", self._named(settings)))
        return hashed

    def packages(self) -> dict[str, str]:
        """Versions of the packages that were met."""
        versions = {name: version_of(name) for name in sorted(self._used)}
        return {name: version for name, version in versions.items() if version and not version.startswith("Python")}

    def where(self) -> str:
        """The path to the value that is being hashed, for messages."""
        return ".".join(self._path[-3:])

    def digest(self, value: Any) -> bytes:
        """The hash of a value."""
        kind, place = type(value), id(value)
        if kind in _ATOMS:
            return _hash(kind.__name__, repr(value).encode())
        if place in self._shared:
            return self._all("again", self._shared[place])
        if place in self._known:
            return self._known[place]
        if place in self._around:
            return self._all("around", len(self._around) - self._around.index(place))
        self._around.append(place)
        try:
            hashed = self._of(value)
        finally:
            self._around.pop()
        self._known[place] = hashed
        self._alive.append(value)
        return hashed

    def _of(self, value: Any) -> bytes:
        if (of_container := _CONTAINERS.get(type(value))) is not None:
            return of_container(self, value)
        for kinds, method in _KINDS:
            if isinstance(value, kinds):
                return method(self, value)
        torch = sys.modules.get("torch")
        if torch is not None:
            if isinstance(value, torch.Tensor | torch.nn.Module):
                hashed = self._tensor(value) if isinstance(value, torch.Tensor) else self._torch_module(value)
                self._shared[id(value)] = len(self._shared)
                return hashed
            if isinstance(value, torch.Generator):
                return self._all("Generator", value.device.type, value.get_state())
            if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
                self._used.add("torch")
                return self._all("torch", repr(value))
        if hasattr(value, "tocoo") and hasattr(value, "nnz"):  # a sparse matrix, whose flags depend on who used it
            entries = value.tocoo()
            return self._all("sparse", value.format, value.shape, entries.row, entries.col, entries.data)
        if callable(value) and hasattr(value, "__qualname__") and is_foreign(type(value)):
            inner = getattr(value, "__wrapped__", None) or getattr(value, "_torchdynamo_inline", None)
            if inner is not None:  # compiled from a function of yours, as by torch.jit.script
                return self._all("compiled", type(value), inner)
            # Methods and wrappers of types that are written in C.
            return self._name(getattr(value, "__module__", None) or "builtins", value.__qualname__)
        return self._instance(value)

    def _all(self, kind: str, *values: Any) -> bytes:
        """The hash of something that is made of these values."""
        return _hash(kind, *(self.digest(value) for value in values))

    def _labelled(self, label: str, value: Any) -> bytes:
        self._path.append(label)
        try:
            return self.digest(value)
        finally:
            self._path.pop()

    def _name(self, module: str, qualname: str) -> bytes:
        """Something of a package: its name, and the package's version. Compiled code of yours: the file it is in."""
        package = package_of(module)
        if package is None:
            file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
            if not file.is_file():
                return self._unknown(qualname)
            return self._note(f"{module}.{qualname}", self._all("name", qualname, file.read_bytes()))
        self._used.add(package)
        return self._all("name", f"{module}.{qualname} {version_of(package)}")

    def _note(self, name: str, hashed: bytes) -> bytes:
        self.parts[name] = hashed[:6].hex()
        return hashed

    def _unknown(self, value: Any) -> bytes:
        kind = type(value).__qualname__
        self.unknown.append(f"{self.where()} ({kind})" if self.where() else f"the {kind}")
        return self._all("unknown", kind)

    # What is made of other values.

    def _named(self, values: dict[str, Any]) -> bytes:
        """Values by name, whose order tells nothing."""
        return self._all("named", *[(name, self._labelled(name, values[name])) for name in sorted(values)])

    def _array(self, value: Any) -> bytes:
        if value.dtype.hasobject:
            return self._all("objects", value.shape, value.ravel().tolist())
        content = hashlib.blake2b(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data).digest()
        kind = value.dtype.descr if value.dtype.names else value.dtype.str
        return self._all("array", f"{kind}{value.shape}", content)

    def _tensor(self, value: Any) -> bytes:
        import torch

        hooks = [
            *(value._backward_hooks or {}).values(),
            # Optimizers that listen for their loss have hooks there, which change nothing.
            *(
                hook
                for hook in (getattr(value, "_post_accumulate_grad_hooks", None) or {}).values()
                if not getattr(hook, "__module__", "").startswith("surefoot.optim.")
            ),
        ]
        about = [type(value), vars(value), str(value.dtype), value.device.type, value.requires_grad, hooks]
        if torch.nn.parameter.is_lazy(value):  # it has neither a shape nor numbers before its first batch
            return self._all("tensor", *about)
        about.append(list(value.shape))
        if value.device.type == "meta":
            return self._all("tensor", *about)
        plain = value.detach().as_subclass(torch.Tensor)
        try:
            dense = plain if plain.layout is torch.strided else plain.to_dense()
            return self._all("tensor", *about, dense.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        except Exception:  # without numbers of its own
            return self._unknown(value)

    # Code.

    def _function(self, value: FunctionType) -> bytes:
        value = getattr(value, "_torchdynamo_orig_callable", value)
        cells = {
            name: _content(cell) for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        }
        if is_foreign(value):
            hashed = self._name(value.__globals__["__name__"], value.__code__.co_qualname)
            # One that a package has made around a function of yours, as torch.vmap does.
            return self._all("made", hashed, *cells.values()) if cells else hashed
        module = value.__globals__.get("__name__") or "<made>"
        full = f"{module}.{value.__code__.co_qualname}"
        hashes = [self._note(full, self.digest(value.__code__))]
        self._path.append(full)
        hashes += [self._labelled("defaults", value.__defaults__), self._named(value.__kwdefaults__ or {})]
        hashes += [self._noted(f"{full}[{name}]", name, cell) for name, cell in cells.items()]
        hashes.append(self._named(vars(value)))
        for name, item in _code.references(value).items():
            hashes.append(self._noted(f"{module}.{name}", name, item, package_of(getattr(item, "__module__", None))))
        self._path.pop()
        return self._all("function", *hashes)

    def _noted(self, name: str, label: str, value: Any, package: str | None = None) -> bytes:
        """The hash of a value that a function refers to; plain values are parts of the identity with a name."""
        hashed = self._labelled(label, value)
        if not callable(value) and not isinstance(value, ModuleType) and package in (None, "builtins"):
            self._note(name, hashed)
        return hashed

    def _builtin(self, value: Any) -> bytes:
        owner = getattr(value, "__self__", None)
        if owner is None or isinstance(owner, ModuleType):
            return self._name(value.__module__ or "builtins", value.__qualname__)
        return self._all("bound", value.__qualname__, owner)

    def _wrapper(self, value: Any, names: tuple[str, ...]) -> bytes:
        return self._all(type(value).__name__, *(getattr(value, name) for name in names))

    def _module(self, value: ModuleType) -> bytes:
        if package_of(value.__name__) is not None:
            return self._name(value.__name__, "")
        names = {name: item for name, item in vars(value).items() if not name.startswith("__") or name == "__getattr__"}
        return self._named(names)

    def _class(self, value: type) -> bytes:
        name = f"{value.__module__}.{value.__qualname__}"
        if is_foreign(value):
            # What somebody else has put there, as in torch.nn.Linear.forward = mine, is found in torch's settings.
            return self._name(value.__module__, value.__qualname__)
        self._path.append(name)
        hashes: list[Any] = [value.__qualname__, *value.__bases__, None if is_foreign(type(value)) else type(value)]
        for key, item in sorted(vars(value).items()):
            if key in _OF_CLASSES or key.startswith("__pydantic_") or isinstance(item, _DESCRIPTORS):
                continue
            hashes += [key, self._noted(f"{name}.{key}", key, item, package_of(type(item).__module__))]
        for key, field in sorted(vars(value).get("__pydantic_fields__", {}).items()):
            hashes += [key, field.default, field.default_factory]
        hashed = self._all("class", *hashes)
        self._path.pop()
        return hashed

    # Objects.

    def _torch_module(self, value: Any) -> bytes:
        if type(value).__name__ == "OptimizedModule":  # of torch.compile
            value = value._orig_mod
        values: dict[str, Any] = {}
        for name, item in vars(value).items():
            if name in ("_parameters", "_buffers", "_modules"):
                item = list(item.items())
            elif "_hooks" in name and isinstance(item, dict):
                item = list(item.values())  # their keys count up over the whole process
            if name not in _OF_SAVING:
                values[name] = item
        return self._all("module", type(value), self._named(values))

    def _instance(self, value: Any) -> bytes:
        """Any other object: its class, and what it holds or would be written down as."""
        kind = type(value)
        if isinstance(value, _SILENT):
            return self._all("silent", kind.__qualname__)
        if isinstance(value, _code.Dynamic):
            self.unknown.append(f"{value.name} in {self._path[-2] if len(self._path) > 1 else 'the code'}")
            return self._all("unknown", value.name)
        if callable(getattr(value, "fingerprint", None)):
            return self._all("fingerprint", kind, str(value.fingerprint()))
        if is_foreign(kind):
            module = sys.modules.get(kind.__module__)
            for name, item in vars(module).items() if module else ():
                if item is value:  # the one that the package itself holds, as behind random.random
                    return self._name(kind.__module__, name)
            return self._reduced(value)
        held = self._all("object", kind, self._named(_held(value)))
        if all(base is object or not is_foreign(base) or base.__module__ == "typing" for base in kind.__mro__):
            return held
        return self._all("derived", held, self._reduced(value))

    def _reduced(self, value: Any) -> bytes:
        """An object as it would be written down by pickle; of one of yours without its attributes."""
        kind = type(value)
        try:
            reduce = copyreg.dispatch_table.get(kind)
            reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception:  # whatever it is, it cannot be written down
            return self._unknown(value)
        if isinstance(reduced, str):
            module = getattr(value, "__module__", None) or kind.__module__
            is_there = getattr(sys.modules.get(module), reduced, None) is value  # not one made of a function of yours
            return self._name(module, reduced) if is_there else self._unknown(value)
        function, arguments, state, *items = (*reduced, None, None, None)[:5]
        if not is_foreign(kind):
            arguments = [part for part in arguments if part is not kind]  # whose hash is that of the object's class
            state = None if _is_usual(kind) else state
        return self._all("reduced", function, *arguments, state, *(list(part) for part in items if part is not None))


_DESCRIPTORS = (MemberDescriptorType, GetSetDescriptorType)

_CONTAINERS: dict[type, Callable[[Walk, Any], bytes]] = {
    tuple: lambda walk, value: walk._all("tuple", *value),
    list: lambda walk, value: walk._all("list", *value[:]),
    **dict.fromkeys((dict, MappingProxyType), lambda walk, value: walk._all("dict", *chain(*list(value.items())))),
    # The order of a set differs from process to process.
    **dict.fromkeys((set, frozenset), lambda walk, value: walk._all("set", *sorted(map(walk.digest, value)))),
    np.ndarray: Walk._array,
}
"""Hashed by their entries; classes derived from them may hold more."""

_KINDS: list[tuple[Any, Callable[[Walk, Any], bytes]]] = [
    (FunctionType, Walk._function),
    (type, Walk._class),
    (CodeType, lambda walk, value: walk._all("code", *_code.parts(value))),
    (BuiltinFunctionType, Walk._builtin),
    (ModuleType, Walk._module),
    (np.generic, Walk._array),
    (weakref.ref, lambda walk, value: walk._all("reference", value())),
    (MethodType, partial(Walk._wrapper, names=("__func__", "__self__"))),
    (partial, partial(Walk._wrapper, names=("func", "args", "keywords"))),
    ((staticmethod, classmethod, functools._lru_cache_wrapper), partial(Walk._wrapper, names=("__wrapped__",))),
    ((property, DynamicClassAttribute), partial(Walk._wrapper, names=("fget", "fset", "fdel"))),
]


def _held(value: Any) -> dict[str, Any]:
    """The attributes of an object, in a dictionary or in slots, without what it has computed from the others."""
    state = object.__getstate__(value)
    parts = state if isinstance(state, tuple) else (state,)
    return {
        name: item
        for part in parts
        for name, item in (part or {}).items()
        if not isinstance(inspect.getattr_static(type(value), name, None), functools.cached_property)
    }


def _is_usual(kind: type) -> bool:
    """Whether the state of an object, as it would be written down, is its attributes."""
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    return all(getattr(kind, name, None) is getattr(object, name, None) for name in names)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put into it yet
        return None


def _hash(kind: str, *parts: bytes) -> bytes:
    state = hashlib.blake2b(f"{kind} {len(parts)}:".encode(), digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()
