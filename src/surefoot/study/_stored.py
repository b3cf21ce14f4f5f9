"""A study in its store: the hash and the settings that it is kept under, and runs that it takes over from others."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surefoot._identity import Identity, identify, is_foreign, merged
from surefoot._version import __version__
from surefoot.runs import (
    EPOCH_FIELDS,
    IDENTITY_RULE,
    NUMERICS_VERSION,
    STEP_FIELDS,
    Key,
    Store,
    StudyEntry,
    is_network,
    tell,
)
from surefoot.study._archive import entry_at

if TYPE_CHECKING:
    from surefoot.study._study import Study

_PLAIN = ("epochs", "steps_per_epoch", "batch_size", "schedule", "sampling", "every", "distance")
_SAME = ("epochs", "steps_per_epoch", "batch_size", "schedule", "factors", "sampling", "every", "stop")
_SAME_PROBLEM = ("name", "rows", "validation_rows", "dimension")


class Seen(NamedTuple):
    """What the numbers of a study rest on, as it was when somebody last looked."""

    identities: dict[str, str]
    """The hash that each method is kept under, by the method's name."""
    fingerprint: str
    """The fingerprint of the problem."""
    identity: Identity


def seen(study: Study) -> Seen:
    """Look at code, values and data; all data are read."""
    rules = [identify(rule) for rule in study.stop if not is_foreign(type(rule))]
    identity = merged([study.problem.identity(), *(method.code for method in study.methods), *rules])
    return Seen({method.name: method.identity for method in study.methods}, study.problem.fingerprint(), identity)


def context_of(study: Study) -> str:
    """Hash of all that the runs of this study share and that their numbers depend on."""
    shared = {
        "problem": study._seen.fingerprint,
        **{name: getattr(study, name) for name in ("epochs", "batch_size", "sampling", "every")},
        "numerics": NUMERICS_VERSION,
        "identity": IDENTITY_RULE,
        "packages": _packages(study),
    }
    if study.version is not None:
        shared["version"] = study.version
    if study.stop:
        rules = [repr(rule) if is_foreign(type(rule)) else identify(rule).digest for rule in study.stop]
        shared["stop"] = [study.distance, *rules]
    if not is_network(study.problem):  # for which these numbers were wrong in earlier versions
        if study.stop:
            shared["ends"] = 2
        if len(set(study.factors.tolist())) == 1 and study.factors[0] != 1.0:
            shared["averages"] = 2
    if study._shares:  # what is kept of a run then depends on the others
        shared["runs"] = [sorted(study._seen.identities.values()), study.lrs, study.seeds]
    if study._ranks() > 1:
        shared["ranks"] = study._ranks()
    digest = hashlib.sha256(json.dumps(shared, sort_keys=True).encode())
    digest.update(study.factors.astype("<f8").tobytes())
    return digest.hexdigest()


def _packages(study: Study) -> dict[str, str]:
    """Versions of the packages that compute the numbers, whatever code is the user's."""
    versions = {"numpy": np.__version__}
    if is_network(study.problem):
        versions["torch"] = metadata.version("torch")
    return {name: version.partition("+")[0] for name, version in versions.items()}


def settings_of(study: Study) -> dict[str, Any]:
    """All that a result needs when the problem is not at hand, JSON-able."""
    problem = study.problem
    return {
        "problem": {
            "name": problem.name,
            "fingerprint": study._seen.fingerprint,
            "rows": int(problem.n_rows),
            "validation_rows": int(problem.n_valid),
            "dimension": int(problem.dimension),
            "description": problem.describe(),
        },
        "methods": [
            {"name": method.name, "identity": study._seen.identities[method.name], "lower_bound": method.lower_bound}
            for method in study.methods
        ],
        "lrs": list(study.lrs),
        "seeds": list(study.seeds),
        **{name: getattr(study, name) for name in _PLAIN},
        "factors": None if study.schedule != "custom" else study.factors.tolist(),
        "stop": [repr(rule) for rule in study.stop],
        "identity": {
            "rule": IDENTITY_RULE,
            "version": study.version,
            "parts": dict(study._seen.identity.parts),
            "packages": dict(study._seen.identity.packages),
            "rests_on": str(study._seen.identity),
        },
        "versions": {
            "surefoot": __version__,
            "numerics": NUMERICS_VERSION,
            "numpy": np.__version__,
            "python": platform.python_version(),
            **({"torch": metadata.version("torch")} if is_network(problem) else {}),
        },
    }


def check_size(study: Study, store: Store) -> None:
    """Refuse runs that do not fit into the store before the first step is taken."""
    limit, numbers = store.largest_row() - 65536, len(EPOCH_FIELDS) * (study.epochs + 1)
    size = 8 * (len(STEP_FIELDS) * study.shared.kept + numbers)
    if size > limit:
        room = (limit // 8 - numbers) // len(STEP_FIELDS)
        advice = f"at least {-(-study.steps // room)}" if room > 0 else "larger, and epochs fewer"
        raise ValueError(
            f"every must be {advice} to store runs of {study.steps} steps: a run would take {size:,} bytes, and "
            f"{store.path} takes {limit:,}; got every={study.every}"
        )


def tell_reuse(study: Study, store: Store, done: int, progress: object) -> None:
    """Say why runs of the store are taken for those of the study, or why those of an earlier one are not."""
    identity = study.identity()
    if done:
        word = "" if study.version is None else f", your version {study.version!r}"
        tell(progress, f"{done} runs are in {store.path} already; the match rests on {identity}{word}")
        return
    alike = _alike(store.studies(), study._settings(), study._context())
    if alike:
        stored = alike[-1].settings.get("identity", {})
        changes = identity.changes(stored.get("parts", {}), stored.get("packages", {})) if stored else []
        reason = ", ".join(changes[:6]) or ("the data or the settings" if stored else "the rule of surefoot 0.1")
        tell(progress, f"{store.path} holds a study like this one that is not used: {reason} differs; see Study.adopt")


def adopt(study: Study, path: str | os.PathLike[str], position: int | None) -> int:
    """Take over runs of another study of a file, as ``Study.adopt`` says; returns how many."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"store {str(path)!r} does not exist")
    settings, context = study._settings(), study._context()
    with Store.write(path) as store:
        entry = _chosen(store.studies(), settings, context, position, path)
        names = {method["identity"]: method["name"] for method in entry.settings["methods"]}
        keys = {run.key for run in study.runs}
        traces = [
            trace._replace(key=Key(study._seen.identities[names[trace.key.method]], trace.key.lr, trace.key.seed))
            for trace in store.traces(entry.context)
            if (names.get(trace.key.method), trace.key.lr, trace.key.seed) in keys
        ]
        done = store.done(context)
        new = [trace for trace in traces if trace.key not in done]
        store.register(context, settings)
        store.add(context, new)
    return len(new)


def _chosen(
    entries: Sequence[StudyEntry], settings: Mapping[str, Any], context: str, position: int | None, path: Path
) -> StudyEntry:
    """The study whose runs are taken over: the one at a position, or else the last one with these settings."""
    if position is not None:
        entry = entry_at(entries, position, path)
        if different := _differences(settings, entry.settings):
            raise ValueError(f"study {position} of {path} is another one: {', '.join(different)} differ")
        return entry
    alike = _alike(entries, settings, context)
    if not alike:
        others = [entry for entry in entries if entry.context != context]
        differ = "; ".join(", ".join(_differences(settings, entry.settings)) for entry in others[-3:])
        raise ValueError(
            f"{path} holds no other study with these settings" + (f": they differ in {differ}" if differ else "")
        )
    return alike[-1]


def _alike(entries: Sequence[StudyEntry], settings: Mapping[str, Any], context: str) -> list[StudyEntry]:
    """The studies of a file that have these settings, and are stored under another hash."""
    return [entry for entry in entries if entry.context != context and not _differences(settings, entry.settings)]


def _differences(settings: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """The settings beside the identity in which two studies differ; rates, seeds and methods may."""
    names = [name for name in _SAME if settings.get(name) != stored.get(name)]
    problem, stored_problem = settings["problem"], stored["problem"]
    return names + [f"{name} of the problem" for name in _SAME_PROBLEM if problem[name] != stored_problem[name]]
