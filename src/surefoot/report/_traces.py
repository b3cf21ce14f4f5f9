"""What the page shows of single runs: δ_t and ‖x_t − x_1‖ over time, step sizes, and points on the universal curve."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.report._pack import Pack, decades
from surefoot.study import parse_method
from surefoot.theory.models import Step

if TYPE_CHECKING:
    from surefoot.study import Result

Floats = NDArray[np.float64]

SEEDS = 5
"""Up to so many seeds have a line each; of more, the page shows the smallest and the largest value."""
VALUES = 150_000
"""About so many numbers are kept of δ_t, and of ‖x_t − x_1‖, of all runs together."""
POINTS = (40, 240)
"""At least and at most so many numbers are kept of a line, whatever VALUES says."""
CLOUD = 48
"""So many points (z, δ/F) are kept of a method at a rate."""
CURVE = np.geomspace(1e-4, 1e6, 121)
"""Where the universal curves are drawn."""
LINES = 6_000
"""Traces are kept of so many methods that they have at most so many lines together, at least of one method."""


def kept_methods(result: Result) -> list[int]:
    """Positions of the methods whose traces are on the page: all, or of many those with the lowest losses.

    >>> from surefoot.study import Study
    >>> kept_methods(Study("linear-regression", methods=["sgd", "sps"], lrs=0.1, seeds=1, epochs=1, batch_size=5).run())
    [0, 1]
    """
    methods, lrs, seeds = result.dataset.last_loss.shape
    fitting = max(LINES // (lrs * (1 + (seeds if seeds <= SEEDS else 2))), 1)
    if methods <= fitting:
        return list(range(methods))
    losses = np.nan_to_num(result.dataset.last_loss.values, nan=np.inf, posinf=np.inf)
    with np.errstate(over="ignore"):
        best = losses.mean(axis=2).min(axis=1)
    return sorted(np.argsort(best, kind="stable")[:fitting].tolist())


def traces(result: Result, pack: Pack, kept: list[int]) -> dict[str, Any]:
    """The lines of the kept methods and every rate: the mean over the seeds, and the seeds (or their range)."""
    data = result.dataset
    model = result.deltas("model").values[kept]
    safe = result.deltas("safe").values[kept]
    methods, lrs, seeds, _ = model.shape
    single = seeds <= SEEDS
    count = methods * lrs * (1 + (seeds if single else 2))
    points = int(np.clip(VALUES // count, *POINTS))
    same = [np.allclose(*pair, rtol=1e-6, atol=0.0, equal_nan=True) for pair in zip(model, safe, strict=True)]
    apart = np.flatnonzero(~np.array(same)).tolist()
    step_numbers = data.step.values.astype(np.uint16 if data.step.values[-1] < 2**16 else np.uint32)

    def packed(values: Floats) -> dict[str, Any]:
        positions, thinned = thin(_lines(values, single), points)
        return {"steps": pack.array(step_numbers[positions]), "values": pack.array(decades(thinned))}

    return {
        "lines": ["mean", *(str(seed) for seed in result.settings["seeds"])] if single else ["mean", "low", "high"],
        "seeds": single,
        "delta": packed(model),
        "safe": {"methods": apart, **packed(safe[apart])} if apart else None,
        "distance": packed(data.distance.values[kept]),
    }


def thin(values: Floats, points: int) -> tuple[NDArray[np.intp], Floats]:
    """Positions and values of about ``points`` entries of the last axis, with every peak and dip among them.

    The axis is cut into points/2 stretches, and each keeps its smallest and its largest entry, in their order: a drawn
    line looks the same, and the smallest and the largest value of all stay. Positions have one axis if nothing was
    left out, and the shape of the values otherwise.

    >>> thin(np.array([5.0, 1.0, 2.0, 9.0, 3.0, 4.0, 4.0, 0.0]), points=4)
    (array([1, 3, 5, 7]), array([1., 9., 4., 0.]))
    """
    length = values.shape[-1]
    if length <= points:
        return np.arange(length), values
    edges = np.linspace(0, length, max(points // 2, 1) + 1).astype(int)
    kept: list[Any] = []
    for begin, end in pairwise(edges.tolist()):
        stretch = values[..., begin:end]
        pair = np.stack([stretch.argmin(axis=-1), stretch.argmax(axis=-1)], axis=-1)
        kept.append(begin + np.sort(pair, axis=-1))
    positions = np.concatenate(kept, axis=-1)
    return positions, np.take_along_axis(values, positions, axis=-1)


def sizes(result: Result, pack: Pack, kept: list[int]) -> dict[str, Any]:
    """Median, 5 % and 95 % quantile of the steps' sizes of the kept methods and every rate, over steps and seeds."""
    values = result.dataset["size"].values[kept]
    quantiles = np.full((3, *values.shape[:2]), np.nan)
    for where in np.ndindex(values.shape[:2]):
        finite = values[where][np.isfinite(values[where])]
        if len(finite):
            quantiles[:, *where] = np.quantile(finite, (0.05, 0.5, 0.95), method="nearest")
    return {name: pack.array(part) for name, part in zip(("low", "median", "high"), quantiles, strict=True)}


def universal(result: Result, pack: Pack, kept: list[int]) -> dict[str, Any]:
    """The curves δ/F over z = α‖g‖²/F of the kept models, and the runs' points, spread evenly over their ranks."""
    data = result.dataset.isel(algorithm=kept)
    methods = [result.settings["methods"][place] for place in kept]
    bounds = np.array([method["lower_bound"] or 0.0 for method in methods])
    excess = data.loss.values - bounds[:, None, None, None]
    with np.errstate(all="ignore"):
        z, share = data.rate.values * data.grad_sq.values / excess, data.delta.values / excess
    good = (excess > 0) & np.isfinite(excess) & (z > 0) & np.isfinite(z) & np.isfinite(share)
    cloud = np.full((2, *z.shape[:2], CLOUD), np.nan)
    for where in np.ndindex(z.shape[:2]):
        x, y = z[where][good[where]], share[where][good[where]]
        order = np.argsort(x)[np.linspace(0, len(x) - 1, min(CLOUD, len(x))).astype(int)]
        cloud[:, *where, : len(order)] = x[order], y[order]
    steps = [unit_step(method["identity"], CURVE) for method in methods]
    return {
        "z": pack.array(decades(cloud[0])),
        "share": pack.array(decades(cloud[1])),
        "grid": pack.array(decades(CURVE)),
        "curves": [None if step is None else pack.array(decades(step.delta)) for step in steps],
    }


def _lines(values: Floats, single: bool) -> Floats:
    """The lines that are drawn, of shape (methods, rates, lines, steps), from (methods, rates, seeds, steps)."""
    with np.errstate(over="ignore"):
        mean = values.mean(axis=2, keepdims=True)
    if single:
        return np.concatenate([mean, values], axis=2)
    low, high = np.fmin.reduce(values, axis=2), np.fmax.reduce(values, axis=2)
    return np.concatenate([mean, low[:, :, None], high[:, :, None]], axis=2)


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
