"""The runs of a study as one labelled data set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from surefoot.runs import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Trace

RUN_DIMS = ("algorithm", "lr", "seed")
MISSING = "missing"
"""Status of a run that the store does not hold yet; its numbers are NaN."""


def build(settings: dict[str, Any], traces: Iterable[Trace]) -> xr.Dataset:
    """The data set of ``Result.dataset``, from a study's settings and the runs of its problem."""
    algorithms, lrs, seeds = [method["name"] for method in settings["methods"]], settings["lrs"], settings["seeds"]
    shape = (len(algorithms), len(lrs), len(seeds))
    kept = np.arange(0, settings["epochs"] * settings["steps_per_epoch"], settings["every"])
    measured = np.arange(settings["epochs"] + 1)
    status = np.full(shape, MISSING, "<U8")
    diverged_at, violations = np.full(shape, -1), np.zeros(shape, int)
    variables: dict[str, Any] = {}
    for names, dims, size in (
        (STEP_FIELDS, (*RUN_DIMS, "step"), (len(kept),)),
        (EPOCH_FIELDS, (*RUN_DIMS, "epoch"), (len(measured),)),
        (FINAL_FIELDS, RUN_DIMS, ()),
    ):
        variables |= {name: (dims, np.full((*shape, *size), np.nan)) for name in names}

    algorithm_index = {method["identity"]: position for position, method in enumerate(settings["methods"])}
    lr_index = {lr: position for position, lr in enumerate(lrs)}
    seed_index = {seed: position for position, seed in enumerate(seeds)}
    for run in traces:
        try:
            where = algorithm_index[run.key.method], lr_index[run.key.lr], seed_index[run.key.seed]
        except KeyError:
            continue  # of another study with the same problem and settings
        losses = {name: values for name, values in run.epochs.items() if len(values)}  # maybe without validation rows
        for name, values in {**run.steps, **losses, **run.final}.items():
            variables[name][1][where] = values
        status[where], diverged_at[where], violations[where] = run.status, run.diverged_at, run.violations

    outcomes = {"status": status, "diverged_at": diverged_at, "violations": violations}
    variables |= {name: (RUN_DIMS, values) for name, values in outcomes.items()}
    coordinates = {"algorithm": algorithms, "lr": lrs, "seed": seeds, "step": kept, "epoch": measured}
    attributes = {
        "problem": settings["problem"]["name"],
        "settings": json.dumps(settings, sort_keys=True),
        **{name: settings[name] for name in ("epochs", "batch_size", "schedule", "sampling", "every")},
        "surefoot": settings["versions"]["surefoot"],
    }
    return xr.Dataset(variables, coordinates, attributes)
