"""What tells a study from others: the hash that its runs are stored under, and its settings as a file holds them."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._identity import identify, is_foreign
from surefoot._version import __version__
from surefoot.runs import EPOCH_FIELDS, IDENTITY_RULE, NUMERICS_VERSION, STEP_FIELDS, Store, is_network, lower_bound_of
from surefoot.study._reuse import described

if TYPE_CHECKING:
    from surefoot.study._study import Study


def context_of(study: Study) -> str:
    """Hash of all that the runs of this study share and that their numbers depend on."""
    shared = {
        "problem": study._fingerprint,
        "epochs": study.epochs,
        "batch_size": study.batch_size,
        "sampling": study.sampling,
        "every": study.every,
        "numerics": NUMERICS_VERSION,
        "identity": IDENTITY_RULE,
        "packages": _packages(study),
    }
    if study.version is not None:
        shared["version"] = study.version
    if study.stop:
        rules = [repr(rule) if is_foreign(type(rule)) else identify(rule).digest for rule in study.stop]
        shared["stop"] = [study.distance, *rules]
    if study._shares:  # what is kept of a run then depends on the others
        shared["runs"] = [sorted(study._identities.values()), study.lrs, study.seeds]
    if study._ranks() > 1:
        shared["ranks"] = study._ranks()
    digest = hashlib.sha256(json.dumps(shared, sort_keys=True).encode())
    digest.update(study.factors.astype("<f8").tobytes())
    return digest.hexdigest()


def _packages(study: Study) -> dict[str, str]:
    """Versions of the packages that compute the numbers, whatever code is the user's."""
    found = {"numpy": np.__version__}
    if is_network(study.problem):
        found["torch"] = metadata.version("torch")
    return {name: told.partition("+")[0] for name, told in found.items()}


def settings_of(study: Study) -> dict[str, Any]:
    """All that a result needs when the problem is not at hand, JSON-able."""
    problem = study.problem
    return {
        "problem": {
            "name": problem.name,
            "fingerprint": study._fingerprint,
            "rows": int(problem.n_rows),
            "validation_rows": int(problem.n_valid),
            "dimension": int(problem.dimension),
            "description": problem.describe(),
        },
        "methods": [
            {"name": method.name, "identity": study._identities[method.name], "lower_bound": lower_bound_of(method)}
            for method in study.methods
        ],
        "lrs": list(study.lrs),
        "seeds": list(study.seeds),
        "epochs": study.epochs,
        "steps_per_epoch": study.steps_per_epoch,
        "batch_size": study.batch_size,
        "schedule": study.schedule,
        "factors": None if study.schedule != "custom" else study.factors.tolist(),
        "sampling": study.sampling,
        "every": study.every,
        "distance": study.distance,
        "stop": [repr(rule) for rule in study.stop],
        "identity": described(study._identity, study.version),
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
