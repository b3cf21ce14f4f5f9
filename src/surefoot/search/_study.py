"""The search on what a study describes, with the study's store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot._identity import require
from surefoot.runs import Keeper, Store, factory_of
from surefoot.study import Study


def factories_of_study(study: Study) -> dict[str, Any]:
    """What makes the runs of each method of a study."""
    if study.every != 1:
        raise ValueError(f"every must be 1 for a search, which needs all indices, got {study.every}")
    if study.stop:
        raise ValueError(f"stop must be empty for a search, which ends runs by its own rules, got {study.stop}")
    return {method.name: factory_of(study.problem, method, study.shared) for method in study.methods}


def keeper_of_study(study: Study, path: Path, factories: Mapping[str, Any], cuts: Sequence[int]) -> Keeper:
    """Keeps the runs of a search in the study's store."""
    context = study._context()
    require(study.identity(), study.version, f"store {str(path)!r}")
    with Store.write(path) as opened:
        study._check_size(opened)
        opened.register(context, study._settings())
    old = path.with_name(f"{path.name}.search-{context[:12]}")
    if old.exists():
        logging.getLogger("surefoot").warning(
            "%s holds runs that an earlier surefoot has begun, in a form of its own: they are left there, and not used",
            old,
        )
    return Keeper(path, context, study._identities, factories, cuts)
