"""The policy of the search for the smallest loss: which candidates go on. It sees histories of losses, and no runs.

All candidates see the same batches, so two of them are compared by the paired differences of their losses, with the
standard error of their mean. Three things are known of such differences, and nothing else is assumed: neither a sign
of the loss, nor a lower bound, nor an index.

* What a rate has done by step t, half the rate has done by 2t. So while steps are left the best rate moves to the
  left, by at most one doubling of the rate for every doubling of the steps, and a smaller rate that has not begun to
  move may still be the best.
* Where the schedule ends low, the noise of a large rate goes away at the end: there the best rate moves to the right.
* Differences that change go on to change: from t/2 to t, so from t to 2t.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from surefoot.runs import Floats

RUNGS = (1 / 16, 1 / 8, 1 / 4, 0.35, 1 / 2, 0.72, 1.0)
"""Shares of the horizon at which candidates are compared."""
_FIRST = 1 / 25
_LEAST = 8
"""The first rung is at this share of the horizon, and has at least these steps."""
_SPREAD = 4.0
"""Ratio of the rates that the first rung looks at."""
_TOLERANCE = 0.005
"""Share of the gain that does not matter."""
_ERRORS = 1.5
"""Standard errors within which nobody is dropped."""
_SEEN = 2.0
"""Standard errors that make a gain visible."""
_SURE = 3.0
"""Standard errors of a paired difference that make a gain visible: the leader is the best of several."""
_PACE = 0.7
"""How much of the leader's last gain, for every doubling after the next, a smaller rate may be behind."""
_ASLEEP = 0.25
"""A smaller rate that is further behind than this, and not nearer than before, has not begun to move."""
_EARLY = 0.6
"""Until this share of the winner's gain is there, it may be too early to leave a larger rate."""
_COOLING = 0.15
"""How far a larger rate may be behind before a schedule ends low."""
_NEXT = 1.3
"""Two rates within this many doublings stand beside each other."""


@dataclass(frozen=True)
class Gap:
    """How far a candidate is behind another one, relative to the gain from the start."""

    now: float
    before: float
    """How far it was behind at half the steps."""
    error: float
    """Standard error of ``now``."""
    typical: float
    """How far it is behind in most steps: the first quartile."""

    def ahead(self, doublings: float) -> float:
        """The gap after further doublings of the steps if it goes on to shrink; one that grows is left as it is."""
        return self.now + doublings * min(self.now - self.before, 0.0)


@dataclass
class Race:
    """The rungs of a search: :meth:`requests` says who is to be taken where, and reads what came of it.

    Args:
        rates: The rate of each candidate.
        methods: The method of each; rates are compared along one method, methods by their leaders.
        horizon: T.
        schedule: Factors of the rates; constant without.
    """

    rates: Sequence[float]
    methods: Sequence[str]
    horizon: int
    schedule: Floats | None = None
    histories: list[Floats] = field(default_factory=list)
    """The losses of each candidate as far as it was taken (the mean over data orders), ∞ at last if it was lost. Filled
    by whoever drives the race."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why candidates were left behind."""

    def __post_init__(self) -> None:
        self.histories = self.histories or [np.empty(0) for _ in self.rates]
        factors = np.ones(self.horizon) if self.schedule is None else self.schedule
        self._travelled = np.cumsum(factors)
        self._logs = np.log2(self.rates)
        last = factors[-max(1, self.horizon // 10) :].mean()
        self.cools = bool(last < 0.5 * factors.max())

    # ---- what is read from the histories

    def lost(self, place: int) -> bool:
        """Whether a candidate ended with a loss that is not finite."""
        history = self.histories[place]
        return bool(len(history)) and not math.isfinite(history[-1])

    def taken(self, place: int) -> int:
        """How many steps a candidate was taken."""
        return len(self.histories[place])

    def level(self, place: int, step: int) -> float:
        """Mean loss of a candidate over the second half of the steps."""
        return float(self.histories[place][window(step)].mean())

    def gain(self, place: int, step: int) -> tuple[float, bool]:
        """How far a candidate is below the start, and whether that can be told from the batches' noise.

        The start is the first losses of the smallest rate, and its later losses as far as it was taken: those are on
        the same batches.
        """
        still = self._smallest()
        shared = min(self.taken(still), step)
        first = self._first(step)
        now, error = mean_and_error(self.histories[place][window(step)])
        difference, paired_error = mean_and_error(
            self.histories[still][window(shared)] - self.histories[place][window(shared)]
        )
        fall = float(first.mean()) - now
        seen = fall > _SEEN * math.hypot(error, float(first.std()) / math.sqrt(len(first)))
        seen |= difference > _SURE * paired_error
        return max(fall, difference, np.finfo(float).tiny), seen

    def start(self) -> float:
        """The loss at the start, as the first losses of the smallest rate tell it."""
        return float(self._first(self.horizon // 8).mean())

    def gap(self, place: int, leader: int, step: int, gain: float) -> Gap:
        """How far a candidate is behind the leader at a step."""
        difference = self.histories[place][:step] - self.histories[leader][:step]
        half = max(step // 2, min(3, step))
        now, error = mean_and_error(difference[window(step)])
        before, typical = float(difference[window(half)].mean()), float(np.quantile(difference[window(step)], 0.25))
        return Gap(now / gain, before / gain, error / gain, typical / gain)

    def _first(self, step: int) -> Floats:
        history = self.histories[self._smallest()]
        return history[: max(4, min(len(history), step) // 8)]

    def _smallest(self) -> int:
        """The smallest rate that was taken anywhere: it has moved least."""
        return min(
            (i for i in range(len(self.rates)) if self.taken(i) and not self.lost(i)), key=lambda i: self.rates[i]
        )

    # ---- who goes on

    def chains(self) -> list[list[int]]:
        """The candidates of each method, by rate."""
        names = dict.fromkeys(self.methods)
        places = sorted(range(len(self.rates)), key=lambda i: self.rates[i])
        return [[i for i in places if self.methods[i] == name] for name in names]

    def requests(self, start: Sequence[int] = ()) -> Iterator[tuple[list[int], int]]:
        """The candidates to be taken to a step, and the step, one request after the other.

        After each the caller brings :attr:`histories` up to date. ``start`` are the candidates of a search that goes
        on with new rates; otherwise it begins with some of each method's.
        """
        chains = self.chains()
        steps = [step for step in rungs(self.horizon) if not start or 8 * step >= self.horizon]
        active = set(start) or {i for chain in chains for i in _spread(chain, self._logs)}
        if len(steps) == 1:  # too few steps to compare anything on the way
            active = active if start else set(range(len(self.rates)))
        leaders: dict[int, int] = {}
        for step in steps:
            yield sorted(active), step
            first = step == steps[0] and not start
            running = [{i for i in active if i in chain and not self.lost(i)} for chain in chains]
            climbs = [
                self._climb(chain, here, step, first, leaders.get(chain[0]))
                for chain, here in zip(chains, running, strict=True)
                if not active.isdisjoint(chain)
            ]
            while asked := [new for climb in climbs if (new := next(climb, []))]:  # those of all methods together
                yield sorted(i for new in asked for i in new), step
            leaders |= {c[0]: self._leader(here, step) for c, here in zip(chains, running, strict=True) if here}
            present = set().union(*running)
            if step == self.horizon or not present:
                break
            active = self._kept(chains, present, step)
        while early := [i for chain in chains for i in self._left_early(chain)]:
            yield early, self.horizon

    def _climb(
        self, chain: list[int], here: set[int], step: int, first: bool, before: int | None
    ) -> Iterator[list[int]]:
        """Take neighbours of the leader to its step: those that never ran, or towards which the lead moves.

        If all of ``here`` are lost, take another one. ``before`` is the leader at the last rung.
        """
        while True:
            new = self._replacement(chain)
            if here:
                leader = self._leader(here, step)
                place = chain.index(leader)
                moved = 0 if before is None or step > 0.55 * self.horizon else place - chain.index(before)
                beside = [
                    i for i in (*chain[max(0, place - 1) : place], *chain[place + 1 : place + 2]) if i not in here
                ]
                new = [
                    i
                    for i in beside
                    if not self.lost(i) and (not (self.taken(i) or first) or (chain.index(i) - place) * moved > 0)
                ]
            if not new or (here and step == self.horizon):
                return
            yield new
            here |= {i for i in new if not self.lost(i)}

    def _leader(self, here: Collection[int], step: int) -> int:
        return min(here, key=lambda i: self.level(i, step))

    def _replacement(self, chain: list[int]) -> list[int]:
        """The candidate for a method whose others are all lost: the best of the most advanced, or the middle."""
        rest = [i for i in chain if not self.lost(i)]
        furthest = max((self.taken(i) for i in rest), default=0)
        if not furthest:
            return rest[len(rest) // 2 : len(rest) // 2 + 1]
        return [self._leader([i for i in rest if self.taken(i) == furthest], furthest)]

    def _left_early(self, chain: list[int]) -> list[int]:
        """The next larger rate than a method's winner, if it was left before most of the winner's gain was there.

        While little is gained, the noise of a large rate looks large beside it.
        """
        done = [i for i in chain if self.taken(i) == self.horizon and not self.lost(i)]
        if not done:
            return []
        winner = self._leader(done, self.horizon)
        beside = chain[chain.index(winner) + 1 :][:1]
        if not beside or self.taken(beside[0]) == self.horizon or self.lost(beside[0]):
            return []
        step = self.taken(beside[0])
        gained = self.gain(winner, step)[0] if step else 0.0
        return beside if gained < _EARLY * self.gain(winner, self.horizon)[0] else []

    def _kept(self, chains: list[list[int]], present: set[int], step: int) -> set[int]:
        """Those that go on from a rung: everybody while nobody's gain can be told from the noise."""
        best = self._leader(present, step)
        gain, seen = self.gain(best, step)
        if not seen:
            return present
        kept: set[int] = set()
        for here in ([i for i in chain if i in present] for chain in chains):
            if here and self._method_goes_on(leader := self._leader(here, step), best, step, gain):
                kept |= {i for i in here if i == leader or self._goes_on(i, leader, step, gain)}
        for i in present:
            behind = (
                "" if i in kept else f"{_percent(self.gap(i, best, step, gain).now)} of the gain behind at step {step}"
            )
            self.reasons[i] = behind
        return kept

    def _goes_on(self, place: int, leader: int, step: int, gain: float) -> bool:
        """Whether a candidate may be better than its method's leader at the end."""
        gap = self.gap(place, leader, step, gain)
        left = math.log2(self.horizon / step)
        distance = self._logs[place] - self._logs[leader]
        surely, at_end = gap.now - _ERRORS * gap.error, gap.ahead(left) - _ERRORS * gap.error
        if gap.typical > 1.0:  # above the start, whatever the error of a mean that explodes
            return False
        if distance > 0:
            if self.cools:
                room = _COOLING * min(left, 2.0) * (1.0 if distance < _NEXT else 0.7)
                return distance < 2.0 * _NEXT and surely < room
            return surely < -_TOLERANCE or (distance < _NEXT and at_end < -_TOLERANCE)
        if self.cools and step >= 0.45 * self.horizon:
            return gap.now - 0.5 * gap.error < -_TOLERANCE
        reach = self._doublings(step)
        if distance < -reach - 0.6 and left > 0.9 and surely >= 0:
            return False
        asleep = gap.now >= _ASLEEP and gap.now >= 0.9 * gap.before and distance >= -reach - 0.15
        return asleep or at_end < _PACE * self._pace(leader, step, gain) * max(left - 1.0, 0.0) - _TOLERANCE

    def _method_goes_on(self, leader: int, best: int, step: int, gain: float) -> bool:
        left = math.log2(self.horizon / step)
        if leader == best or left > 3.0:
            return True
        gap = self.gap(leader, best, step, gain)
        return gap.ahead(left) - _ERRORS * gap.error < _PACE * self._pace(best, step, gain) * left

    def _pace(self, place: int, step: int, gain: float) -> float:
        """What the last doubling of the steps has brought a candidate, relative to the gain from the start."""
        return max(self.level(place, max(step // 2, 1)) - self.level(place, step), 0.0) / gain

    def _doublings(self, step: int) -> float:
        """How often the sum of the rates until a step will still double."""
        so_far = self._travelled[step - 1]
        return math.log2(self._travelled[-1] / so_far) if so_far > 0 else math.inf


def rungs(horizon: int) -> list[int]:
    """Steps at which candidates are compared, the horizon at last."""
    first = max(math.ceil(horizon * _FIRST), _LEAST)
    later = [math.ceil(horizon * share) for share in RUNGS if horizon * share > 1.3 * first]
    return [first, *later] if later else [horizon]


def window(step: int) -> slice:
    """The second half of the steps, of short runs a little more."""
    return slice(step - max(min(step, 6), -(-step // 2)), step)


@np.errstate(over="ignore", invalid="ignore")
def mean_and_error(values: Floats) -> tuple[float, float]:
    """Mean and its standard error, for neighbours that resemble each other; ∞ for fewer than three numbers."""
    mean = float(values.mean())
    if len(values) < 3:
        return mean, math.inf
    rest = values - mean
    square = float(rest @ rest)
    if not 0 < square < math.inf:
        return mean, 0.0 if square == 0 else math.inf
    alike = min(max(float(rest[1:] @ rest[:-1]) / square, 0.0), 0.8)
    return mean, math.sqrt(square / (len(values) - 1) / len(values) * (1 + alike) / (1 - alike))


def _spread(chain: list[int], logs: Floats) -> list[int]:
    """Some of a method's rates, about a factor of four apart, as far from either end."""
    if len(chain) < 2:
        return chain
    spacing = (logs[chain[-1]] - logs[chain[0]]) / (len(chain) - 1)
    stride = max(1, round(math.log2(_SPREAD) / float(spacing)))
    return chain[(len(chain) - 1) % stride // 2 :: stride]


def _percent(share: float) -> str:
    if share >= 10:
        return "more than 1000 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
