"""All that the page knows about one study, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._version import __version__
from surefoot.plots import Look, looks, plain, short
from surefoot.report import _views
from surefoot.report._traces import traces, universal
from surefoot.study import usual_bias

if TYPE_CHECKING:
    from surefoot.study import Result

METHODS = 100
"""Of so many methods the page has pictures; of more, of those that hold over the widest range."""


def payload(result: Result, name: str, drawn: Mapping[str, Look] | None = None) -> str:
    """The study as JSON for the page, under this name; nothing in it can end the script element that it stands in.

    ``drawn`` has the looks of all methods of the page; by default of this study's. A study without any run is refused.
    """
    found = _views.views(result)  # raises if there is no run
    ranked = _views.order(result, found["last"].table)
    shown = ranked[:METHODS]
    drawn = looks(result.algorithms) if drawn is None else drawn
    chosen = [result.settings["methods"][place] for place in shown]
    header = {
        "name": name,
        "methods": [
            {"name": name, "label": drawn[name].label, "colour": drawn[name].colour, "mark": drawn[name].marker}
            for name in (method["name"] for method in chosen)
        ],
        "lrs": result.lrs,
        "steps": result.steps,
        "state": _state(result, len(shown)),
        "views": {name: _shown(result, view, shown, ranked) for name, view in found.items()},
        "head": _views.HEAD,
        "certainty": _views.certainty(result),
        "bound": _bound(result, shown),
        "caveats": _caveats(result, chosen, drawn),
        "traces": _coarse(traces(result, shown)),
        "universal": _coarse(universal(result, shown)),
        "infimum": _minimum(result),
        "runs": result.to_frame().to_csv(index=False, na_rep="nan"),
        "settings": _described(result),
    }
    return json.dumps(plain(header), allow_nan=False).replace("<", "\\u003c")


def _coarse(value: Any) -> Any:
    """Three digits of every number, which is finer than a screen."""
    if isinstance(value, dict):
        return {key: _coarse(item) for key, item in value.items()}
    if isinstance(value, list | np.ndarray):
        return [_coarse(item) for item in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _shown(result: Result, view: _views.View, shown: list[int], ranked: list[int]) -> dict[str, Any]:
    total = len(result.lrs) * len(result.settings["seeds"])
    lost = (result.dataset.status.values == "diverged").sum(axis=(1, 2))
    rows = [view.table[place] for place in shown]
    with np.errstate(over="ignore"):
        losses = {"mean": view.losses.mean(axis=-1), "low": view.losses.min(axis=-1), "high": view.losses.max(axis=-1)}
    return {
        "label": view.label,
        "what": view.what,
        "start": view.start,
        "lowest": view.lowest,
        "losses": {name: values[shown] for name, values in losses.items()},
        "lines": [_views.line(row, view.noun) for row in rows],
        "measured": [[row.low, row.high] for row in rows],
        "predicted": [[row.bound_low, row.bound_high] for row in rows],
        "table": [_views.cells(row, f"{lost[place]} of {total}") for place, row in zip(shown, rows, strict=True)],
        "advice": _views.advice(result, view, ranked),
        "csv": view.table.to_frame().to_csv(),
    }


def _bound(result: Result, shown: list[int]) -> dict[str, Any]:
    """Noise of the bound, and its bias twice: for D = 1, which D² multiplies, and without D. The page adds them."""
    free = usual_bias(result) or "envelope"
    try:
        without = result.bound(bias=free).bias.values
    except (NotImplementedError, ValueError):  # a file does not hold it
        free, without = "pool", result.bound(bias="pool").bias.values
    optimum = result.optimum()
    distance, origin = _distance(result)
    kinds: tuple[Any, ...] = ("last", "average")
    indices: tuple[Any, ...] = ("model", "safe")
    return {
        "noise": {
            kind: {index: result.bound(distance=1.0, kind=kind, index=index).noise.values[shown] for index in indices}
            for kind in kinds
        },
        "biasOfOne": result.bound(distance=1.0).bias.values[shown],
        "biasFree": without[shown],
        "free": {
            "envelope": "the Moreau envelope of the loss at the start, which needs no D",
            "pool": "that of the best point which a run has visited, which needs no D",
        }[free],
        "usual": "distance" if usual_bias(result) is None else "free",
        "distance": distance,
        "origin": origin,
        "lowest": optimum.value,
        "sampled": result.settings["every"],
    }


def _distance(result: Result) -> tuple[float, str]:
    """The D that the page starts with, and where it comes from."""
    if result.settings["distance"] is not None:
        return float(result.settings["distance"]), "the study's"
    optimum = result.optimum()
    if optimum.distance:
        return optimum.distance, "the true ‖x₁ − x⋆‖"
    moved = result.dataset.distance.values
    moved = moved[np.isfinite(moved) & (moved > 0)]
    return float(np.median(moved)) if len(moved) else 1.0, "a guess: the median of ‖x_t − x₁‖"


def _caveats(result: Result, methods: list[dict[str, Any]], drawn: Mapping[str, Look]) -> list[str]:
    """One sentence per reason why bounds from the models' own indices prove nothing."""
    reasons: dict[str, list[str]] = {}
    for method in methods:
        reasons.setdefault(_views.caveat(method["identity"], result), []).append(drawn[method["name"]].label)
    return [f"{', '.join(labels)}: {reason}." for reason, labels in reasons.items() if reason]


def _state(result: Result, shown: int) -> str:
    """What is not as it should be."""
    status = result.dataset.status.values
    words = []
    if (status == "diverged").all():
        lowest = short(result.lrs[0])
        words.append(f"All {status.size} runs diverged: no rate holds. The smallest was {lowest}; try smaller ones.")
    if missing := int((status == "missing").sum()):
        words.append(f"{missing} of {status.size} runs are missing: the study is not finished.")
    if stopped := int((status == "stopped").sum()):
        words.append(f"{stopped} of {status.size} runs were stopped early.")
    if len(status) > shown:
        words.append(f"{shown} of {len(status):,} methods are shown, those with the widest windows; the CSV has all.")
    return " ".join(words)


def _minimum(result: Result) -> str:
    optimum, lowest = result.optimum(), short(result.optimal_loss)
    known = "is not known; the lowest loss seen" if optimum.value is None else "of the training loss"
    far = f", at a distance of {short(optimum.distance)} from the start" if optimum.distance else ""
    return f"The infimum {known} is {lowest}{far}{f' ({optimum.reason})' if optimum.reason else ''}."


def prepare(result: Result) -> None:
    """Compute what a page needs of the problem (infimum, envelope), and keep it with the runs.

    Call it while the problem is at hand, that is on what ``Study.run`` returns; a page that is later written from the
    study's file alone then shows it. What a problem does not know is left out.

    >>> from surefoot.study import Study
    >>> study = Study("linear-regression", methods=["sps"], lrs=[0.1, 1.0], seeds=1, epochs=1, batch_size=5)
    >>> result = study.run()
    >>> prepare(result)
    >>> sorted(result.facts())
    ['envelope', 'optimum']
    """
    result.optimum()
    with suppress(NotImplementedError, ValueError):  # networks have none
        result.envelope()


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


def _described(result: Result) -> list[list[str]]:
    """The study's settings as pairs of words, for the foot of the page."""
    settings = result.settings
    problem = settings["problem"]
    held_out = f", {problem['validation_rows']} for validation" if problem["validation_rows"] else ""
    pairs = {
        "problem": problem["name"],
        "its settings": "; ".join(f"{key}: {_text(value)}" for key, value in problem["description"].items()),
        "rows": f"{problem['rows']} for training{held_out}",
        "parameters": problem["dimension"],
        "methods": ", ".join(result.algorithms[:METHODS]),
        "rates": f"{len(settings['lrs'])}, {short(settings['lrs'][0])} to {short(settings['lrs'][-1])}",
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


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_text(part)}" for key, part in value.items()) + ")"
    return str(value)
