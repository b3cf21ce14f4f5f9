"""What the page shows of single runs: δ_t and ‖x_t − x_1‖ over time, and points on the universal curve."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.study import parse_method
from surefoot.theory.models import Step

if TYPE_CHECKING:
    from surefoot.study import Result

Floats = NDArray[np.float64]

POINTS = (24, 100)
"""At least and at most so many points have a line over the steps."""
BUDGET = 60_000
"""About so many points have all lines of a page together."""
CLOUD = 24
"""So many points (z, δ/F) are kept per method and rate."""
CURVE = np.geomspace(1e-4, 1e6, 121)
"""Where the universal curves are drawn."""


def traces(result: Result, methods: list[int]) -> dict[str, Any]:
    """Lines and bands of δ_t and ‖x_t − x_1‖ over the steps, of every rate of some methods.

    Of thousands of steps a plot shows noise, so that neighbouring steps share a point: the line is their mean over
    steps and seeds, which is what the bound sums, and the band holds 80 % of them.
    """
    data = result.dataset
    model, safe = (result.deltas(index).values[methods] for index in ("model", "safe"))
    bins = min(int(np.clip(BUDGET // (len(methods) * len(result.lrs)), *POINTS)), model.shape[-1])
    edges = np.linspace(0, model.shape[-1], bins + 1).astype(int)
    same = [np.allclose(*pair, rtol=1e-6, atol=0.0, equal_nan=True) for pair in zip(model, safe, strict=True)]
    return {
        "steps": [float(data.step.values[low:high].mean()) for low, high in pairwise(edges.tolist())],
        "each": int(np.diff(edges).max()),
        "delta": aggregated(model, edges),
        "safe": [None if alike else each for alike, each in zip(same, aggregated(safe, edges), strict=True)],
        "distance": aggregated(data.distance.values[methods], edges),
    }


def aggregated(values: Floats, edges: NDArray[np.intp]) -> Floats:
    """Mean, 10 % and 90 % quantile between the edges: (methods, rates, seeds, steps) to (methods, rates, 3, bins).

    >>> aggregated(np.arange(20.0).reshape(1, 1, 2, 10), np.array([0, 5, 10])).tolist()
    [[[[7.0, 12.0], [1.0, 6.0], [13.0, 18.0]]]]
    """
    lines = []
    for low, high in pairwise(edges.tolist()):
        part = values[..., low:high].reshape(*values.shape[:2], -1)
        with np.errstate(over="ignore"):
            lines.append([part.mean(axis=-1), *np.quantile(part, (0.1, 0.9), axis=-1, method="nearest")])
    return np.moveaxis(np.array(lines), (0, 1), (-1, -2))


def universal(result: Result, methods: list[int]) -> dict[str, Any]:
    """The curves δ/F over z = α‖g‖²/F of the models, and the runs' points, spread evenly over their ranks."""
    data = result.dataset.isel(algorithm=methods)
    chosen = [result.settings["methods"][place] for place in methods]
    bounds = np.array([method["lower_bound"] or 0.0 for method in chosen])
    gap = data.loss.values - bounds[:, None, None, None]
    with np.errstate(all="ignore"):
        z, ratio = data.rate.values * data.grad_sq.values / gap, data.delta.values / gap
    good = (gap > 0) & np.isfinite(gap) & (z > 0) & np.isfinite(z) & np.isfinite(ratio)
    points = np.full((*z.shape[:2], 2, CLOUD), np.nan)
    for where in np.ndindex(z.shape[:2]):
        x, y = z[where][good[where]], ratio[where][good[where]]
        order = np.argsort(x)[np.linspace(0, len(x) - 1, min(CLOUD, len(x))).astype(int)]
        points[(*where, slice(None), slice(len(order)))] = x[order], y[order]
    steps = [unit_step(method["identity"], CURVE) for method in chosen]
    return {"points": points, "grid": CURVE, "curves": [None if step is None else step.delta for step in steps]}


def unit_step(identity: str, z: Floats) -> Step | None:
    """The step of a method at F = 1 and α = 1, so that ‖g‖² = z.

    None for the exact model, for levels, and for models from elsewhere, whose code is not at hand.
    """
    try:
        method = parse_method(identity)
    except ValueError:
        return None
    model = method.model
    if model is None or method.level is not None:
        return None
    return model.step((model.lower_bound if np.isfinite(model.lower_bound) else 0.0) + 1.0, z, 1.0)
