"""Stop rules: pure functions of a run's numbers that say at which step it should have ended.

A rule has no state of its own: the same object serves a monitor, every run of a study, and every rank.

>>> from surefoot.rules import History, NonFinite
>>> NonFinite().first(History([1.0, float("inf")], [1.0, 1.0], [0.5, 0.5], [1.0] * 4)).step
1
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from surefoot._base.arguments import number, whole
from surefoot.theory import bounds

Floats = np.ndarray[Any, np.dtype[np.float64]]

_UNTIL = 0.9
"""Part of a run in which :class:`PartialBound` is used."""
_NEEDS_ALL = "every must be 1 with PartialBound, which needs the index of every step, got {}"


@dataclass(frozen=True)
class Stop:
    """Why a run should end."""

    rule: str
    """The rule that holds."""
    step: int
    """The first step, counted from 0, at which it holds."""
    value: float
    """What the rule compares, at that step."""
    reason: str


@dataclass(frozen=True)
class History:
    """The numbers of the steps done so far, which is all that a stop rule sees.

    Entry i of the arrays belongs to step i·``every``. What diverged is ∞, what was not measured is NaN.

    >>> history = History(loss=[1.0, 0.5], grad_sq=[1.0, 1.0], delta=[0.5, 0.5], rates=[1.0, 1.0, 1.0])
    >>> history.partial_noise()
    array([0.25, 0.75])
    """

    loss: Any
    grad_sq: Any
    delta: Any
    """δ_t of the method itself."""
    rates: Any
    """α_t of *all* steps of the run, the future ones too."""
    distance: float | None = None
    """D of the bound; without it the bias counts as 0."""
    every: int = 1
    since: int = 0
    """Entries before this one have been judged already: a rule need not judge them again."""

    def __post_init__(self) -> None:
        for name in ("loss", "grad_sq", "delta", "rates"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        lengths = {name: len(getattr(self, name)) for name in ("loss", "grad_sq", "delta")}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"loss, grad_sq and delta must have one entry per step, got {lengths}")
        if len(self.rates) < (len(self.loss) - 1) * self.every + 1:
            raise ValueError(f"rates must hold all steps of the run, got {len(self.rates)} for {len(self.loss)} done")

    def partial_noise(self) -> Floats:
        """Noise of Ω (Theorem 3.4) that the steps up to each one have added; it grows as long as every δ ≥ 0.

        An index that was not measured adds nothing, so that a partial sum stays a lower bound of the whole. Steps of
        rate 0 at the end of the run are left out, so that Ω bounds the point before the last step that moves.
        """
        if self.every > 1:
            raise ValueError(_NEEDS_ALL.format(self.every))
        weights = np.zeros(len(self.rates))
        if (self.rates > 0).any():
            end = np.flatnonzero(self.rates > 0)[-1] + 1
            weights[:end] = bounds.last_iterate_weights(self.rates[:end])
        with np.errstate(over="ignore"):
            return np.cumsum(bounds.product(weights[: len(self.loss)], np.nan_to_num(self.delta, posinf=math.inf)))

    def bias(self) -> float:
        """D²/(2 S_1) over all steps of the run; 0 without a distance."""
        if self.distance is None or not (self.rates > 0).any():
            return 0.0
        return float(bounds.distance_bias(self.rates, self.distance))


class StopRule(ABC):
    """Base of the rules; one of your own is a frozen dataclass that defines :meth:`first`.

    Whether it holds at a step may depend on the steps up to that one only. Entries before ``history.since`` have been
    judged before.
    """

    @abstractmethod
    def first(self, history: History) -> Stop | None:
        """The first step at which the rule holds, or None."""

    def _stop(self, history: History, holds: Any, values: Floats, reason: str) -> Stop | None:
        """The first entry from ``history.since`` on where it holds; ``reason`` has a place for the value."""
        entries = history.since + np.flatnonzero(holds[history.since :])
        if not len(entries):
            return None
        value = float(values[entries[0]])
        return Stop(repr(self), int(entries[0]) * history.every, value, reason.format(value))


@dataclass(frozen=True)
class NonFinite(StopRule):
    """Ends a run whose loss, gradient or index is not finite.

    >>> NonFinite().first(History([1.0, float("inf")], [1.0, 1.0], [0.5, 0.5], [1.0] * 4)).reason
    'the loss is not finite'
    """

    def first(self, history: History) -> Stop | None:
        """The first step with a number that is not finite."""
        numbers = {"loss": history.loss, "squared gradient": history.grad_sq, "stability index": history.delta}
        stops = [self._stop(history, np.isinf(x), x, f"the {name} is not finite") for name, x in numbers.items()]
        return min((stop for stop in stops if stop is not None), key=lambda stop: stop.step, default=None)


@dataclass(frozen=True)
class PartialBound(StopRule):
    """Ends a run whose partial bound shows that it will be worse than one that is finished.

    The terms of the bound's noise are never negative, so once their sum exceeds ``best`` this run's bound is proved to
    be the larger one (for the indices measured with these seeds; with averaged gradients, whose indices can be
    negative, it is a heuristic). That is a statement about bounds: with slack 1 it ends runs whose loss would have been
    fine; 3 leaves room. It is used in the first 90 % of a run: later a single batch can push the sum over the limit,
    and there is nothing left to save.

    Args:
        best: Ω of a finished run: ``monitor.bound().total``, or the smallest of ``result.bound().total``.
        slack: The factor by which the partial sum has to exceed it.

    >>> history = History([1.0, 2.0], [1.0, 9.0], [0.5, 4.5], [1.0] * 3)
    >>> PartialBound(best=1.0, slack=2.0).first(history).step
    1
    """

    best: float
    slack: float = 3.0

    def __post_init__(self) -> None:
        number("best", self.best, positive=True)
        number("slack", self.slack, positive=True)

    @property
    def limit(self) -> float:
        """The limit of the partial bound: slack·best."""
        return self.slack * self.best

    def first(self, history: History) -> Stop | None:
        """The first step whose partial sum exceeds slack·best."""
        noise = history.partial_noise()
        early = np.arange(len(noise)) < _UNTIL * len(history.rates)
        reason = f"the partial bound {{:.3g}} exceeds {self.slack:g} times the best bound {self.best:.3g}"
        return self._stop(history, (noise > self.limit) & early, noise, reason)


@dataclass(frozen=True)
class DeltaExplosion(StopRule):
    """Ends a run whose stability index grows: SGD on a quadratic above its stable rate.

    It holds once the median of δ_t/α_t over the last ``window`` steps exceeds ``factor`` times that over the first
    ``window``. The division by the rate keeps a warmup from looking like an explosion, the medians a single bad batch.

    >>> deltas = [1.0, 2.0, 1.0, 50.0, 60.0, 70.0]
    >>> DeltaExplosion(factor=30.0, window=3).first(History([1.0] * 6, [1.0] * 6, deltas, [1.0] * 6)).step
    4
    """

    factor: float = 30.0
    window: int = 3

    def __post_init__(self) -> None:
        number("factor", self.factor, positive=True)
        whole("window", self.window, 1)

    def first(self, history: History) -> Stop | None:
        """The first step at which the index has grown by the factor."""
        rates = history.rates[:: history.every][: len(history.delta)]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            first, medians = _medians(np.where(rates > 0, history.delta / rates, math.nan), self.window, history.since)
            growth = medians / first if 0 < first < math.inf else np.zeros(len(medians))
        reason = f"the median stability index of {self.window} steps is {{:.3g}} times that of the first ones"
        return self._stop(history, growth > self.factor, growth, reason)


@dataclass(frozen=True)
class Dead(StopRule):
    """Ends a run whose gradients have vanished while the loss is still high.

    A network that a large rate has killed has a tiny δ_t, and its bound is small, so the loss decides. The rule holds
    once the median of ‖g‖² over ``window`` steps is below ``grad_ratio`` times that of the start while the median
    loss is above ``loss_ratio`` times that of the start. The start is the first step or the median of the first
    ``window``, whichever is smaller, because a network often explodes before it dies.

    >>> Dead(window=2).first(History([1.0] * 4, [1.0, 1.0, 0.0, 0.0], [0.5] * 4, [1.0] * 4)).step
    3
    """

    grad_ratio: float = 1e-3
    loss_ratio: float = 0.5
    window: int = 20

    def __post_init__(self) -> None:
        number("grad_ratio", self.grad_ratio, positive=True)
        number("loss_ratio", self.loss_ratio, positive=True)
        whole("window", self.window, 1)

    def first(self, history: History) -> Stop | None:
        """The first step at which the gradients have vanished and the loss is still high."""
        unknown, relative = np.isnan(history.loss) | np.isnan(history.grad_sq), []
        for values in (history.loss, history.grad_sq):
            known = np.where(unknown, math.nan, values)
            first, medians = _medians(known, self.window, history.since)
            start = min([first, *known[~unknown][:1]])
            with np.errstate(over="ignore"):
                relative.append(medians / start if 0 < start < math.inf else np.full(len(medians), math.nan))
        loss, grad_sq = relative
        reason = "the squared gradient is {:.1g} of that at the start, while the loss is still high"
        return self._stop(history, (grad_sq < self.grad_ratio) & (loss > self.loss_ratio), grad_sq, reason)


def first_stop(rules: Iterable[StopRule], history: History) -> Stop | None:
    """The earliest stop of several rules; among equals, that of the rule that stands first.

    >>> first_stop([DeltaExplosion(), NonFinite()], History([1.0], [1.0], [0.5], [1.0])) is None
    True
    """
    stops = [stop for stop in (rule.first(history) for rule in rules) if stop is not None]
    return min(stops, key=lambda stop: stop.step, default=None)


def check_rules(rules: Any, every: int = 1) -> tuple[StopRule, ...]:
    """The rules as a tuple, for runs that keep every k-th step; anything else is refused.

    >>> check_rules(NonFinite())
    (NonFinite(),)
    """
    if isinstance(rules, StopRule):
        rules = (rules,)
    if not isinstance(rules, Sequence) or not all(isinstance(rule, StopRule) for rule in rules):
        raise TypeError(f"stop must be stop rules such as [NonFinite(), DeltaExplosion()], got {rules!r}")
    if every > 1 and any(isinstance(rule, PartialBound) for rule in rules):
        raise ValueError(_NEEDS_ALL.format(every))
    return tuple(rules)


def _medians(values: Floats, window: int, since: int) -> tuple[float, Floats]:
    """Median of the first ``window`` numbers, and of the last ones at each entry from ``since`` on, without NaN."""
    known = np.flatnonzero(~np.isnan(values))
    numbers, medians = values[known], np.full(len(values), math.nan)
    start = max(int((known < since).sum()) - window + 1, 0)
    if len(numbers) < window:
        return math.nan, medians
    with np.errstate(over="ignore"):
        if len(numbers) - start >= window:
            medians[known[start + window - 1 :]] = np.median(sliding_window_view(numbers[start:], window), axis=-1)
        return float(np.median(numbers[:window])), medians
