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
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
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
_SILENT = (logging.Logger, weakref.ref, type(threading.Lock()), type(threading.RLock()))
"""Objects that no number depends on."""
_OF_CLASSES = {
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__match_args__",
    "__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__dataclass_fields__",
    "__dataclass_params__", "__slots__", "__classcell__", "__repr__",
}  # fmt: skip
"""Attributes of a class that its user has not written, or that are hashed elsewhere."""


class Walk:
    """Hashes values, and notes on the way what the hash rests on.

    A value that is met inside of itself counts as how far outside it is; one that is met again is not hashed again.
    """

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.unknown: list[str] = []
        self._used: set[str] = set()
        self._known: dict[int, bytes] = {}
        self._alive: list[Any] = []  # so that no address is used twice
        self._around: list[int] = []
        self._path: list[str] = []

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
        for kinds, method in _KINDS:
            if isinstance(value, kinds):
                return method(self, value)
        torch = sys.modules.get("torch")
        if torch is not None:
            if isinstance(value, torch.Tensor):
                return self._tensor(value)
            if isinstance(value, torch.nn.Module):
                return self._torch_module(value)
            if isinstance(value, torch.Generator):
                return self._all("Generator", value.device.type, value.get_state())
            if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
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
        values = list(value)
        extra = [] if type(value) in (tuple, list) else [self._instance(value, inside=True)]
        return _hash(type(value).__name__, *(self._labelled(f"[{k}]", item) for k, item in enumerate(values)), *extra)

    def _set(self, value: Iterable[Any]) -> bytes:
        extra = [] if type(value) in (set, frozenset) else [self._instance(value, inside=True)]
        # The order of a set differs from process to process.
        return _hash("set", *sorted(self.digest(item) for item in value), *extra)

    def _dict(self, value: Any) -> bytes:
        entries = [
            part
            for key, item in list(value.items())
            for part in (self.digest(key), self._labelled(f"[{key!r}]" if isinstance(key, str | int) else "[…]", item))
        ]
        extra = [] if type(value) in (dict, MappingProxyType) else [self._instance(value, inside=True)]
        return _hash("dict", *entries, *extra)

    def _named(self, values: dict[str, Any]) -> bytes:
        """Values by name, whose order tells nothing."""
        entries = [part for name in sorted(values) for part in (name.encode(), self._labelled(name, values[name]))]
        return _hash("named", *entries)

    def _array(self, value: Any) -> bytes:
        if value.dtype.hasobject:
            return self._all("objects", value.shape, value.ravel().tolist())
        parts = [np.ascontiguousarray(value).reshape(-1).view(np.uint8).data]
        if isinstance(value, np.ma.MaskedArray):
            parts = [
                np.ascontiguousarray(part).view(np.uint8).data for part in (value.filled(), np.ma.getmaskarray(value))
            ]
        content = [hashlib.blake2b(part).digest() for part in parts]
        if not is_foreign(type(value)):
            content.append(self._instance(value, inside=True))
        kind = value.dtype.descr if value.dtype.names else value.dtype.str
        return _hash("array", f"{kind}{value.shape}".encode(), *content)

    def _tensor(self, value: Any) -> bytes:
        import torch

        hooks = [
            *(value._backward_hooks or {}).values(),
            *(getattr(value, "_post_accumulate_grad_hooks", None) or {}).values(),
        ]
        about = [str(value.dtype), list(value.shape), value.device.type, value.requires_grad, hooks]
        plain = value.detach()
        try:
            if plain.layout is not torch.strided:
                plain = plain.to_dense()
            content = plain.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        except Exception:  # without numbers of its own, as on the device "meta"
            return self._unknown(value) if value.device.type != "meta" else self._all("tensor", *about)
        return self._all("tensor", *about, content)

    # Code.

    def _codes(self, value: CodeType) -> bytes:
        return self._all("code", *_code.parts(value))

    def _function(self, value: FunctionType) -> bytes:
        value = getattr(value, "_torchdynamo_orig_callable", value)
        cells = {
            name: _content(cell) for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        }
        if is_foreign(value):
            hashed = self._name(value.__module__, value.__qualname__)
            # One that a package has made around a function of yours, as torch.vmap does.
            return _hash("made", hashed, self._all("cells", *cells.values())) if cells else hashed
        module = value.__module__ or "<made>"
        full = f"{module}.{value.__qualname__}"
        code = self._note(full, self._codes(value.__code__))
        self._path.append(full)
        hashes = [code, self._labelled("defaults", value.__defaults__), self._named(value.__kwdefaults__ or {})]
        hashes += [self._noted(f"{full}[{name}]", name, cell) for name, cell in cells.items()]
        attributes = {name: item for name, item in vars(value).items() if name != "__wrapped__"}
        hashes.append(self._named(attributes))
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

    def _partial(self, value: Any) -> bytes:
        return _hash("partial", self.digest(value.func), self.digest(value.args), self._named(value.keywords))

    def _module(self, value: ModuleType) -> bytes:
        if package_of(value.__name__) is not None:
            return self._name(value.__name__, "")
        return self._named({name: item for name, item in vars(value).items() if not name.startswith("__")})

    def _class(self, value: type) -> bytes:
        name = f"{value.__module__}.{value.__qualname__}"
        if is_foreign(value):
            changed = {  # by somebody else, as in torch.nn.Linear.forward = mine
                key: item
                for key, item in vars(value).items()
                if isinstance(item, FunctionType) and not is_foreign(item)
            }
            hashed = self._name(value.__module__, value.__qualname__)
            return _hash("changed", hashed, self._named(changed)) if changed else hashed
        if issubclass(value, enum.Enum):
            kinds = (FunctionType, property, classmethod, staticmethod, functools.cached_property)
            written = {key: item for key, item in vars(value).items() if isinstance(item, kinds)}
            values = [(member.name, member.value) for member in value.__members__.values()]
            return _hash("enum", value.__qualname__.encode(), self.digest(values), self._named(written))
        self._path.append(name)
        hashes = [value.__qualname__.encode(), *(self.digest(base) for base in value.__bases__)]
        if not is_foreign(type(value)):
            hashes.append(self.digest(type(value)))
        for key, item in sorted(vars(value).items()):
            if key in _OF_CLASSES or key.startswith("__pydantic_") or isinstance(item, _DESCRIPTORS):
                continue
            hashes += [key.encode(), self._noted(f"{name}.{key}", key, item, package_of(type(item).__module__))]
        if is_dataclass(value):
            hashes += [self._all("field", f.name, f.default, f.default_factory, f.init) for f in fields(value)]
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
            if "state_dict" in name:
                continue  # hooks of saving and loading
            if name in ("_parameters", "_buffers", "_modules"):
                item = list(item.items())
            elif "_hooks" in name and isinstance(item, dict):
                item = list(item.values())  # their keys count up over the whole process
            values[name] = item
        return _hash("module", self.digest(type(value)), self._named(values))

    def _instance(self, value: Any, inside: bool = False) -> bytes:
        """Any other object: its class and what it holds; ``inside`` leaves out the content of containers."""
        kind = type(value)
        if isinstance(value, _SILENT):
            return _hash("silent", kind.__qualname__.encode())
        if callable(getattr(value, "fingerprint", None)) and not inside:
            return _hash("told", self.digest(kind), str(value.fingerprint()).encode())
        if isinstance(value, enum.Enum):
            return self._all("member", kind, value.name)
        if inside or not is_foreign(kind):
            content = [] if inside else _built_in(value)
            return _hash("object", self.digest(kind), self._named(_held(value)), *map(self.digest, content))
        try:
            reduce = copyreg.dispatch_table.get(kind)
            reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception:  # whatever it is, it cannot be written down
            return self._unknown(value)
        if isinstance(reduced, str):
            module = getattr(value, "__module__", None) or kind.__module__
            is_there = getattr(sys.modules.get(module), reduced, None) is value  # not one made of a function of yours
            return self._name(module, reduced) if is_there else self._unknown(value)
        hashes = [self.digest(kind), self.digest(reduced[0]), self.digest(reduced[1])]
        if len(reduced) > 2:
            is_plain = isinstance(reduced[2], dict) and all(isinstance(name, str) for name in reduced[2])
            hashes.append(self._named(reduced[2]) if is_plain else self.digest(reduced[2]))
        hashes += [self._sequence(list(items)) for items in reduced[3:5] if items is not None]
        return _hash("reduced", *hashes)

    def _unknown(self, value: Any) -> bytes:
        kind = type(value).__qualname__
        self.unknown.append(f"{self.where()} ({kind})" if self.where() else f"the {kind}")
        return _hash("unknown", kind.encode())


_DESCRIPTORS = (MemberDescriptorType, GetSetDescriptorType)

_KINDS: list[tuple[Any, Callable[[Walk, Any], bytes]]] = [
    (FunctionType, Walk._function),
    (type, Walk._class),
    (CodeType, Walk._codes),
    (MethodType, lambda walk, value: walk._all("method", value.__func__, value.__self__)),
    (BuiltinFunctionType, Walk._builtin),
    (functools.partial, Walk._partial),
    (
        (staticmethod, classmethod, functools._lru_cache_wrapper),
        lambda walk, value: walk._all(type(value).__name__, value.__wrapped__),
    ),
    (property, lambda walk, value: walk._all("property", value.fget, value.fset, value.fdel)),
    (functools.cached_property, lambda walk, value: walk._all("cached_property", value.func)),
    (ModuleType, Walk._module),
    ((np.ndarray, np.generic), Walk._array),
    ((tuple, list), Walk._sequence),
    ((set, frozenset), Walk._set),
    ((dict, MappingProxyType), Walk._dict),
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


def _built_in(value: Any) -> list[Any]:
    """What an object of a class of yours holds because its class is derived from another: a float, a deque, a date."""
    kind = type(value)
    if not any(base is not object and is_foreign(base) for base in kind.__mro__):
        return []
    if any(isinstance(getattr(kind, name), FunctionType) for name in ("__reduce__", "__reduce_ex__")):
        return []  # it says itself how it is written down, which may be anything
    try:
        _, arguments, _, *items = (*value.__reduce_ex__(4), None, None, None)[:5]
        return [part for part in (*arguments, *(list(part) for part in items if part is not None)) if part is not kind]
    except Exception:  # whatever it holds, it cannot be written down
        return []


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
