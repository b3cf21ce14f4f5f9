"""From the evidence of a run's first tenth to a verdict.

A loss that is not finite, or that has soared, is too large. Else two weighted sums of a few numbers decide, and a third
one names the best rate; ``_weights`` says where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from surefoot.monitor._evidence import AWAY, NEEDED, PROMISED, Evidence, Losses, gather, summarise
from surefoot.monitor._verdict import State, Verdict
from surefoot.monitor._weights import WEIGHTS, Sum, Weights
from surefoot.rules import Floats

Indices = np.ndarray[Any, np.dtype[np.intp]]

SHARE = 10
"""A verdict looks at the first T/10 steps: so much was looked at when the weights were fitted."""
FEWEST = 5
"""Steps below which nothing is said, however short the run."""
WITHOUT_HORIZON = 20
"""Steps that are wanted where nobody has said how long the run will be."""
FAR = 3.0
"""Rise of the loss, in first losses, beyond which a place says nothing about rates that would not have led there."""

_HALF_WIDTH = 0.75
"""Decades of the range on either side of its middle."""
_HALF_WIDTH_HOLDS = 0.5
"""The same for a rate that holds, where the evidence is better, unless the optimizer has shortened its steps itself."""
_HARDLY = -0.05
"""log10 of the share of their rate that steps have at least where they were hardly shortened."""


class Seen(NamedTuple):
    """What a run has shown so far, of which a verdict is made."""

    done: int
    """Steps so far."""
    wanted: int
    """Steps that a verdict needs."""
    usable: int
    """Steps among the wanted ones that were measured and taken."""
    evidence: Evidence | None
    """The evidence of all wanted steps."""
    sane: Evidence | None
    """The evidence of the steps before the loss has left for other places."""
    now: Losses | None
    """The losses so far, in a few numbers."""
    broken: int | None
    """The step from which on loss or gradient are not finite."""
    soared: bool
    """Whether the loss has doubled by more than noise."""

    @property
    def lost(self) -> bool:
        """Whether the rate is too large whatever the evidence says."""
        return self.broken is not None or self.soared


def look(
    columns: Mapping[str, Floats],
    *,
    horizon: int | None,
    peak: float,
    elements: int,
    every: int = 1,
) -> Seen:
    """Gather the evidence; the arguments are those of :func:`judge`."""
    loss = columns["loss"]
    done = len(loss) * every
    wanted = WITHOUT_HORIZON if horizon is None else min(max(horizon // SHARE, FEWEST), horizon)
    infinite = np.isinf(loss) | np.isinf(columns["slope"]) | np.isinf(columns["sample_sq"])
    broken = int(np.argmax(infinite)) if infinite.any() else None
    steps = _usable(columns)[: -(-wanted // every) if horizon is not None else None]
    steps = steps if broken is None else steps[steps < broken]

    def gathered(chosen: Indices) -> Evidence | None:
        if len(chosen) < 2:
            return None
        with np.errstate(all="ignore"):
            chosen_columns = {name: columns[name][chosen] for name in (*NEEDED, "carried")}
            return gather(chosen_columns, horizon or SHARE * done, peak, elements, every)

    evidence, sane = gathered(steps), gathered(_sane(loss, steps))
    now: Losses | None = None
    soared = False
    if evidence is not None:
        begin, so_far = loss[steps], loss[np.isfinite(loss)]
        now = summarise(begin, so_far)
        soared = _soared(now, evidence) or _soared(summarise(begin, begin), evidence)
    return Seen(done, wanted, len(steps), evidence, sane, now, None if broken is None else broken * every, soared)


def judge(
    columns: Mapping[str, Floats],
    *,
    horizon: int | None,
    peak: float,
    elements: int,
    every: int = 1,
    stop_reason: str | None = None,
    weights: Weights = WEIGHTS,
) -> Verdict:
    """The verdict on the steps so far.

    Args:
        columns: The numbers of the steps: ``NEEDED`` and ``carried``; ∞ is divergence, NaN what was not measured.
        horizon: T; None for a run of unknown length, which is then taken to be ten times as long as it is.
        peak: The largest rate of the run, as far as it is known.
        elements: Parameters that were looked at.
        every: Steps from one entry to the next.
        stop_reason: What a stop rule has said, if one has.
        weights: What the evidence counts.
    """
    seen = look(columns, horizon=horizon, peak=peak, elements=elements, every=every)
    evidence, now, done, wanted = seen.evidence, seen.now, seen.done, seen.wanted
    if seen.broken is not None or stop_reason is not None:
        reason = stop_reason or f"loss or gradient are not finite from step {seen.broken} on"
        details = {} if evidence is None else dict(evidence._asdict())
        span = _range(State.TOO_LARGE, seen.sane, peak, weights)
        return Verdict(State.TOO_LARGE, reason, span, _is_far(State.TOO_LARGE, seen.sane), details=details)
    if done < wanted and not (seen.soared and done >= FEWEST):
        reason = f"{done} of the {wanted} steps that a verdict needs were seen"
        return Verdict(State.UNKNOWN, reason, more_steps=wanted - done)
    if evidence is None or now is None or seen.usable < min(3, wanted):
        if not np.isfinite(columns["loss"]).any():
            return Verdict(State.UNKNOWN, "no loss was heard or told; call monitor.record(loss) before every step")
        return Verdict(State.UNKNOWN, f"the optimizer has moved at {seen.usable} of {done // every} steps only")
    small, large = _sum(weights.small, evidence), _sum(weights.large, evidence)
    state = State.TOO_LARGE if large > 0 or seen.soared else State.TOO_SMALL if small > 0 else State.HOLDS
    if state is State.HOLDS and large > weights.edge:
        state = State.AT_THE_EDGE
    length = horizon or SHARE * done
    assumed = "" if horizon is not None else f", if the run is to have {length} steps"
    details = {**evidence._asdict(), "too small": small, "too large": large, "horizon": float(length)}
    reason = _reason(state, evidence, now, done) + assumed
    span = _range(state, seen.sane, peak, weights)
    return Verdict(state, reason, span, _is_far(state, seen.sane), details=details)


def _usable(columns: Mapping[str, Floats]) -> Indices:
    """Steps that were measured and taken: a GradScaler or a loss below its lower bound leaves steps out."""
    measured = np.all([np.isfinite(columns[name]) for name in NEEDED], axis=0)
    return np.flatnonzero(measured & (columns["rate"] > 0) & (columns["moved_sq"] > 0))


def _sane(loss: Floats, steps: Indices) -> Indices:
    """The steps before the loss has left for places that say nothing about other rates; at least two."""
    if not len(steps):
        return steps
    first = loss[steps[0]]
    with np.errstate(over="ignore"):
        away = loss[steps] - first > FAR * abs(first)
    return steps[: max(2, int(np.argmax(away)))] if away.any() else steps


def _soared(losses: Losses, evidence: Evidence) -> bool:
    """Whether the loss has doubled, and not by noise: it is clear, or the steps were long enough for it."""
    return losses.clearly or (losses.doubled and evidence.promised > 1.0)


def _sum(weights: Sum, evidence: Evidence) -> float:
    constant, factors = weights
    numbers = evidence._asdict()
    return constant + sum(factor * float(numbers[name]) for name, factor in factors.items())


def _range(state: State, sane: Evidence | None, peak: float, weights: Weights) -> tuple[float, float] | None:
    """The rates to try, around the best one that the evidence names; None if they are no numbers."""
    middle, half = -2.0 if sane is None else _sum(weights.best, sane), _HALF_WIDTH
    if state is State.HOLDS:  # a rate that holds belongs to it
        if sane is not None and sane.shortened > _HARDLY:
            half = _HALF_WIDTH_HOLDS
        middle = float(np.clip(middle, -half, half))
    elif state is State.TOO_LARGE:  # and one that does not stays outside
        middle = min(middle, -half - 0.1)
    elif state is State.TOO_SMALL:
        middle = max(middle, half + 0.1)
    low, high = (peak * 10.0 ** (middle + side) for side in (-half, half))
    return (low, high) if 0 < low <= high < np.inf else None


def _is_far(state: State, sane: Evidence | None) -> bool:
    """Whether a rate is wrong by more than the evidence can tell: its numbers are at the ends of their scales."""
    if sane is None:
        return True
    end = {State.TOO_SMALL: 0, State.TOO_LARGE: 1}.get(state)
    return end is not None and (sane.promised, sane.away) == (PROMISED[end], AWAY[end])


def _reason(state: State, evidence: Evidence, now: Losses, done: int) -> str:
    """What decided, for a person."""
    if now.first > 0 and now.late > 0:
        change = f"after {done} steps the loss is {now.late / now.first:.2g} times the first"
    else:
        change = f"after {done} steps the loss has gone from {now.first:.3g} to {now.late:.3g}"
    if state is State.TOO_SMALL:
        whole = evidence.promised + np.log10(SHARE)
        if whole < 0:
            return f"at this pace the whole run can lower the loss by {_percent(whole)} at most"
        return f"{change}, and the weights have moved by {_percent(evidence.away)} only"
    if state is State.HOLDS:
        return f"{change}, and its steps are neither too short nor do they overshoot"
    if now.late > now.first:
        return change
    if evidence.uphill > 0:
        return f"{change}, but it has gone too far: the gradient points back to the start"
    return f"{change}, but its steps are long: they promise {10**evidence.promised:.2g} times the loss"


def _percent(logarithm: float) -> str:
    share = 10.0 ** min(logarithm, 300)
    return f"{100 * share:.2g} %" if share < 1 else f"{share:.2g} times their length"
