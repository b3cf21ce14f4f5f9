"""From the evidence of a run's first tenth to a verdict.

A loss that is not finite, or that has doubled, is too large. Else two weighted sums of the evidence decide, and a third
one names the best rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from surefoot.monitor._evidence import AWAY, NEEDED, PROMISED, Evidence, Losses, gather, summarise
from surefoot.monitor._verdict import State, Verdict
from surefoot.plots import short
from surefoot.rules import Floats

Indices = np.ndarray[Any, np.dtype[np.intp]]

SHARE = 10
"""A verdict depends on the first T/10 steps, as many as the weights were fitted on."""
FEWEST = 5
"""Steps below which there is no verdict, however short the run."""
WITHOUT_HORIZON = 20
"""Steps that are needed where the length of the run is not known."""
FAR = 3.0
"""Rise of the loss, in first losses, after which the points say nothing about rates that do not lead there."""

_HALF_WIDTH = 0.75
"""Decades of the range on either side of its middle."""
_HALF_WIDTH_HOLDS = 0.5
"""The same for a rate that holds, where the evidence is better, unless the optimizer has shortened its steps itself."""
_HARDLY = -0.05
"""log10 of the share of their rate that steps have at least where they were hardly shortened."""
_OTHER = 0.3
"""Decades between a rate that holds and a larger, likely best one, from which on the verdict says that it is better."""
_CONTRADICTION = 0.25
"""Decades by which the likely best rate may be moved to agree with the state; beyond, none is named."""

WEIGHTS = {
    #              small  large   best
    "constant":  (-3.35, -1.79, -0.38),
    "promised":  (-2.75,  1.32, -0.45),
    "uphill":    (-0.25,  0.26, -0.09),
    "learned":   (-3.89, -2.88,  0.0),
    "spike":     (-3.41,  0.0,   0.0),
    "away":      (-1.68,  1.45, -0.51),
    "straight":  (-1.92,  1.07, -0.29),
    "kept":      ( 0.0,  -0.18,  0.0),
    "shortened": ( 0.0,  -0.17,  0.78),
    "warmup":    ( 0.66, -1.34,  0.32),
    "falls":     ( 1.8,  -1.62,  0.6),
    "noise":     ( 1.0,   0.0,   0.0),
    "above":     (-3.49,  0.0,   0.0),
}  # fmt: skip
"""The weights of the evidence in three sums, as ``python benchmarks/verdict.py --fit`` prints them.

``small`` and ``large`` are logistic regressions of "below" and "above the window of good rates", ``best`` a robust
linear one of log10(best rate / this rate). Above 0 a rate is too small, or too large. The cuts are such that, with the
task at hand left out of the fit, 2.3 % of the rates inside their window are called too small and 2 % too large.
"""
EDGE = -2.33
"""The ``large`` sum from which on a rate is at the edge."""


class Seen(NamedTuple):
    """What a run has shown so far, of which a verdict is made."""

    done: int
    """Steps so far."""
    wanted: int
    """Steps that a verdict needs."""
    still: int
    """Steps among the wanted ones at which the parameters did not move, though the rate was above 0."""
    evidence: Evidence | None
    """The evidence of all wanted steps."""
    sane: Evidence | None
    """The evidence of the steps before the loss has risen far."""
    now: Losses | None
    """The losses so far, in a few numbers."""
    broken: int | None
    """The step from which on loss or gradient are not finite."""
    soared: bool
    """Whether the loss has doubled by more than noise."""


def look(columns: Mapping[str, Floats], *, horizon: int | None, peak: float, elements: int, every: int = 1) -> Seen:
    """Gather the evidence; the arguments are those of :func:`judge`."""
    loss = columns["loss"]
    done = len(loss) * every
    wanted = WITHOUT_HORIZON if horizon is None else min(max(horizon // SHARE, FEWEST), horizon)
    infinite = np.isinf(loss) | np.isinf(columns["slope"])
    broken = int(np.argmax(infinite)) if infinite.any() else len(loss)
    measured = np.all([np.isfinite(columns[name]) for name in NEEDED], axis=0) & (columns["rate"] > 0)
    moved = columns["moved_sq"] > 0  # a GradScaler or a loss below its lower bound leaves steps out
    limit = len(loss) if horizon is None else -(-wanted // every)
    steps = np.flatnonzero((measured & moved)[:broken])[:limit]
    first = loss[steps[0]] if len(steps) else 0.0

    def gathered(chosen: Indices) -> Evidence | None:
        if len(chosen) < 2:
            return None
        chosen_columns = {name: columns[name][chosen] for name in (*NEEDED, "carried")}
        return gather(chosen_columns, horizon or SHARE * done, peak, elements, every)

    with np.errstate(all="ignore"):
        risen = loss[steps] - first > FAR * abs(first)
        sane = steps[: max(2, int(np.argmax(risen)))] if risen.any() else steps
        evidence, sane_evidence = gathered(steps), gathered(sane)
        now: Losses | None = None
        soared = False
        if evidence is not None:
            begin = summarise(loss[steps], loss[steps])
            now = summarise(loss[steps], loss[np.isfinite(loss)])
            # It has doubled, and not by noise: that is clear, or the steps were long enough for it.
            soared = any(x.clearly or (x.doubled and evidence.promised > 1.0) for x in (now, begin))
    still = int((measured & ~moved)[:limit].sum())
    return Seen(
        done, wanted, still, evidence, sane_evidence, now, broken * every if broken < len(loss) else None, soared
    )


def scores(evidence: Evidence, weights: Mapping[str, Sequence[float]] = WEIGHTS) -> Floats:
    """The three sums of the evidence: too small, too large, and the decades to the best rate."""
    numbers = {"constant": 1.0, **evidence._asdict()}
    sums: Floats = np.array([numbers[name] for name in weights]) @ np.array(list(weights.values()))
    return sums


def judge(
    columns: Mapping[str, Floats],
    *,
    horizon: int | None,
    peak: float,
    elements: int,
    every: int = 1,
    stop_reason: str | None = None,
    weights: Mapping[str, Sequence[float]] = WEIGHTS,
    edge: float = EDGE,
) -> Verdict:
    """The verdict on the steps so far.

    Args:
        columns: The numbers of the steps: ``NEEDED`` and ``carried``; ∞ is divergence, NaN what was not measured.
        horizon: T; None for a run of unknown length, which is then taken to be ten times as long as it is.
        peak: The largest rate of the run, as far as it is known.
        elements: Parameters in the sample.
        every: Steps from one entry to the next.
        stop_reason: What a stop rule has reported, if one has.
        weights: The weights of the evidence.
        edge: The sum from which on a rate is at the edge.
    """
    seen = look(columns, horizon=horizon, peak=peak, elements=elements, every=every)
    evidence, now, done, wanted = seen.evidence, seen.now, seen.done, seen.wanted
    if seen.broken is not None or stop_reason is not None:
        reason = stop_reason or f"loss or gradient are not finite from step {seen.broken} on"
        details = {} if evidence is None else dict(evidence._asdict())
        return _verdict(State.TOO_LARGE, reason, seen.sane, peak, weights, details)
    if done < wanted and not (seen.soared and done >= FEWEST):
        reason = f"{done} of the {wanted} steps that a verdict needs are done"
        return Verdict(State.UNKNOWN, reason, more_steps=wanted - done)
    steps = min(done, wanted) // every if horizon is not None else done // every
    if evidence is None or now is None or steps - seen.still < min(3, wanted) or 2 * seen.still > steps:
        if not np.isfinite(columns["loss"]).any():
            return Verdict(State.UNKNOWN, "no loss is known; call monitor.record(loss) before every step")
        reason = f"{seen.still} of {steps} steps did not move the parameters"
        hint = ', as where the loss is below a lower_bound: "level" needs none' if np.any(columns["size"] == 0) else ""
        return Verdict(State.UNKNOWN, reason + hint)
    small, large, _ = map(float, scores(evidence, weights))
    state = State.TOO_LARGE if large > 0 or seen.soared else State.TOO_SMALL if small > 0 else State.HOLDS
    if state is State.HOLDS and large > edge:
        state = State.AT_THE_EDGE
    length = horizon or SHARE * done
    assumed = "" if horizon is not None else f", if the run is to be ten times as long ({length} steps)"
    details = {**evidence._asdict(), "too small": small, "too large": large, "horizon": float(length)}
    return _verdict(state, _reason(state, evidence, now, done) + assumed, seen.sane, peak, weights, details)


def progress(loss: Floats, every: int = 1) -> str | None:
    """How a run is doing, of whose rate nothing can be said; None if it has hardly begun.

    >>> progress(np.array([4.0, 4.0, 2.0, 2.0]))
    'after 4 steps the loss is 0.5 times the first'
    """
    if np.isinf(loss).any():
        return f"the loss is not finite from step {int(np.argmax(np.isinf(loss))) * every} on"
    known = loss[np.isfinite(loss)]
    return _change(summarise(known, known), len(loss) * every) if len(known) > 1 else None


def _verdict(
    state: State,
    reason: str,
    sane: Evidence | None,
    peak: float,
    weights: Mapping[str, Sequence[float]],
    details: dict[str, float],
) -> Verdict:
    """The verdict with its rates: a range around the likely best one that agrees with the state."""
    estimate, half = -2.0 if sane is None else float(scores(sane, weights)[2]), _HALF_WIDTH
    middle = estimate
    if state is State.HOLDS:  # a rate that holds belongs to the range
        if sane is not None and sane.shortened > _HARDLY:
            half = _HALF_WIDTH_HOLDS
        middle = float(np.clip(estimate, -half, half))
    elif state is State.TOO_LARGE:  # and one that does not stays outside
        middle = min(estimate, -half - 0.1)
    elif state is State.TOO_SMALL:
        middle = max(estimate, half + 0.1)
    low, high = middle - half, middle + half
    if state is State.AT_THE_EDGE:  # a safer rate is no larger one
        high = min(high, 0.0)
        low = min(low, high - _HALF_WIDTH_HOLDS)
    direction = {State.TOO_SMALL: 1, State.HOLDS: int(estimate > _OTHER)}.get(state, -1)
    far = {State.TOO_SMALL: 0, State.TOO_LARGE: 1}.get(state)  # the evidence is at the ends of its scales
    is_far = sane is None or (far is not None and (sane.promised, sane.away) == (PROMISED[far], AWAY[far]))
    span = peak * 10.0**low, peak * 10.0**high
    if not 0 < span[0] <= span[1] < np.inf:
        return Verdict(state, reason, direction=direction, is_far=is_far, details=details)
    is_named = not is_far and state is not State.AT_THE_EDGE and abs(middle - estimate) <= _CONTRADICTION
    is_named &= state is not State.HOLDS or middle > -_OTHER
    best = peak * 10.0**middle if is_named else None
    return Verdict(state, reason, span, best, direction, is_far, details=details)


def _change(now: Losses, done: int) -> str:
    """How the loss has changed, for a person."""
    if now.first > 0 and now.late > 0:
        ratio = short(now.late / now.first, 2)
        return f"after {done} steps the loss is " + ("unchanged" if ratio == "1" else f"{ratio} times the first")
    return f"after {done} steps the loss has gone from {short(now.first)} to {short(now.late)}"


def _reason(state: State, evidence: Evidence, now: Losses, done: int) -> str:
    """What decided, for a person."""
    change = _change(now, done)
    if state is State.TOO_SMALL:
        return f"{change}, and the weights have moved by {short(10**evidence.away, 2)} of their length only"
    if state is State.HOLDS:
        return f"{change}, and its steps are neither too short nor do they overshoot"
    if now.late > now.first:
        return change
    if evidence.uphill > 0:
        return f"{change}, but it has gone too far: the gradient points back to the start"
    return f"{change}, but its steps are long: they promise {short(10**evidence.promised, 2)} times the loss"
