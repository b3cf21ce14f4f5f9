"""Stop rules: small objects that look at the numbers of a run, and say at which step it should have ended.

A rule has no state of its own: it is a function of the numbers so far, so that the same object serves a monitor on a
training run, every run of a study, and every rank of a distributed one (equal numbers give equal answers).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from surefoot._base import checks
from surefoot.rules._history import Floats, History, Stop


class StopRule(ABC):
    """Base of the rules; one of your own is a frozen dataclass that defines :meth:`first`.

    The answer may depend on the steps up to the one that it names only, so that it does not matter how often it is
    asked for. Entries before ``history.since`` have been asked about before, and need not be looked at again.
    """

    @abstractmethod
    def first(self, history: History) -> Stop | None:
        """The first step at which the rule holds, or None."""

    def _stop(self, history: History, index: int, value: float, reason: str) -> Stop:
        return Stop(repr(self), int(index) * history.every, float(value), reason)


@dataclass(frozen=True)
class NonFinite(StopRule):
    """Ends a run whose loss, gradient or index is not finite.

    >>> NonFinite().first(History([1.0, float("inf")], [1.0, 1.0], [0.5, 0.5], [1.0] * 4)).reason
    'the loss is not finite'
    """

    def first(self, history: History) -> Stop | None:
        """The first step with a number that is not finite."""
        numbers = {"loss": history.loss, "squared gradient": history.grad_sq, "stability index": history.delta}
        index = _first(np.any([np.isinf(values) for values in numbers.values()], axis=0), history.since)
        if index is None:
            return None
        name = next(name for name, values in numbers.items() if np.isinf(values[index]))
        return self._stop(history, index, math.inf, f"the {name} is not finite")


@dataclass(frozen=True)
class PartialBound(StopRule):
    """Ends a run whose partial bound shows that it will be worse than one that is finished.

    The terms of the bound's noise are never negative, so their sum over the steps done so far can only grow: once it
    exceeds ``best``, this run's bound is proved to be larger than the finished run's (for the indices measured on these
    data orders). That is a statement about bounds. With slack 1 it ends runs whose loss would have been fine; 3 leaves
    room. Averaged gradients (momentum) can have negative indices, and then it is a heuristic.

    Args:
        best: Ω of a finished run: ``monitor.bound().total``, or the smallest of ``result.bound().total``. In a study it
            may be ``"shared"``, the smallest of its own runs: those that are finished end others, in whatever process
            they are, and the result is that of the rule with the smallest of all.
        slack: The factor by which the partial sum has to exceed it; at least 1 if it is shared.
        with_bias: Also count the bias D²/(2 S_1), which is known before the first step. It ends runs whose *rate is too
            small*; without it only those end that are unstable.
        until: Share of the run up to which it is asked. The weights of the last steps grow to 1, so that a single batch
            can push the sum over the limit, and there is nothing left to save.

    >>> history = History([1.0, 2.0], [1.0, 9.0], [0.5, 4.5], [1.0] * 3)
    >>> PartialBound(best=1.0, slack=2.0).first(history).step
    1
    """

    best: float | Literal["shared"]
    slack: float = 3.0
    with_bias: bool = False
    until: float = 0.9

    def __post_init__(self) -> None:
        if self.best != "shared":
            object.__setattr__(self, "best", checks.number("best", self.best, positive=True))
        elif checks.number("slack", self.slack) < 1:
            raise ValueError(f"slack must be at least 1 with best='shared', got {self.slack!r}")
        checks.number("slack", self.slack, positive=True)
        checks.number("until", self.until, positive=True)

    def first(self, history: History) -> Stop | None:
        """The first step whose partial sum exceeds slack·best."""
        values = history.partial_noise() + (history.bias() if self.with_bias else 0.0)
        early = np.arange(len(values)) * history.every < self.until * len(history.rates)
        index = _first((values > self.limit) & early, history.since)
        if index is None:
            return None
        reason = f"the partial bound {values[index]:.3g} exceeds {self.slack:g} times the best bound {self.best:.3g}"
        return self._stop(history, index, values[index], reason)

    @property
    def limit(self) -> float:
        """The limit of the partial bound: slack·best."""
        if self.best == "shared":
            raise ValueError("best='shared' has no value outside of a study; give a number")
        return self.slack * self.best


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
        checks.number("factor", self.factor, positive=True)
        checks.whole("window", self.window, 1)

    def first(self, history: History) -> Stop | None:
        """The first step at which the index has grown by the factor."""
        rates = history.rates[:: history.every][: len(history.delta)]
        moving = (rates > 0) & ~np.isnan(history.delta)
        with np.errstate(over="ignore"):
            values = history.delta[moving] / rates[moving]
        first, begin, medians = _medians(values, self.window, int(moving[: history.since].sum()))
        if not 0 < first < math.inf:
            return None
        with np.errstate(over="ignore"):
            growth = medians / first
        index = _first(growth > self.factor)
        if index is None:
            return None
        step = np.flatnonzero(moving)[begin + index]
        reason = (
            f"the median stability index of {self.window} steps is {growth[index]:.3g} times that of the first ones"
        )
        return self._stop(history, step, growth[index], reason)


@dataclass(frozen=True)
class Dead(StopRule):
    """Ends a run whose gradients have vanished while the loss is still high.

    A network that a large rate has killed has a tiny δ_t, and the bound looks fine: here the loss has the word. It
    holds once the median of ‖g‖² over ``window`` steps is below ``grad_ratio`` times that of the start while the median
    loss is above ``loss_ratio`` times that of the start. The start is the first step or the median of the first
    ``window``, whichever is smaller: a network often explodes before it dies.

    >>> Dead(window=2).first(History([1.0] * 4, [1.0, 1.0, 0.0, 0.0], [0.5] * 4, [1.0] * 4)).step
    3
    """

    grad_ratio: float = 1e-3
    loss_ratio: float = 0.5
    window: int = 20

    def __post_init__(self) -> None:
        checks.number("grad_ratio", self.grad_ratio, positive=True)
        checks.number("loss_ratio", self.loss_ratio, positive=True)
        checks.whole("window", self.window, 1)

    def first(self, history: History) -> Stop | None:
        """The first step at which the gradients have vanished and the loss is still high."""
        measured = ~(np.isnan(history.loss) | np.isnan(history.grad_sq))
        all_losses, all_squares = history.loss[measured], history.grad_sq[measured]
        since = int(measured[: history.since].sum())
        first_loss, begin, losses = _medians(all_losses, self.window, since)
        first_square, _, squares = _medians(all_squares, self.window, since)
        if not len(losses):
            return None
        first_loss, first_square = min(first_loss, all_losses[0]), min(first_square, all_squares[0])
        if not (first_loss > 0 and first_square > 0):
            return None
        index = _first((squares < self.grad_ratio * first_square) & (losses > self.loss_ratio * first_loss))
        if index is None:
            return None
        step = np.flatnonzero(measured)[begin + index]
        share, left = float(squares[index]) / float(first_square), float(losses[index]) / float(first_loss)
        reason = f"the squared gradient is {share:.1g} of that at the start, while the loss is still {left:.2g} of it"
        return self._stop(history, step, share, reason)


def first_stop(rules: Iterable[StopRule], history: History) -> Stop | None:
    """The earliest stop of several rules; among equals, that of the rule that stands first.

    >>> first_stop([DeltaExplosion(), NonFinite()], History([1.0], [1.0], [0.5], [1.0])) is None
    True
    """
    stops = [stop for stop in (rule.first(history) for rule in rules) if stop is not None]
    return min(stops, key=lambda stop: stop.step, default=None)


def check_rules(rules: Any, *, may_share: bool = False) -> tuple[StopRule, ...]:
    """The rules as a tuple; anything else is refused, and so are rules that need other runs where there are none."""
    if isinstance(rules, StopRule):
        rules = (rules,)
    if not isinstance(rules, Sequence) or not all(isinstance(rule, StopRule) for rule in rules):
        raise TypeError(f"stop must be stop rules such as [NonFinite(), DeltaExplosion()], got {rules!r}")
    if not may_share and any(is_shared(rule) for rule in rules):
        raise ValueError(f"best='shared' is for the runs of a study, which tell it to each other, got {rules!r}")
    return tuple(rules)


def is_shared(rule: StopRule) -> TypeGuard[PartialBound]:
    """Whether a rule takes its bound from the other runs of a study."""
    return isinstance(rule, PartialBound) and rule.best == "shared"


def with_best(rules: Iterable[StopRule], best: float) -> tuple[StopRule, ...]:
    """The rules with a bound in place of the shared one; with ∞, those that wait for one are left out."""
    return tuple(
        replace(rule, best=best) if is_shared(rule) else rule
        for rule in rules
        if best < math.inf or not is_shared(rule)
    )


def _first(mask: np.ndarray[Any, np.dtype[np.bool_]], since: int = 0) -> int | None:
    """The first place from ``since`` on where a mask holds."""
    places = np.flatnonzero(mask[since:])
    return since + int(places[0]) if len(places) else None


def _medians(values: Floats, window: int, since: int) -> tuple[float, int, Floats]:
    """Median of the first ``window`` values, and medians of the windows that end at ``since`` or later.

    The second result is where the first of these ends. A median of ∞ and a number is ∞; NaN if there is no window yet.
    """
    begin = max(since, window - 1)
    if len(values) < window:
        return math.nan, begin, np.empty(0)
    if len(values) <= begin:
        return _middle(values[:window]), begin, np.empty(0)
    return _middle(values[:window]), begin, _middle(sliding_window_view(values[begin - window + 1 :], window))


def _middle(values: Floats) -> Any:
    """Median over the last axis, without the NaN that NumPy makes of two infinities."""
    ordered, half = np.sort(values, axis=-1), values.shape[-1] // 2
    if values.shape[-1] % 2:
        return ordered[..., half]
    return 0.5 * ordered[..., half - 1] + 0.5 * ordered[..., half]
