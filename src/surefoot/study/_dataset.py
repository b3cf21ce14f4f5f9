"""The runs of a study as one labelled data set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from surefoot.runs import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Record

RUN_DIMS = ("algorithm", "lr", "seed")
MISSING = "missing"
"""Status of a run that the store does not hold yet; its numbers are NaN."""


def build(settings: dict[str, Any], records: Iterable[Record]) -> xr.Dataset:
    """The data set of ``Result.dataset``, from a study's settings and the runs of its problem."""
    algorithms, lrs, seeds = [method["name"] for method in settings["methods"]], settings["lrs"], settings["seeds"]
    shape = (len(algorithms), len(lrs), len(seeds))
    kept = np.arange(0, settings["epochs"] * settings["steps_per_epoch"], settings["every"])
    measured = np.arange(settings["epochs"] + 1)
    steps = np.full((len(STEP_FIELDS), *shape, len(kept)), np.nan)
    epochs = np.full((len(EPOCH_FIELDS), *shape, len(measured)), np.nan)
    final = np.full((len(FINAL_FIELDS), *shape), np.nan)
    status = np.full(shape, MISSING, "<U8")
    diverged_at, violations = np.full(shape, -1), np.zeros(shape, int)

    algorithm_index = {method["identity"]: position for position, method in enumerate(settings["methods"])}
    lr_index = {lr: position for position, lr in enumerate(lrs)}
    seed_index = {seed: position for position, seed in enumerate(seeds)}
    for run in records:
        try:
            where = algorithm_index[run.key.method], lr_index[run.key.lr], seed_index[run.key.seed]
        except KeyError:
            continue  # of another study with the same problem and settings
        steps[:, *where] = run.steps
        epochs[:, *where] = run.epochs
        final[:, *where] = run.final
        status[where], diverged_at[where], violations[where] = run.status, run.diverged_at, run.violations

    variables: dict[str, Any] = {}
    for names, dims, arrays in (
        (STEP_FIELDS, (*RUN_DIMS, "step"), steps),
        (EPOCH_FIELDS, (*RUN_DIMS, "epoch"), epochs),
        (FINAL_FIELDS, RUN_DIMS, final),
        (("status", "diverged_at", "violations"), RUN_DIMS, (status, diverged_at, violations)),
    ):
        variables |= {name: (dims, values) for name, values in zip(names, arrays, strict=True)}
    coordinates = {"algorithm": algorithms, "lr": lrs, "seed": seeds, "step": kept, "epoch": measured}
    attributes = {
        "problem": settings["problem"]["name"],
        "settings": json.dumps(settings, sort_keys=True),
        **{name: settings[name] for name in ("epochs", "batch_size", "schedule", "sampling", "every")},
        "surefoot": settings["versions"]["surefoot"],
    }
    return xr.Dataset(variables, coordinates, attributes)
