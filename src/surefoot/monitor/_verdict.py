"""The verdict: is this learning rate stable, why, and which range would be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from surefoot.monitor._counterfactual import polyak_scale
from surefoot.monitor._history import Floats
from surefoot.theory.models import SquareRoot, Truncated

STABLE, EDGE, UNSTABLE, UNKNOWN = "stable", "at the edge", "unstable", "unknown"

SHORTENED = 1.0
"""z above which SPS shortens a step: the linear model promises more than there is to gain."""
RISING = 4.0
"""z above which a full step along −g raises *every* quadratic f ≥ C: f(x − αg) − f ≥ α‖g‖²(z/4 − 1)."""
SOARING = 1.5
"""Growth of the loss that makes a run unstable: over the first step if z > 1, over the first steps whatever z is."""
FAR = 1e4
"""Growth of the loss beyond which a place says nothing about rates that would not have led there."""
STRETCH = 5
"""Steps over which the worst z is averaged."""
CAUTIOUS = 0.1
"""z at the lower end of the suggested range, where NGN would take 95 % of the step: a smaller rate is only slower."""


@dataclass(frozen=True)
class Verdict:
    """What a monitor makes of a run."""

    state: str
    """``stable``, ``at the edge``, ``unstable``, or ``unknown`` while there is too little to say."""
    reason: str
    """One sentence."""
    lr_range: tuple[float, float] | None
    """A suggestion: from z = 0.1 (NGN would take 95 % of the step) to z = 1 (where SPS begins to shorten it), in the
    sharpest stretch of five steps and at the first one; a rate that is stable as it is belongs to it, even if single
    steps were too long. Momentum or Adam count with the step that they took, if ``"interval"`` is tracked; what their
    memory adds later does not."""

    def __str__(self) -> str:
        if self.lr_range is None:
            return f"{self.state}: {self.reason}"
        low, high = self.lr_range
        return f"{self.state}: {self.reason} Suggested lr: {low:.2g} to {high:.2g}."


def judge(
    loss: Floats,
    promised: Floats,
    taken: Floats,
    rate: Floats,
    *,
    lower_bound: float,
    window: int,
    stop_reason: str | None = None,
) -> Verdict:
    """The verdict on the steps so far, from z = q/F.

    Args:
        loss: f(x_t, s_t).
        promised: q, the decrease that the linear model promises at the nominal rate: α‖g‖², or ⟨g, Δ⟩ of a foreign
            step.
        taken: The same for the step that was really taken (shorter than the nominal one for SPS, NGN, …).
        rate: α_t.
        lower_bound: C.
        window: Steps at the start and at the end that are compared.
        stop_reason: What a stop rule has said, if one has.
    """
    broken = np.flatnonzero(np.isinf(loss) | np.isinf(promised))
    usable = np.isfinite(loss) & np.isfinite(promised) & (promised >= 0) & (rate > 0) & (loss > lower_bound)
    if not usable.any():
        if len(broken):
            return Verdict(UNSTABLE, f"Loss or gradient are not finite from step {broken[0]} on.", None)
        reason = f"No step has a loss above lower_bound = {lower_bound:g} and a gradient yet; see monitor.record."
        return Verdict(UNKNOWN, reason, None)
    height, q, used = (loss - lower_bound)[usable], promised[usable], taken[usable]
    # The sharpest place that was visited counts, and the first step; but not places to which a bad rate has thrown the
    # run, because the curvature of a network grows with its loss.
    near = height <= FAR * height[0]
    scales = np.append(polyak_scale(height[:1], q[:1], 0.0), polyak_scale(_means(height[near]), _means(q[near]), 0.0))
    rates = np.append(rate[usable][:1], rate[usable][near][-len(scales) + 1 :])
    high = float((scales * rates).min())
    lr_range = (CAUTIOUS * high, SHORTENED * high) if 0 < high < math.inf else None
    if len(broken):
        return Verdict(UNSTABLE, f"Loss or gradient are not finite from step {broken[0]} on.", lr_range)

    recent = slice(-window, None)
    nominal, typical = (_relative(_mean(values[recent]), _mean(height[recent])) for values in (q, used))
    sps, ngn = (float(model.step(1.0, float(nominal[0]), 1.0).size) for model in (Truncated(), SquareRoot()))
    each = _relative(q[recent], height[recent])
    worst = _relative(_means(used), _means(height)).max()
    ratio = float(_mean(height[recent])[0] / max(height[0], np.finfo(float).tiny))
    hit, sharpest = np.mean(each > SHORTENED), min(1.0, scales.min())
    reason = (
        f"At lr = {rate[usable][-1]:.3g} SPS would have shortened {hit:.0%} of the last {len(each)} steps (the typical "
        f"one to {sps:.0%}, NGN to {ngn:.0%}; the worst of the run to {sharpest:.0%}), and the loss is {ratio:.2g} "
        "times the first."
    )
    if stop_reason is not None:
        return Verdict(UNSTABLE, f"{stop_reason[:1].upper()}{stop_reason[1:]}. {reason}", lr_range)
    grown = _mean(height[recent]) > SOARING * _mean(height[:window])
    # A network may lie still where a violent phase has left it: then the loss, which has not fallen, has the word.
    seen = max(worst, typical[0]) if ratio > 1 else typical[0]
    if seen > RISING or grown or (ratio > SOARING and seen > SHORTENED):
        return Verdict(UNSTABLE, reason, lr_range)
    if seen > SHORTENED:
        return Verdict(EDGE, reason, lr_range)
    if lr_range is not None and nominal[0] <= SHORTENED:  # not a rate that holds because the optimizer shortens it
        lr_range = (lr_range[0], max(lr_range[1], float(rate[usable][-1])))
    return Verdict(STABLE, reason, lr_range)


def _relative(decrease: Floats, height: Floats) -> Floats:
    """z = q/F."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / polyak_scale(height, decrease, 0.0))


def _mean(values: Floats) -> Floats:
    """A mean that does not overflow before its result does."""
    return np.asarray((values / len(values)).sum(keepdims=True))


def _means(values: Floats) -> Floats:
    """Means over all stretches of a few steps, so that a single batch does not decide."""
    stretch = min(STRETCH, len(values))
    return np.asarray((sliding_window_view(values, stretch) / stretch).sum(axis=-1))
