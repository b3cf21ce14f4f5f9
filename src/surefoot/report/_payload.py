"""All that the page knows about one study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._version import __version__
from surefoot.plots.methods import Look, looks
from surefoot.report._facts import LOWER_BOUNDS, caveat, envelope, known_constants, lower_bounds
from surefoot.report._pack import Pack, number
from surefoot.report._traces import Floats, kept_methods, sizes, traces, unit_step, universal
from surefoot.runs import EXACT
from surefoot.study import tidy
from surefoot.theory import bounds

if TYPE_CHECKING:
    from surefoot.study import Result

TOLERANCE = 0.1
"""Share of f(x_1) − f⋆ that a rate may lose and still hold, as in ``Result.sensitivity``."""


def payload(result: Result, name: str, drawn: Mapping[str, Look] | None = None) -> str:
    """The study as a block of text for the page.

    Args:
        result: What the study found.
        name: What it is called on the page.
        drawn: The looks of the page's methods, by default of this study's alone.

    Raises:
        ValueError: The study has no finished run.
    """
    pack = Pack()
    settings = result.settings
    start = result.initial_loss  # says so if there is no run
    envelope_bias, no_envelope = envelope(result)
    constants, no_constants = known_constants(result)
    optimum = result.optimum()
    distance, origin = _distance(result)
    kept = kept_methods(result)
    header = {
        "name": name,
        "methods": _methods(result, looks(result.algorithms) if drawn is None else drawn),
        "network": result.is_network,
        "lrs": pack.array(result.lrs),
        "steps": result.steps,
        "every": settings["every"],
        "sampling": settings["sampling"],
        "seeds": len(settings["seeds"]),
        "tolerance": TOLERANCE,
        "distance": distance,
        "distanceOrigin": origin,
        "start": {"train": number(start)},
        "lowest": {"train": number(result.optimal_loss)},
        "optimum": {"known": optimum.value is not None, "reason": optimum.reason, "distance": optimum.distance},
        "loss": _losses(result, pack),
        # The bias is this times D²: all else of the bound does not know D.
        "biasOfOne": pack.array(bounds.distance_bias(result.rates, 1.0)),
        "envelope": None if envelope_bias is None else pack.array(envelope_bias),
        "envelopeMissing": no_envelope,
        "noise": {
            kind: {
                index: pack.array(result.bound(distance=1.0, kind=kind, index=index).noise.values)
                for index in ("model", "safe")
            }
            for kind in ("last", "average")
        },
        "kept": kept,
        "traces": traces(result, pack, kept),
        "sizes": sizes(result, pack, kept),
        "universal": universal(result, pack, kept),
        "runs": _runs(result, pack),
        "diverged": _diverged(result),
        "constants": [{key: number(value) for key, value in entry.items()} for entry in constants],
        "constantsMissing": no_constants,
        "constantsLeft": max(len(lower_bounds(result)) - LOWER_BOUNDS, 0),
        "settings": _described(result),
    }
    if "valid" in header["loss"]:
        known = result.dataset.valid_loss.values[~np.isnan(result.dataset.valid_loss.values)]
        # A network that has learned nothing yet is as good on rows that are held out; see Result.initial_loss.
        header["start"]["valid"] = number(start if result.is_network else float(known[0]))
        header["lowest"]["valid"] = number(float(known.min()))
    return pack.text(header)


def title_of(result: Result) -> str:
    """What a study is called where nobody has named it: its problem, and the data if they have a name.

    >>> from surefoot.study import Study
    >>> title_of(Study("linear-regression", methods="sps", lrs=0.1, seeds=1, epochs=1, batch_size=5).run())
    'linear-regression on synthetic'
    """
    problem = result.settings["problem"]
    data = problem["description"].get("data")
    data = data.get("name") if isinstance(data, dict) else data
    return f"{problem['name']} on {data}" if isinstance(data, str) else str(problem["name"])


def _methods(result: Result, drawn: Mapping[str, Look]) -> list[dict[str, Any]]:
    """Name, label and look of every method, and what the page's advice has to know of it."""
    return [
        {
            "name": method["name"],
            "label": drawn[method["name"]].label,
            "colour": drawn[method["name"]].colour,
            "mark": drawn[method["name"]].marker,
            "exact": method["identity"] == EXACT,
            "limited": _is_limited(method["identity"]),
            "caveat": caveat(method["identity"], result),
        }
        for method in result.settings["methods"]
    ]


def _is_limited(identity: str) -> bool:
    """Whether the step stays within twice Polyak's F/‖g‖² at any rate; only then a larger rate cannot do harm by it."""
    far = np.array([1e9])
    step = unit_step(identity, far)
    return identity == EXACT if step is None else bool(step.size * far <= 2.001)


def _distance(result: Result) -> tuple[float, str]:
    """The D that the page starts with, and where it comes from."""
    if result.settings["distance"] is not None:
        return float(result.settings["distance"]), "the study's D"
    optimum = result.optimum()
    if optimum.distance:
        return optimum.distance, "‖x₁ − x⋆‖, the true distance"
    moved = result.dataset.distance.values
    moved = moved[np.isfinite(moved) & (moved > 0)]
    return (float(np.median(moved)), "a guess: the median of ‖x_t − x₁‖") if len(moved) else (1.0, "a guess")


def _losses(result: Result, pack: Pack) -> dict[str, Any]:
    """Mean and range over the seeds of the final losses; validation only where there are rows for it."""
    data = result.dataset
    final = {"last": data.last_loss.values, "average": data.average_loss.values}
    if result.settings["problem"]["validation_rows"]:
        final["valid"] = data.valid_loss.values[..., -1]
    return {kind: {part: pack.array(values) for part, values in _spread(of).items()} for kind, of in final.items()}


def _spread(values: Floats) -> dict[str, Floats]:
    with np.errstate(over="ignore"):
        return {"mean": values.mean(axis=-1), "low": values.min(axis=-1), "high": values.max(axis=-1)}


def _runs(result: Result, pack: Pack) -> list[dict[str, Any]]:
    """The table of runs, column by column, with all digits."""
    columns: list[dict[str, Any]] = []
    for name, values in tidy(result.dataset, "runs").items():
        if values.dtype.kind in "UO":
            words, codes = np.unique(values.astype(str), return_inverse=True)
            columns.append({"name": name, "words": words.tolist(), "values": pack.array(codes.astype(np.uint16))})
        else:
            whole = values.dtype.kind in "iu"
            columns.append({"name": name, "whole": whole, "values": pack.array(values.astype(float))})
    return columns


def _diverged(result: Result) -> list[dict[str, Any]]:
    """One entry a method and rate at which runs diverged: how many, when, and from which batch loss."""
    data = result.dataset
    when, loss = data.diverged_at.values, data.loss.values
    entries = []
    for method, rate in np.ndindex(*when.shape[:2]):
        seeds = np.flatnonzero(data.status.values[method, rate] == "diverged")
        if not len(seeds):
            continue
        steps = when[method, rate, seeds]
        before = loss[method, rate, seeds]
        # The losses before the end; with every = k, those that were kept.
        last = np.maximum(-(-steps // result.settings["every"]) - 1, 0)
        entry = {
            "method": method,
            "rate": rate,
            "runs": len(seeds),
            "first": int(steps.min()),
            "last": int(steps.max()),
            "before": number(float(np.take_along_axis(before, last[:, None], axis=-1).max())),
        }
        entries.append(entry)
    return entries


def _described(result: Result) -> list[list[str]]:
    """The study's settings as pairs of words, for the foot of the page."""
    settings = result.settings
    problem = settings["problem"]
    rows = f"{problem['rows']} for training"
    if problem["validation_rows"]:
        rows += f", {problem['validation_rows']} for validation"
    pairs = {
        "problem": problem["name"],
        "its settings": "; ".join(f"{key}: {_plain(value)}" for key, value in problem["description"].items()),
        "rows": rows,
        "parameters": problem["dimension"],
        "methods": ", ".join(result.algorithms),
        "rates": f"{len(settings['lrs'])}, from {settings['lrs'][0]:g} to {settings['lrs'][-1]:g}",
        "seeds": ", ".join(map(str, settings["seeds"])),
        "steps": f"{result.steps} ({settings['epochs']} epochs of {settings['steps_per_epoch']})",
        "batch size": settings["batch_size"],
        "schedule": settings["schedule"],
        "sampling": settings["sampling"],
        "traces": "every step" if settings["every"] == 1 else f"every {settings['every']}th step",
        "fingerprint": problem["fingerprint"],
        "computed with": ", ".join(f"{name} {version}" for name, version in settings["versions"].items()),
        **({"started": settings["created"]} if "created" in settings else {}),
        "page by": f"surefoot {__version__}",
    }
    return [[name, str(value)] for name, value in pairs.items()]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_plain(part)}" for key, part in value.items()) + ")"
    return str(value)
