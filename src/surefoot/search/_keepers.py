"""Where the runs of a search are kept, and what tells whether they are its own: the rule of studies."""

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
from surefoot.study import Study


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
def kept_in(
    path: Path | None, study: Study | None, factories: Mapping[str, Any], settings: dict[str, Any]
) -> Iterator[Kept]:
    """Where runs are kept: in a file with those of a study, or in one of the search's own; without one, until its end.

    ``settings`` are what the runs share, beside their code. A file of another search is refused, with what differs.
    """
    if path is None:
        with TemporaryDirectory(prefix="surefoot-") as folder, Store.write() as store:
            yield Kept(store, States(folder))
        return
    if study is not None:
        with study._opened(path) as opened:
            yield Kept(*opened)
        return
    identities = _identities_of(factories, path)
    about = {name: [code.digest, dict(code.parts), dict(code.packages)] for name, code in identities.items()}
    here = json.loads(json.dumps({**settings, "identity": about}))
    with Store.write(path) as store:
        there = store.facts("search").get("settings")
        if there is None:
            store.remember("search", "settings", here)
        else:
            differ = [
                f"{key} is {there[key]!r} there and {here[key]!r} here" for key in settings if there[key] != here[key]
            ]
            for name, code in () if differ else identities.items():
                digest_there, parts, packages = there["identity"][name]
                if digest_there != code.digest:
                    changes = ", ".join(code.changes(parts, packages)[:6]) or "data, settings or version"
                    differ.append(f"methods differ in {changes}")
            if differ:
                text = f"store {str(path)!r} belongs to another search: {', '.join(differ)}"
                raise ValueError(f"{text}; give this one a file of its own")
            tell(None, f"{path} holds runs of this search; the match rests on {next(iter(identities.values()))}")
        context = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()
        with store.locked(context):
            yield Kept(store, States(str(store.states), context))


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
    if callable(getattr(factory, "identity", None)):
        identity: Identity = factory.identity()
        return identity
    if callable(getattr(factory, "fingerprint", None)):
        return replace(identify(str(factory.fingerprint())), notes=("the fingerprint that the factory tells",))
    if isinstance(factory, FunctionType | MethodType | BuiltinFunctionType | partial | type):
        return identify(factory)
    name = type(factory).__qualname__
    return replace(identify(type(factory)), notes=(f"the code of {name}, not what the object holds",))
