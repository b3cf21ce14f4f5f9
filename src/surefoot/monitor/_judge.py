"""From the numbers of a run's steps to a verdict.

A loss that is not finite, or that has doubled, is too large. Else two weighted sums of a few dimensionless numbers
decide, and a third one names the best rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from surefoot.monitor._verdict import State, Verdict
from surefoot.plots import short
from surefoot.rules import Floats

Columns = Mapping[str, Floats]
Weights = Mapping[str, Sequence[float]]

NEEDED = ("loss", "rate", "slope", "moved_sq", "point_sq", "away_sq", "back")
"""Columns without which a step is no evidence; ``carried`` may be missing at some of them."""
SHARE = 10
"""A verdict needs the first T/10 steps."""
FEWEST = 5
"""Steps below which there is no verdict, however short the run."""
WITHOUT_HORIZON = 20
"""Steps that are needed where the length of the run is not known."""
FAR = 3.0
"""Rise of the loss, in first losses, after which a lost run is no longer evidence for smaller rates."""

PROMISED, AWAY = (-7.0, 2.0), (-7.0, 1.5)
"""Limits of ``promised`` and ``away``: small steps are lost in the rounding of float32, and points that a large rate
has led to say nothing about smaller rates."""
_TINY = 1e-300
_MEDIAN_DIFFERENCE = 0.95
"""Median of |a − b| for two numbers drawn from a normal distribution of deviation 1."""
_OTHER = 0.3
"""Decades between a rate and the likely best one, from which on the verdict says that another rate is better."""
_AFTER_LOSS = -1.0
"""Decades from the rate of a lost run to the middle of a first guess; its evidence is that of a few wild steps."""
_FARTHEST = 0.8
"""Decades between a rate that works and the likely best one, at most: both belong to the range."""

WEIGHTS: Weights = {
    #            small  large   best
    "constant": (-1.33, -2.88, 0.81),
    "promised": (-1.23, 1.22, -0.39),
    "share":    (3.55, -0.28, 0.49),
    "learned":  (-5.85, -4.82, 0.20),
    "away":     (-2.89, 3.55, -0.51),
    "uphill":   (-0.93, 0.00, 0.00),
    "falls":    (0.48, -1.15, 0.15),
    "left":     (0.00, 0.00, 0.84),
    "memory":   (0.00, 0.00, -0.62),
}  # fmt: skip
"""The weights of the evidence in three sums, as ``python benchmarks/verdict.py --fit`` prints them.

``small`` and ``large`` are logistic regressions of "below" and "above the window of good rates", ``best`` a robust
linear one of log10(best rate / this rate). Above 0 a rate is too small, or too large. The cuts are such that, with the
kind at hand left out of the fit, 2 % of the rates inside their window are called too small and 1 % too large.
"""
EDGE = -2.25
"""The ``large`` sum from which on a rate is at the edge."""
BEHIND = ((0.35, 0.02), (0.66, 0.1), (1.0, 0.47), (1.45, 0.74), (2.1, 0.94), (3.25, 0.99))
"""Decades to the best rate, and the median share of the gain that smaller rates of this distance are behind."""


class Setting(NamedTuple):
    """What is known of a run beside the numbers of its steps."""

    horizon: int | None
    """T; None for a run of unknown length, which is then taken to be ten times as long as it is."""
    peak: float
    """The largest rate of the run, as far as it is known."""
    elements: int
    """Parameters in the sample."""
    momentum: float
    """β of the average that the optimizer takes of its gradients, in [0, 1)."""


class Evidence(NamedTuple):
    """Dimensionless numbers of a run's steps. Losses are measured in units of the first loss."""

    share: float
    """log10 of the share of its steps that the run has made."""
    promised: float
    """log10 of the decrease that the slopes Σ⟨g, Δ⟩ of the steps have promised."""
    learned: float
    """By how much the loss has fallen, beyond its scatter, from 0 to 1."""
    away: float
    """log10 of the distance from the start over the length of the parameters (1 where all start at zero)."""
    uphill: float
    """±ln(1 + 100|⟨g, x − x_1⟩|), the slope of the way from the start where it ends: above 0, it has gone too far."""
    left: float
    """Σ⟨g⁺, Δ⟩/Σ⟨g, Δ⟩ over the later half: the share of their slope that is left where steps end, on other batches."""
    falls: float
    """1 if the rate has begun to fall, else 0."""
    memory: float
    """log10 of 1/(1 − β), the steps that momentum averages over."""


class Losses(NamedTuple):
    """A run's losses in a few numbers."""

    first: float
    late: float
    """The median loss of the last quarter, twenty steps at most."""
    unit: float
    """The unit of loss: the first one, or the noise where the first is near 0 by chance."""
    noise: float
    """The scatter from one batch to the next."""
    risen: float
    """By how many first losses the late loss is above the very first one."""

    @classmethod
    def of(cls, loss: Floats) -> Losses:
        """Those of at least two finite losses."""
        noise = float(np.median(np.abs(np.diff(loss)))) / _MEDIAN_DIFFERENCE
        # A first step that was far too long must not count as the beginning; nor may a lucky batch.
        spread = max(abs(float(loss[0])), noise if loss.min() < 0 else 0.0)
        first = min(float(np.median(loss[:5])), float(loss[0]) + spread)
        late = float(np.median(loss[-min(_quarter(loss), 20) :]))
        unit = max(abs(first), 2 * noise if first < 2 * noise and loss.min() < 0 else 0.0, _TINY)
        return cls(first, late, unit, noise, (late - float(loss[0])) / max(spread, _TINY))

    def change(self, done: int) -> str:
        """How the loss has changed, for a person."""
        if self.first > 0 and self.late > 0:
            ratio = short(self.late / self.first, 2)
            return f"after {done} steps the loss is " + ("unchanged" if ratio == "1" else f"{ratio} times the first")
        return f"after {done} steps the loss has gone from {short(self.first)} to {short(self.late)}"


def gather(columns: Columns, setting: Setting) -> tuple[Evidence, Losses]:
    """The evidence of some steps: at least three, all finite, each with a rate above 0 and a step that was taken."""
    loss, rate, slope = (columns[name] for name in ("loss", "rate", "slope"))
    losses, half = Losses.of(loss), len(loss) // 2
    length = math.sqrt(columns["point_sq"][0])
    if length < 1e-4 * math.sqrt(setting.elements):
        length = 1.0  # about that of a linear layer as torch begins it
    ahead = setting.peak / float(np.max(rate))  # a warmup that goes on counts as if its peak were reached now
    uphill = _mean(columns["back"][-_quarter(loss) :]) / losses.unit
    carried = columns["carried"][half + 1 :]
    known = np.isfinite(carried)
    before = _mean(np.where(known, slope[half:-1], 0.0))
    evidence = Evidence(
        share=_log(len(loss) / (setting.horizon or SHARE * len(loss)), -2, 0),
        promised=_log(ahead * len(loss) * _mean(slope) / losses.unit, *PROMISED),
        learned=float(np.clip((losses.first - losses.late - losses.noise) / losses.unit, 0.0, 1.0)),
        away=_log(ahead * math.sqrt(columns["away_sq"][-1]) / length, *AWAY),
        uphill=math.copysign(math.log1p(100 * min(abs(uphill), 3.0)), uphill),
        left=float(np.clip(_mean(np.where(known, carried, 0.0)) / max(abs(before), _TINY), -1.0, 1.0)),
        falls=float(rate[-1] < 0.98 * np.max(rate)),
        memory=math.log10(1.0 / (1.0 - setting.momentum)),
    )
    return evidence, losses


def scores(evidence: Evidence, weights: Weights = WEIGHTS) -> Floats:
    """The three sums of the evidence: too small, too large, and the decades to the best rate."""
    numbers = {"constant": 1.0, **evidence._asdict()}
    sums: Floats = np.array([numbers[name] for name in weights]) @ np.array(list(weights.values()))
    return sums


def look(columns: Columns, setting: Setting) -> tuple[Evidence | None, Losses | None, bool]:
    """The evidence so far, the losses (None of fewer than three steps), and whether the run is lost.

    It is lost if its loss is not finite or has doubled, and its evidence is then that before the loss had risen far.
    """
    loss, broken = columns["loss"], _broken(columns)
    # A GradScaler, or a loss below its lower bound, leaves steps out.
    usable = np.all([np.isfinite(columns[name]) for name in NEEDED], axis=0) & (columns["moved_sq"] > 0)
    steps = np.flatnonzero((usable & (columns["rate"] > 0))[:broken])
    if len(steps) < 3:
        return None, None, broken is not None

    @np.errstate(all="ignore")
    def gathered(steps: Any) -> tuple[Evidence, Losses]:
        return gather({name: columns[name][steps] for name in (*NEEDED, "carried")}, setting)

    evidence, losses = gathered(steps)
    # Noise is no rise, unless the steps were long enough for it.
    least = 1.0 if evidence.promised > 1.0 else 1.0 + 3 * losses.noise / losses.unit
    is_lost = broken is not None or losses.risen > least
    first = float(loss[steps[0]])
    risen = loss[steps] - first > FAR * abs(first)
    if is_lost and risen.any():
        evidence, _ = gathered(steps[: max(3, int(np.argmax(risen)))])
    return evidence, losses, is_lost


def _broken(columns: Columns) -> int | None:
    """The step from which on loss or gradient are not finite."""
    infinite = np.isinf(columns["loss"]) | np.isinf(columns["slope"])
    return int(np.argmax(infinite)) if infinite.any() else None


def judge(columns: Columns, setting: Setting, stop_reason: str | None = None) -> Verdict:
    """The verdict on the steps so far; it says so where the first tenth of them has led to another one.

    Args:
        columns: The numbers of the steps: ``NEEDED``, ``carried`` and ``size``; ∞ is divergence, NaN what was not
            measured.
        setting: What else is known of the run.
        stop_reason: What a stop rule has reported, if one has.
    """
    done, horizon, peak = len(columns["loss"]), setting.horizon, setting.peak
    wanted = WITHOUT_HORIZON if horizon is None else min(max(horizon // SHARE, FEWEST), horizon)
    evidence, losses, is_lost = look(columns, setting)
    broken, still = _broken(columns), int(((columns["moved_sq"] == 0) & (columns["rate"] > 0)).sum())
    if stop_reason is not None or broken is not None:
        reason = stop_reason or f"loss or gradient are not finite from step {broken} on"
        return verdict_of(State.TOO_LARGE, reason, evidence, peak, is_lost)
    if done < wanted and not (is_lost and done >= FEWEST):
        reason = f"{done} of the {wanted} steps that a verdict needs are done"
        return Verdict(State.UNKNOWN, reason, more_steps=wanted - done)
    if evidence is None or losses is None or 2 * still > done:
        if not np.isfinite(columns["loss"]).any():
            return Verdict(State.UNKNOWN, "no loss is known; call monitor.record(loss) before every step")
        hint = ', as where the loss is below a lower_bound: "level" needs none' if np.any(columns["size"] == 0) else ""
        return Verdict(State.UNKNOWN, f"{still} of {done} steps did not move the parameters{hint}")
    state = state_of(evidence, is_lost)
    reason = _reason(state, evidence, losses, done)
    if horizon is None:
        reason += f", if the run is to be ten times as long ({SHARE * done} steps)"
    else:
        early, _, was_lost = look({name: values[:wanted] for name, values in columns.items()}, setting)
        before = state if early is None else state_of(early, was_lost)
        if before is not state:
            reason += f' (after {wanted} steps it was "{before}")'
    return verdict_of(state, reason, evidence, peak, is_lost)


def state_of(evidence: Evidence, is_lost: bool, weights: Weights = WEIGHTS, edge: float = EDGE) -> State:
    """Where a rate stands."""
    small, large, _ = scores(evidence, weights)
    if is_lost or large > 0:
        return State.TOO_LARGE
    if small > 0:
        return State.TOO_SMALL
    return State.AT_THE_EDGE if large > edge else State.HOLDS


def verdict_of(
    state: State, reason: str, evidence: Evidence | None, peak: float, is_lost: bool, weights: Weights = WEIGHTS
) -> Verdict:
    """The verdict with its rates: the likely best one, as far as the state allows, and a range around it."""
    estimate, details = -2.0, {}
    if evidence is not None:
        small, large, estimate = scores(evidence, weights).tolist()
        details = {**evidence._asdict(), "too small": small, "too large": large, "decades to best": estimate}
        estimate = _AFTER_LOSS if is_lost else estimate
    side = {State.HOLDS: 0, State.TOO_SMALL: 1}.get(state, -1)
    if side:  # a rate that does not work is no part of the range
        best = side * max(side * estimate, _OTHER)
        span = sorted((side * max(abs(best) - 0.5, 0.1), best + side * 0.5))
    else:  # and one that does is; where a smaller one seemed better, it was so in half the cases only
        best = min(max(estimate, -_OTHER), _FARTHEST)
        span = [min(best, 0.5) - 0.5, min(best, 0.5) + 0.5]
    low, high = (peak * 10.0**decades for decades in span)
    if not 0 < low <= high < np.inf:
        return Verdict(state, reason, details=details)
    # Where the run is lost, or the evidence at the ends of its scales, the range is a first guess.
    ends = {State.TOO_SMALL: (PROMISED[0], AWAY[0]), State.TOO_LARGE: (PROMISED[1], AWAY[1])}.get(state)
    if evidence is None or is_lost or (evidence.promised, evidence.away) == ends:
        return Verdict(state, reason, (low, high), None, peak, details=details)
    is_behind = side > 0 or (side == 0 and best > _OTHER)
    behind = float(np.interp(best, *np.transpose(BEHIND))) if is_behind else None
    return Verdict(state, reason, (low, high), peak * 10.0**best, peak, behind, details=details)


def progress(loss: Floats) -> str | None:
    """How a run is doing, of whose rate nothing can be said; None if it has hardly begun.

    >>> progress(np.array([4.0, 4.0, 2.0, 2.0]))
    'after 4 steps the loss is 0.67 times the first'
    """
    if np.isinf(loss).any():
        return f"the loss is not finite from step {int(np.argmax(np.isinf(loss)))} on"
    known = loss[np.isfinite(loss)]
    return Losses.of(known).change(len(loss)) if len(known) > 1 else None


def _reason(state: State, evidence: Evidence, losses: Losses, done: int) -> str:
    """What decided, for a person."""
    change = losses.change(done)
    if state is State.TOO_SMALL:
        return f"{change}, and the weights have moved by {short(10**evidence.away, 2)} of their length only"
    if state is State.HOLDS:
        return f"{change}, and its steps are neither too short nor do they overshoot"
    if losses.late > losses.first:
        return change
    if evidence.uphill > 0:
        return f"{change}, but it has gone too far: the gradient points back to the start"
    return f"{change}, but its steps are long: they promise {short(10**evidence.promised, 2)} times the loss"


def _quarter(values: Floats) -> int:
    return max(2, len(values) // 4)


def _mean(values: Floats) -> float:
    """A mean that does not overflow before its result does."""
    return float(np.sum(values / max(len(values), 1)))


def _log(value: float, least: float, most: float) -> float:
    """A decimal logarithm within limits; the least for what is not above 0."""
    return min(max(math.log10(min(value, 1e300)), least), most) if value > 0 else float(least)
