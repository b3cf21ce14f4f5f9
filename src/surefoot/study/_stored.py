"""A study in its store: the hash and the settings that it is kept under."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surefoot._identity import Identity, identify, is_foreign, merged
from surefoot._version import __version__
from surefoot.runs import (
    IDENTITY_RULE,
    NUMERICS_VERSION,
    Store,
    is_network,
    tell,
)

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
            "version": study.version,
            "parts": dict(study._seen.identity.parts),
            "packages": dict(study._seen.identity.packages),
        },
        "versions": {
            "surefoot": __version__,
            "numerics": NUMERICS_VERSION,
            "numpy": np.__version__,
            "python": platform.python_version(),
            **({"torch": metadata.version("torch")} if is_network(problem) else {}),
        },
    }


def tell_reuse(study: Study, store: Store, done: int, progress: object) -> None:
    """Say why runs of the store are taken for those of the study, or why those of an earlier one are not."""
    identity = study.identity()
    if done:
        word = "" if study.version is None else f", your version {study.version!r}"
        tell(progress, f"{done} runs are in {store.path} already; the match rests on {identity}{word}")
        return
    here = _beside_identity(study._settings())
    others = [entry.settings for entry in store.studies() if entry.context != study._context()]
    alike = [settings for settings in others if _beside_identity(settings) == here]
    if alike:
        stored = alike[-1]["identity"]
        changes = identity.changes(stored["parts"], stored["packages"])
        reason = ", ".join(changes[:6]) or "the data or the settings"
        tell(progress, f"{store.path} holds a study like this one that is not used: {reason} differs")


def _beside_identity(settings: Mapping[str, Any]) -> list[Any]:
    """What tells studies apart beside code and data; rates, seeds and methods may differ."""
    return [settings[name] for name in _SAME] + [settings["problem"][name] for name in _SAME_PROBLEM]
