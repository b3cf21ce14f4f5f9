"""What the numbers of a search's runs depend on: the same rule as for studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from surefoot._identity import Identity, digest, identify, require
from surefoot.runs import IDENTITY_RULE, NUMERICS_VERSION


def identities_of(factories: Mapping[str, Any], store: Path) -> dict[str, Identity]:
    """The identity of each method's runs; refused if a store would have to guess."""
    found = {}
    for name, factory in factories.items():
        identity, version = identity_of(factory), getattr(factory, "version", None)
        require(identity, version, f"store {str(store)!r}")
        full = digest(identity.digest, version, NUMERICS_VERSION, IDENTITY_RULE)
        found[name] = replace(identity, digest=full)
    return found


def identity_of(factory: Any) -> Identity:
    """What a factory tells about itself, or else its code and all that this refers to.

    Of an object of a class of yours only the code counts: what it holds may change while it makes runs. Give it a
    method ``fingerprint()`` to say what counts.
    """
    if isinstance(factory, FunctionType) and factory.__module__ == "surefoot.search._arguments" and factory.__closure__:
        factory = factory.__closure__[0].cell_contents  # a function of the rate alone
    if callable(getattr(factory, "identity", None)):
        told: Identity = factory.identity()
        return told
    if callable(getattr(factory, "fingerprint", None)):
        return replace(identify(str(factory.fingerprint())), notes=("the fingerprint that the factory tells",))
    if isinstance(factory, FunctionType | MethodType | BuiltinFunctionType | partial | type):
        return identify(factory)
    name = type(factory).__qualname__
    return replace(identify(type(factory)), notes=(f"the code of {name}, not what the object holds",))
