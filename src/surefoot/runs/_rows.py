"""Runs as rows of a study's file: arrays are raw little-endian numbers, and a layout says how they lie."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from surefoot.runs._archive import Begun, Key, Record
from surefoot.runs._nouns import EPOCH_FIELDS, STEP_FIELDS, Floats


def layout_of(steps: tuple[int, ...], epochs: tuple[int, ...]) -> str:
    """How arrays of these shapes lie in the bytes of a run, as text."""
    return json.dumps({"dtype": "<f8", "steps": [STEP_FIELDS, steps], "epochs": [EPOCH_FIELDS, epochs]})


def record_of(values: Sequence[Any]) -> Record:
    """The run that a row holds, whose seal is right: what :func:`run_query` selects."""
    _, method, lr, seed, status, diverged_at, violations, *final, layout, data = values
    steps, epochs = _layout(layout).arrays(data)
    numbers = tuple(np.nan if value is None else value for value in final)
    return Record(Key(method, lr, seed), status, diverged_at, violations, numbers, steps, epochs)


def begun_of(values: Sequence[Any]) -> Begun:
    """The run of a search that a row holds, whose seal is right: what ``BEGUN_QUERY`` selects."""
    _, method, lr, seed, text, data = values
    about = json.loads(text)
    losses, deltas = np.frombuffer(data, "<f8").reshape(2, -1)
    return Begun(Key(method, lr, seed), losses, deltas, about, about.pop("state"))


@lru_cache(maxsize=64)
def _layout(text: str) -> _Layout:
    return _Layout(text)


class _Layout:
    """How the arrays of a run lie in its bytes."""

    def __init__(self, text: str) -> None:
        layout = json.loads(text)
        (step_names, self.steps), (epoch_names, self.epochs) = layout["steps"], layout["epochs"]
        self.dtype = layout["dtype"]
        self.split = math.prod(self.steps)
        # Rows in today's order of fields, should it ever change.
        self.step_order = [step_names.index(name) for name in STEP_FIELDS]
        self.epoch_order = [epoch_names.index(name) for name in EPOCH_FIELDS]
        self.sorted = tuple(step_names) == STEP_FIELDS and tuple(epoch_names) == EPOCH_FIELDS

    def arrays(self, data: bytes) -> tuple[Floats, Floats]:
        values = np.frombuffer(data, self.dtype)
        steps, epochs = values[: self.split].reshape(self.steps), values[self.split :].reshape(self.epochs)
        return (steps, epochs) if self.sorted else (steps[self.step_order], epochs[self.epoch_order])
