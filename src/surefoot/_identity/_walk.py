"""The walk over values: every kind of value as a hash of its parts."""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
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
    "_member_map_", "_value2member_map_", "__slotnames__",
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

            settings = _torch.settings()
            if settings:
                hashed = _hash("settings", hashed, self._note("settings of torch", self._named(settings)))
        return hashed

    def packages(self) -> dict[str, str]:
        """Versions of the packages that were met."""
        versions = {name: version_of(name) for name in sorted(self._used)}
        return {name: version for name, version in versions.items() if version and not version.startswith("Python")}

    def where(self) -> str:
        """The path to the value that is being hashed, for messages."""
        path = [part for part in self._path if not part.startswith("[")]
        return ".".join(path[-3:])

    def digest(self, value: Any) -> bytes:
        """The hash of a value."""
        kind = type(value)
        if kind in _ATOMS:
            return _hash(kind.__name__, repr(value).encode())
        place = id(value)
        if place in self._shared:
            return _hash("again", str(self._shared[place]).encode())
        if place in self._known:
            return self._known[place]
        if place in self._around:
            return _hash("around", str(len(self._around) - self._around.index(place)).encode())
        self._around.append(place)
        try:
            hashed = self._of(value)
        finally:
            self._around.pop()
        self._known[place] = hashed
        self._alive.append(value)
        return hashed

    def _of(self, value: Any) -> bytes:
        if type(value) in _CONTAINERS:
            return _CONTAINERS[type(value)](self, value)
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
                return _hash("torch", repr(value).encode())
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
            return self._note(f"{module}.{qualname}", _hash("name", qualname.encode(), file.read_bytes()))
        self._used.add(package)
        return _hash("name", f"{module}.{qualname} {version_of(package)}".encode())

    def _note(self, name: str, hashed: bytes) -> bytes:
        self.parts[name] = hashed[:6].hex()
        return hashed

    # What is made of other values.

    def _sequence(self, value: Iterable[Any]) -> bytes:
        return _hash(type(value).__name__, *(self._labelled(f"[{k}]", item) for k, item in enumerate(list(value))))

    def _set(self, value: Iterable[Any]) -> bytes:
        extra = [] if type(value) in (set, frozenset) else [self.digest(type(value)), self._named(_held(value))]
        # The order of a set differs from process to process.
        return _hash("set", *sorted(self.digest(item) for item in value), *extra)

    def _dict(self, value: Any) -> bytes:
        entries = [
            part
            for key, item in list(value.items())
            for part in (self.digest(key), self._labelled(f"[{key!r}]" if isinstance(key, str | int) else "[…]", item))
        ]
        return _hash("dict", *entries)

    def _named(self, values: dict[str, Any]) -> bytes:
        """Values by name, whose order tells nothing."""
        entries = [part for name in sorted(values) for part in (name.encode(), self._labelled(name, values[name]))]
        return _hash("named", *entries)

    def _array(self, value: Any) -> bytes:
        if value.dtype.hasobject:
            return self._all("objects", value.shape, value.ravel().tolist())
        plain = (value.filled(), np.ma.getmaskarray(value)) if isinstance(value, np.ma.MaskedArray) else (value,)
        content = [
            hashlib.blake2b(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data).digest() for part in plain
        ]
        if not is_foreign(type(value)):
            content += [self.digest(type(value)), self._named(_held(value))]
        kind = value.dtype.descr if value.dtype.names else value.dtype.str
        return _hash("array", f"{kind}{value.shape}".encode(), *content)

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
        plain = value.detach().as_subclass(torch.Tensor)
        try:
            if plain.layout is not torch.strided:
                plain = plain.to_dense()
            content = plain.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        except Exception:  # without numbers of its own, as on the device "meta"
            return self._unknown(value) if value.device.type != "meta" else self._all("tensor", *about)
        return self._all("tensor", *about, content)

    # Code.

    def _function(self, value: FunctionType) -> bytes:
        value = getattr(value, "_torchdynamo_orig_callable", value)
        cells = {
            name: _content(cell) for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        }
        if is_foreign(value):
            hashed = self._name(value.__globals__["__name__"], value.__code__.co_qualname)
            # One that a package has made around a function of yours, as torch.vmap does.
            return _hash("made", hashed, self._all("cells", *cells.values())) if cells else hashed
        module = value.__globals__.get("__name__") or "<made>"
        full = f"{module}.{value.__code__.co_qualname}"
        code = self._note(full, self.digest(value.__code__))
        self._path.append(full)
        hashes = [code, self._labelled("defaults", value.__defaults__), self._named(value.__kwdefaults__ or {})]
        hashes += [self._noted(f"{full}[{name}]", name, cell) for name, cell in cells.items()]
        hashes.append(self._named(vars(value)))
        for name, item in _code.references(value).items():
            hashes.append(self._noted(f"{module}.{name}", name, item, package_of(getattr(item, "__module__", None))))
        self._path.pop()
        return _hash("function", *hashes)

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
        return _hash("bound", value.__qualname__.encode(), self.digest(owner))

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
        hashes = [value.__qualname__.encode(), *(self.digest(base) for base in value.__bases__)]
        if not is_foreign(type(value)):
            hashes.append(self.digest(type(value)))
        members = value.__members__ if issubclass(value, enum.Enum) else {}
        hashes += [self.digest([(key, member.value) for key, member in members.items()])]
        for key, item in sorted(vars(value).items()):
            if key in _OF_CLASSES or key in members or key.startswith("__pydantic_") or isinstance(item, _DESCRIPTORS):
                continue
            hashes += [key.encode(), self._noted(f"{name}.{key}", key, item, package_of(type(item).__module__))]
        of_pydantic = sorted(vars(value).get("__pydantic_fields__", {}).items())
        hashes += [self._all("field", name, item.default, item.default_factory) for name, item in of_pydantic]
        self._path.pop()
        return _hash("class", *hashes)

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
        return _hash("module", self.digest(type(value)), self._named(values))

    def _instance(self, value: Any) -> bytes:
        """Any other object: its class, and what it holds or would be written down as."""
        kind = type(value)
        if isinstance(value, _SILENT):
            return _hash("silent", kind.__qualname__.encode())
        if isinstance(value, _code.Dynamic):
            self.unknown.append(f"{value.name} in {self._path[-2] if len(self._path) > 1 else 'the code'}")
            return _hash("unknown", value.name.encode())
        if callable(getattr(value, "fingerprint", None)):
            return _hash("fingerprint", self.digest(kind), str(value.fingerprint()).encode())
        if isinstance(value, enum.Enum):
            return self._all("member", kind, value.name)
        if is_foreign(kind):
            module = sys.modules.get(kind.__module__)
            for name, item in vars(module).items() if module else ():
                if item is value:  # the one that the package itself holds, as behind random.random
                    return self._name(kind.__module__, name)
            return self._reduced(value)
        held = _hash("object", self.digest(kind), self._named(_held(value)))
        if all(base is object or not is_foreign(base) or base.__module__ == "typing" for base in kind.__mro__):
            return held
        return _hash("derived", held, self._reduced(value))

    def _reduced(self, value: Any) -> bytes:
        """An object as it would be written down by pickle; of one of yours without its attributes."""
        kind = type(value)
        own = not is_foreign(kind)
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
        hashes = [self.digest(function), *(self.digest(part) for part in arguments if part is not kind)]
        if not own:
            hashes.append(self.digest(kind))
        if state is not None and not (own and _is_usual(kind)):
            is_plain = isinstance(state, dict) and all(isinstance(name, str) for name in state)
            hashes.append(self._named(state) if is_plain else self.digest(state))
        hashes += [self._sequence(list(part)) for part in items if part is not None]
        return _hash("reduced", *hashes)

    def _unknown(self, value: Any) -> bytes:
        kind = type(value).__qualname__
        self.unknown.append(f"{self.where()} ({kind})" if self.where() else f"the {kind}")
        return _hash("unknown", kind.encode())


_DESCRIPTORS = (MemberDescriptorType, GetSetDescriptorType)
_WRAPPERS: dict[Any, tuple[str, ...]] = {
    MethodType: ("__func__", "__self__"),
    partial: ("func", "args", "keywords"),
    (staticmethod, classmethod, functools._lru_cache_wrapper): ("__wrapped__",),
    (property, DynamicClassAttribute): ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
}
"""What is made of functions, and where it holds them."""

_CONTAINERS: dict[type, Callable[[Walk, Any], bytes]] = {
    tuple: Walk._sequence,
    list: Walk._sequence,
    dict: Walk._dict,
    MappingProxyType: Walk._dict,
}
"""Hashed by their entries; classes derived from them may hold more."""

_KINDS: list[tuple[Any, Callable[[Walk, Any], bytes]]] = [
    (FunctionType, Walk._function),
    (type, Walk._class),
    (CodeType, lambda walk, value: walk._all("code", *_code.parts(value))),
    (BuiltinFunctionType, Walk._builtin),
    (ModuleType, Walk._module),
    ((set, frozenset), Walk._set),
    ((np.ndarray, np.generic), Walk._array),
    (weakref.ref, lambda walk, value: walk._all("reference", value())),
    *((kinds, partial(Walk._wrapper, names=names)) for kinds, names in _WRAPPERS.items()),
]


def _held(value: Any) -> dict[str, Any]:
    """The attributes of an object, in a dictionary or in slots, without what it has computed from the others."""
    held = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            name = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                held[name] = getattr(value, name)
    return {
        name: item
        for name, item in held.items()
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
