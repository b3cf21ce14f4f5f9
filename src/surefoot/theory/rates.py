"""Convergence rates: what the average-iterate bound says before a run, at a constant rate α.

They bound E f(x̄) − f⋆, where x̄ is the mean of x_1 … x_T (and so the smallest E f(x_t) − f⋆ as well), for batches
drawn independently. Every batch loss f(·, s) is convex; in :func:`sps` and :func:`ngn` it is also L-smooth, with the
same L for all batches. D ≥ ‖x_1 − x⋆‖, and ``noise`` is

    s̄ = f⋆ − E_s[C_s] = σ² + ε_lb,

0 if one point minimises every batch loss and the lower bounds C_s are the batches' infima. ``docs/theory.md`` has the
proofs.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from surefoot._base.arguments import numbers, one_of, whole
from surefoot.theory.arrays import scalar
from surefoot.theory.bounds import Bound, product


def sps(smoothness: ArrayLike, distance: ArrayLike, steps: int, lr: ArrayLike, noise: ArrayLike = 0.0) -> Bound:
    """The rate of SPS, and with s̄ = σ² of SPP, on L-smooth convex losses:

        2LD²/T + (4αL − 1)·s̄                       for αL ≥ ½,
        D²/(2α(1 − αL)T) + αL/(1 − αL)·s̄           for αL < ½.

    Under interpolation (s̄ = 0) it does not depend on α from 1/(2L) on; SGD has no bound that does not grow in α. Below
    1/(2L) the step of SPS is never shortened: it is SGD, and s̄ may be replaced by σ².

    >>> sps(smoothness=1.0, distance=1.0, steps=10, lr=1.0, noise=0.5)
    Bound(bias=0.2, noise=1.5)
    >>> [sps(1.0, 1.0, 10, lr).total for lr in (0.5, 5.0, 500.0)]
    [0.2, 0.2, 0.2]
    """
    rate, curvature = numbers("lr", lr, positive=True), numbers("smoothness", smoothness, positive=True)
    is_short = rate * curvature < 0.5
    inside = np.where(is_short, rate * curvature, 0.0)
    bias = np.where(is_short, 0.5 / (rate * (1.0 - inside)), 2.0 * curvature)
    factor = np.where(is_short, inside / (1.0 - inside), 4.0 * rate * curvature - 1.0)
    return _bound(bias, factor, distance, steps, noise)


def ngn(smoothness: ArrayLike, distance: ArrayLike, steps: int, lr: ArrayLike, noise: ArrayLike = 0.0) -> Bound:
    """The rate of NGN on L-smooth convex losses, with its safe index (its own is not valid for every convex loss):

        (1 + αL)²D²/(2αT) + ((1 + αL)² − 1)·s̄

    It is smallest near α = 1/L, where its bias is SPS's 2LD²/T.

    >>> ngn(smoothness=1.0, distance=1.0, steps=10, lr=1.0, noise=0.5)
    Bound(bias=0.2, noise=1.5)
    """
    rate, curvature = numbers("lr", lr, positive=True), numbers("smoothness", smoothness, positive=True)
    bias = 0.5 / rate + curvature + 0.5 * curvature * (rate * curvature)  # (1 + αL)²/(2α)
    return _bound(bias, rate * curvature * (2.0 + rate * curvature), distance, steps, noise)


def lipschitz(
    lipschitz: ArrayLike,
    distance: ArrayLike,
    steps: int,
    lr: ArrayLike,
    method: Literal["sgd", "sps", "spp", "ngn"] = "sgd",
) -> Bound:
    """The rate where ‖g‖ ≤ G (App. B.1), without smoothness: D²/(2αT) + αG²/2; for NGN D²/(2αT) + αG².

    The first holds for SGD, SPS and SPP, whose indices are at most ½αG², and so cannot show what SPS gains. The paper
    states it for NGN, too, but there it fails: NGN's model need not lie below the loss (f = |x|, x_1 = 1, α = ½, T = 2:
    f(x̄) = 0.8, and 0.75 is claimed). NGN's safe index is at most αG².

    >>> lipschitz(1.0, distance=1.0, steps=2, lr=0.5), lipschitz(1.0, 1.0, 2, 0.5, method="ngn")
    (Bound(bias=0.5, noise=0.25), Bound(bias=0.5, noise=0.5))
    """
    one_of("method", method, ("sgd", "sps", "spp", "ngn"))
    rate, slope = numbers("lr", lr, positive=True), numbers("lipschitz", lipschitz)
    index = (1.0 if method == "ngn" else 0.5) * (rate * slope) * slope  # G² alone may underflow
    return _bound(0.5 / rate, index, distance, steps, 1.0)


def _bound(bias: Any, factor: Any, distance: ArrayLike, steps: int, noise: ArrayLike) -> Bound:
    """bias·D²/T + factor·s̄, where a noise of 0 stays 0 at an infinite rate."""
    reach = numbers("distance", distance)
    return Bound(
        scalar(bias * reach * reach / whole("steps", steps, 1)), scalar(product(factor, numbers("noise", noise)))
    )
