"""One view of a study per loss (after the last step, of the average, on validation rows), in numbers and words.

Which rates hold is decided by :func:`~surefoot.study.measure_windows`, as everywhere; the page shows it as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.plots import label_of, short, span
from surefoot.report._traces import Floats, unit_step
from surefoot.runs import EXACT, has_level
from surefoot.study import Sensitivity, SensitivityTable, measure_windows, parse_method, usual_bias
from surefoot.theory import models

if TYPE_CHECKING:
    from surefoot.study import Result

HEAD = ["method", "holds", "best rate", "loss there", "decades", "bound's best rate", "predicted", "overlap",
        "rank agreement", "sensitivity", "diverged"]  # fmt: skip


@dataclass(frozen=True)
class View:
    """A loss over the rates, and what follows from it."""

    label: str
    """What the page's switch calls it."""
    what: str
    """What is drawn, as a sentence."""
    noun: str
    losses: Floats
    """Per method, rate and seed."""
    start: float
    lowest: float
    table: SensitivityTable

    @property
    def slack(self) -> float:
        """How far above the best loss a rate still holds."""
        return 0.1 * max(self.start - self.lowest, 0.0)


def views(result: Result) -> dict[str, View]:
    """The views that the study has measured, by name."""
    data = result.dataset
    start, lowest = result.initial_loss, result.optimal_loss
    found = {
        "last": (
            "training loss",
            "Training loss after the last step, of which the bound speaks",
            data.last_loss.values,
            start,
            lowest,
        ),
        "average": (
            "loss of the average",
            "Training loss at the average of the iterates",
            data.average_loss.values,
            start,
            lowest,
        ),
    }
    if np.isnan(data.average_loss.values).all():  # networks: it is not measured
        del found["average"]
    if result.settings["problem"]["validation_rows"]:
        valid = data.valid_loss.values
        known = valid[~np.isnan(valid)]
        # A network that has learned nothing yet is as good on rows that are held out; see Result.initial_loss.
        ends = (start if result.is_network else float(known[0]), float(known.min()))
        found["valid"] = ("validation loss", "Validation loss after the last step", valid[..., -1], *ends)
    return {name: _view(result, name, *parts) for name, parts in found.items()}


def _view(result: Result, name: str, label: str, what: str, losses: Floats, start: float, lowest: float) -> View:
    kind: Any = "average" if name == "average" else "last"
    totals = result.bound(bias=usual_bias(result), kind=kind).total.values
    with np.errstate(over="ignore"):
        means = losses.mean(axis=-1)
    table = measure_windows(result.algorithms, result.lrs, means, totals, start, lowest)
    noun = "validation loss" if name == "valid" else "training loss"
    return View(label, what, noun, losses, start, lowest, table)


def order(result: Result, rows: Sequence[Sensitivity]) -> list[int]:
    """Positions of the methods: the widest window first; of equals a step with a limit, then the lower loss."""
    limited = [is_limited(method["identity"]) for method in result.settings["methods"]]

    def rank(place: int) -> tuple[float, bool, float]:
        return -rows[place].decades, not limited[place], rows[place].best_loss

    return sorted(range(len(rows)), key=rank)


def is_limited(identity: str) -> bool:
    """Whether the step stays within twice Polyak's F/‖g‖² at any rate; only then a larger rate cannot do harm by it."""
    far = np.array([1e9])
    step = unit_step(identity, far)
    return identity == EXACT if step is None else bool(step.size * far <= 2.001)


def line(row: Sensitivity, noun: str) -> list[str]:
    """Where a method holds, and what else there is to say, for the head of the page."""
    if math.isnan(row.low):
        return ["holds nowhere", ""]
    width = f" ({row.decades:.1f} decades)" if row.decades > 0 else ""
    more = f"lowest {noun} {short(row.best_loss)} at {short(row.best_rate)}; the bound predicts "
    return [f"holds {_range(row)}{width}", more + span(row.bound_low, row.bound_high)]


def cells(row: Sensitivity, diverged: str) -> list[str]:
    """A line of the table; its columns are HEAD."""
    return [
        label_of(row.algorithm),
        span(row.low, row.high),
        short(row.best_rate),
        short(row.best_loss),
        "none" if math.isinf(row.decades) else f"{row.decades:.1f}",
        short(row.bound_rate),
        span(row.bound_low, row.bound_high),
        f"{row.overlap:.0%}",
        "–" if math.isnan(row.rank_correlation) else f"{row.rank_correlation:.2f}",
        short(row.expected_excess),
        diverged,
    ]


def advice(result: Result, view: View, ranked: Sequence[int]) -> str:
    """Which method to use, in a few sentences."""
    holding = [view.table[place] for place in ranked if not math.isnan(view.table[place].low)]
    if not holding:
        return "No rate of any method has a finite mean loss."
    identities = {method["name"]: method["identity"] for method in result.settings["methods"]}
    lowest = min(holding, key=lambda row: row.best_loss)
    good = [row for row in holding if row.best_loss <= lowest.best_loss + view.slack]
    first, name = good[0], label_of(good[0].algorithm)
    if first is lowest:
        words = [f"What to use: {name}. It has the lowest {view.noun} ({_best(first)}), and {_holds(result, first)}."]
    else:
        words = [
            f"What to use: {name} forgives most: {_holds(result, first)}, and its lowest loss is {_best(first)}.",
            f"{label_of(lowest.algorithm)} has the lowest {view.noun} ({_best(lowest)}).",
        ]
    formula = next((row for row in good if identities[row.algorithm] != EXACT), None)
    if identities[first.algorithm] == EXACT and formula is not None:
        other = f"without it take {label_of(formula.algorithm)}: {_holds(result, formula)}"
        words.append(f"{name} needs the problem's prox; {other}.")
    if not is_limited(identities[first.algorithm]):
        words.append("Its step has no limit of its own: do not go beyond the rates that were tried.")
    return " ".join(words)


def certainty(result: Result) -> str:
    """How sure the advice is."""
    lrs, seeds = result.lrs, len(result.settings["seeds"])
    words = [f"How sure: means over {seeds} seed{'s' * (seeds > 1)}, {len(lrs)} rates, {result.steps} steps."]
    if len(lrs) > 1:
        dense = (len(lrs) - 1) / (math.log10(lrs[-1]) - math.log10(lrs[0]))
        words.append(f"The grid has {dense:.1f} rates per decade, and a window's ends are known to one rate of it.")
    words.append(
        "Batches were drawn independently, as the theorems ask."
        if result.settings["sampling"] == "iid"
        else "Batches were reshuffled each epoch, as in the paper; the theorems ask for independent ones, so the bound "
        "is a guide here and no guarantee."
    )
    return " ".join(words)


def _range(row: Sensitivity) -> str:
    return f"at {short(row.low)} alone" if row.low == row.high else span(row.low, row.high)


def _holds(result: Result, row: Sensitivity) -> str:
    if row.low == row.high:
        return f"only α = {short(row.low)} holds"
    edge = " (the grid ends there)" if row.low == result.lrs[0] or row.high == result.lrs[-1] else ""
    return f"any rate from {short(row.low)} to {short(row.high)} holds{edge}"


def _best(row: Sensitivity) -> str:
    return f"{short(row.best_loss)} at α = {short(row.best_rate)}"


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
