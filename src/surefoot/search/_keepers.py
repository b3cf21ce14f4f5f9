"""Where the runs of a search are kept: those of a study in its store, others in one that is theirs alone.

Both are remembered under the same rule of identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from surefoot._identity import Identity, digest, identify, require
from surefoot.runs import IDENTITY_RULE, NUMERICS_VERSION, Key, Record, States, Store, Trace, factory_of, tell
from surefoot.search._arguments import OfRate
from surefoot.study import Study

_FILE = "runs.db"


def factories_of_study(study: Study) -> dict[str, Any]:
    """What makes the runs of each method of a study."""
    if study.every != 1:
        raise ValueError(f"every must be 1 for a search, which needs all indices, got {study.every}")
    if study.stop:
        raise ValueError(f"stop must be empty for a search, which ends runs by its own rules, got {study.stop}")
    return {method.name: factory_of(study.problem, method, study.shared) for method in study.methods}


@dataclass
class Kept:
    """Where the runs of a search are kept: finished ones of a study in its store, all others as files."""

    store: Store
    states: States

    def done(self) -> set[Key]:
        """The keys, as they are stored, of the runs that a study has finished."""
        return self.store.done(self.states.context)

    def finish(self, traces: Iterable[Trace]) -> None:
        """Commit runs of a study that have come to their end."""
        traces = [trace._replace(key=self.states.stored(trace.key)) for trace in traces]
        self.store.add(self.states.context, traces)

    def restore(self, records: Iterable[Record]) -> None:
        """Fill records with what is kept of their runs."""
        done = self.done()
        for record in records:
            if self.states.lasts:
                self.states.load(record)
            if not record.taken and (key := self.states.stored(record.key)) in done:
                trace = next(self.store.traces(self.states.context, key))
                record.lost_at = trace.diverged_at if trace.diverged_at >= 0 else None
                record.losses = trace.steps["loss"][: None if record.lost_at is None else record.lost_at + 1]
                record.evaluation = trace.final["last_loss"] if record.lost_at is None else None


@contextmanager
def kept_by_study(study: Study, store: Path) -> Iterator[Kept]:
    """The runs of a study, in its store."""
    with study._opened(store) as opened:
        yield Kept(*opened)


@contextmanager
def kept_in_memory() -> Iterator[Kept]:
    """Runs that are forgotten at the end of the search."""
    with TemporaryDirectory(prefix="surefoot-") as folder, Store.write() as store:
        yield Kept(store, States(folder))


@contextmanager
def kept_in_folder(folder: Path, factories: Mapping[str, Any], settings: dict[str, Any]) -> Iterator[Kept]:
    """The runs of a search in a folder of its own; ``settings`` are what its runs share, beside their code."""
    identities = _identities_of(factories, folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"store must be a folder, got the file {str(folder)!r}")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"store {str(folder)!r}: the folder {str(folder.parent)!r} does not exist")
    others = [path.name for path in folder.iterdir() if path.name[0] != "."] if folder.is_dir() else []
    if others and _FILE not in others:
        raise ValueError(f"store {str(folder)!r} is a folder with other things in it; give the search one of its own")
    folder.mkdir(exist_ok=True)
    text = json.dumps([settings, [code.digest for code in identities.values()]], sort_keys=True)
    context = hashlib.sha256(text.encode()).hexdigest()
    with Store.write(folder / _FILE) as store:
        stored = store.facts("search").get("settings")
        if stored is None:
            about = {name: [code.digest, dict(code.parts), dict(code.packages)] for name, code in identities.items()}
            store.remember("search", "settings", {**settings, "identity": about})
        else:
            _compare(folder, stored, settings, identities)
        with store.locked(context):
            yield Kept(store, States(str(store.states), context))


def _compare(
    folder: Path, stored: dict[str, Any], settings: dict[str, Any], identities: Mapping[str, Identity]
) -> None:
    """Refuse a folder of another search, and name what differs."""
    about = stored.pop("identity")
    for key in sorted(settings.keys() | stored.keys()):
        if stored.get(key) != settings.get(key):
            raise ValueError(
                f"store {str(folder)!r} belongs to another search: {key} is {stored.get(key)!r} there and "
                f"{settings.get(key)!r} here; give this one a folder of its own"
            )
    for name, identity in identities.items():
        stored_digest, parts, packages = about[name]
        if stored_digest != identity.digest:
            changes = identity.changes(parts, packages)
            raise ValueError(
                f"store {str(folder)!r} belongs to another search: methods differ in "
                f"{', '.join(changes[:6]) or 'data, settings or version'}; give this one a folder of its own"
            )
        tell(None, f"{folder} holds runs of this search; the match rests on {identity}")


def _identities_of(factories: Mapping[str, Any], store: Path) -> dict[str, Identity]:
    """The identity of each method's runs; an error if a store would have to guess."""
    identities = {}
    for name, factory in factories.items():
        identity, version = identity_of(factory), getattr(factory, "version", None)
        how = "Give version='1' to what makes the runs, as an argument of TorchRun or as an attribute"
        require(identity, version, f"store {str(store)!r}", how)
        full = digest(identity.digest, version, NUMERICS_VERSION, IDENTITY_RULE)
        identities[name] = replace(identity, digest=full)
    return identities


def identity_of(factory: Any) -> Identity:
    """The identity that a factory tells itself, or else that of its code and of all that this refers to.

    Of an object of a class of yours only the code counts: what it holds may change while it makes runs. Give it a
    method ``fingerprint()`` to say what counts.
    """
    if isinstance(factory, OfRate):
        factory = factory.function
    if callable(getattr(factory, "identity", None)):
        identity: Identity = factory.identity()
        return identity
    if callable(getattr(factory, "fingerprint", None)):
        return replace(identify(str(factory.fingerprint())), notes=("the fingerprint that the factory tells",))
    if isinstance(factory, FunctionType | MethodType | BuiltinFunctionType | partial | type):
        return identify(factory)
    name = type(factory).__qualname__
    return replace(identify(type(factory)), notes=(f"the code of {name}, not what the object holds",))
