"""Runs that a store holds: what a match rests on, and runs of an earlier identity that are taken over on request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot._identity import Identity
from surefoot.runs import IDENTITY_RULE, Key, Store, StudyEntry, tell

if TYPE_CHECKING:
    from surefoot.study._study import Study

_SAME = ("epochs", "steps_per_epoch", "batch_size", "schedule", "factors", "sampling", "every", "stop")
_SAME_PROBLEM = ("name", "rows", "validation_rows", "dimension")


def described(identity: Identity, version: str | None) -> dict[str, Any]:
    """An identity as a study's settings hold it, JSON-able."""
    return {
        "rule": IDENTITY_RULE,
        "version": version,
        "parts": dict(identity.parts),
        "packages": dict(identity.packages),
        "rests_on": str(identity),
    }


def tell_reuse(study: Study, store: Store, done: int, progress: object) -> None:
    """Say on what it rests that runs are used again, or why those of an earlier study are not."""
    identity = study.identity()
    if done:
        word = "" if study.version is None else f", your version {study.version!r}"
        tell(progress, f"{done} runs are in {store.path} already; the match rests on {identity}{word}")
        return
    others = [entry for entry in store.studies() if _alike(study._settings(), entry.settings)]
    others = [entry for entry in others if entry.context != study._context()]
    if others:
        told = others[-1].settings.get("identity", {})
        changes = identity.changes(told.get("parts", {}), told.get("packages", {})) if told else []
        reason = ", ".join(changes[:6]) or ("the data or the settings" if told else "the rule of surefoot 0.1")
        tell(progress, f"{store.path} holds a study like this one that is not used: {reason} differs; see Study.adopt")


def adopt(study: Study, path: str | os.PathLike[str], position: int | None) -> int:
    """See ``Study.adopt``."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"store {str(path)!r} does not exist")
    settings, context = study._settings(), study._context()
    with Store.write(path) as store:
        entry = _chosen(store.studies(), settings, context, position, path)
        names = {method["identity"]: method["name"] for method in entry.settings["methods"]}
        keys = {(run.method.name, run.lr, run.seed) for run in study.runs}
        found = [
            record._replace(key=Key(study._identities[names[record.key.method]], record.key.lr, record.key.seed))
            for record in store.records(entry.context)
            if (names.get(record.key.method), record.key.lr, record.key.seed) in keys
        ]
        new = [record for record in found if record.key not in store.done(context)]
        store.register(context, settings)
        store.add(context, new)
    return len(new)


def _chosen(
    entries: Sequence[StudyEntry], settings: Mapping[str, Any], context: str, position: int | None, path: Path
) -> StudyEntry:
    if position is not None:
        if not -len(entries) <= position < len(entries):
            raise ValueError(f"study must be a position below {len(entries)}, the studies in {path}, got {position}")
        different = _differences(settings, entries[position].settings)
        if different:
            raise ValueError(f"study {position} of {path} is another one: {', '.join(different)} differ")
        return entries[position]
    others = [entry for entry in entries if entry.context != context]
    alike = [entry for entry in others if not _differences(settings, entry.settings)]
    if not alike:
        differ = "; ".join(", ".join(_differences(settings, entry.settings)) for entry in others[-3:])
        raise ValueError(
            f"{path} holds no other study with these settings" + (f": they differ in {differ}" if differ else "")
        )
    return alike[-1]


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return not _differences(one, other)


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Settings beside the identity in which two studies differ; rates, seeds and methods may."""
    found = [name for name in _SAME if one.get(name) != other.get(name)]
    return found + [
        f"{name} of the problem" for name in _SAME_PROBLEM if one["problem"][name] != other["problem"][name]
    ]
