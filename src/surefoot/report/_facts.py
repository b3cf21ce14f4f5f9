"""What only the problem itself knows of what the page shows: the envelope, σ² and ε_lb; and what the bound proves."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.plots import short
from surefoot.problems import constants
from surefoot.runs import EXACT, has_level
from surefoot.study import parse_method
from surefoot.theory import models

if TYPE_CHECKING:
    from surefoot.study import Result

NAME = "constants"
"""The name under which σ² and ε_lb are kept with the runs."""

LOWER_BOUNDS = 8
"""σ² and ε_lb are shown for so many lower bounds, the highest ones: each takes a solve per batch."""

_ABSENT = "not computed: the problem was not at hand when this page was written"


def prepare(result: Result) -> None:
    """Compute what a page needs of the problem (envelope, σ², ε_lb), and keep it with the runs.

    Call it while the problem is at hand, that is on what ``Study.run`` returns; a page that is later written from the
    study's file alone then shows it. What a problem does not know is left out.

    >>> from surefoot.study import Study
    >>> study = Study("linear-regression", methods=["sps"], lrs=[0.1, 1.0], seeds=1, epochs=1, batch_size=5)
    >>> result = study.run()
    >>> prepare(result)
    >>> sorted(result.facts())
    ['constants', 'envelope', 'optimum']
    """
    result.optimum()
    with suppress(NotImplementedError, ValueError):  # networks have none
        result.envelope()
    _constants(result)


def constant_words(result: Result) -> list[str]:
    """One sentence per lower bound C that the methods use (0 if none has one): σ² and ε_lb, or why they are unknown."""
    entries, absent = _constants(result)
    if absent:
        return [f"σ² and ε_lb: {absent}."]
    words = []
    for entry in entries:
        numbers = [entry["interpolation_constant"], entry["lower_bound_error"]]
        sigma, error = (short(0.0 if abs(number) < 1e-12 else number) for number in numbers)
        plus = f" ± {short(entry['standard_error'], 1)}" if entry["standard_error"] > 1e-12 else ""
        words.append(
            f"σ² = {sigma}{plus}, ε_lb = {error}{plus} for the lower bound C = {short(entry['lower_bound'])}, over "
            f"{entry['batches']} batches of {entry['batch_size']} rows."
        )
    return words


def _constants(result: Result) -> tuple[list[dict[str, Any]], str]:
    kept: list[dict[str, Any]] = result.facts().get(NAME, [])
    used = sorted({method["lower_bound"] for method in result.settings["methods"]} - {None})
    entries = []
    for bound in used[-LOWER_BOUNDS:] or [0.0]:
        key = {"batch_size": result.settings["batch_size"], "lower_bound": bound}
        entry = next((entry for entry in kept if key.items() <= entry.items()), None)
        if entry is None:
            if result.problem is None:  # a result that was loaded from a file
                return [], _ABSENT
            try:
                entry = {**key, **asdict(constants(result.problem, key["batch_size"], lower_bound=bound))}
            except (ValueError, NotImplementedError) as error:
                return [], str(error)
            kept = [*kept, entry]
            result.remember(NAME, kept)
        entries.append(entry)
    return entries, ""


def caveat(identity: str, result: Result) -> str:
    """Why the bound from a method's own index is no proof here; empty where it is one, for batches drawn independently.

    A model's index may stand in a bound if the model lies below the loss. That holds for SGD and SPS on every convex
    loss, for the exact model, and for NGN on least squares, where √(f − C) is convex; not for NGN on logistic losses.
    """
    if result.is_network:
        return "the loss of a network is not convex, so no bound of it is proved"
    if has_level(identity):
        return "with a level, no bound of the last iterate is proved"
    if identity == EXACT:
        return ""
    try:
        model = parse_method(identity).model
    except ValueError:
        model = None
    if isinstance(model, models.Linear | models.Truncated):
        return ""
    power = 0.5 if isinstance(model, models.SquareRoot) else model.p if isinstance(model, models.Power) else 0.0
    least_squares = result.settings["problem"]["name"] == "linear-regression"
    if model is not None and least_squares and power >= 0.5 and np.all(np.asarray(model.lower_bound) <= 0):
        return ""
    return "its own δ is no proof on this loss, because its model can lie above the loss; the safe index is one"
