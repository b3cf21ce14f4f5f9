"""The search for the smallest measured loss: a race over rungs that climbs along the rates.

All candidates see the same batches, so their mean batch losses over the same steps compare well, and over the rate they
fall and rise once. So a rung needs few candidates: it starts with those that the last rung has kept, and takes the
neighbours of the leader to the same step until both are worse. A candidate is kept for the next rung if the trend of
its loss, a power law in the steps, takes it below the leader's at the horizon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from surefoot.search._best_first import is_dead
from surefoot.search._bias import Bias, initial_loss
from surefoot.search._candidate import Candidate
from surefoot.search._runner import Runner

_STRIDE = 4
"""The first rung looks at every fourth rate, and climbs from there."""
_LEAST = 3
"""Steps of the shortest rung."""
_RUNGS = 6
_FIRST = 2
"""Kept of each method after the first rung, which knows no trends."""
_WORST = 1e3
"""Largest ratio that a trend is extrapolated with; losses above this multiple of the initial one end a run."""


@dataclass
class Race:
    """The rungs are the horizon divided by powers of ``factor``."""

    runner: Runner
    bias: Bias
    notify: Callable[[], None]
    tolerance: float
    """Share of f(x_1) − C that does not matter: a lead of half of it keeps a candidate in the race, a tenth is a tie,
    and nobody is followed any more once the leader is that close to C."""
    slack: float
    factor: float
    lower_bound: float
    _ruled_out: set[int] = field(default_factory=set)

    def search(self, candidates: list[Candidate], start: Sequence[Candidate] = ()) -> Candidate | None:
        """The candidate with the smallest loss at the horizon among those that got there; None if there is none.

        ``candidates`` are sorted by method and rate. The race starts with ``start``, or with every fourth rate.
        """
        chains = [[i for i, c in enumerate(candidates) if c.method == method] for method in self.runner.factories]
        rungs = self.rungs()
        if start:
            started = {i for i, candidate in enumerate(candidates) if candidate in start}
        elif len(rungs) > 1:
            started = {i for chain in chains for i in _spread(chain)}
        else:  # too few steps to compare anything on the way
            started = set(range(len(candidates)))
        previous: int | None = None
        for step in rungs:
            present = self._climb(candidates, chains, started, step)
            if not present:
                break
            if step < self.runner.horizon:
                started = self._kept(candidates, chains, present, step, previous)
                self._explain(candidates, present, started, step)
            previous = step
        final = [c for c in candidates if c.complete and not c.out and np.isfinite(self.final_loss(c))]
        return min(final, key=self.final_loss, default=None)

    def rungs(self) -> list[int]:
        """Steps at which candidates are compared, the horizon at last."""
        steps = {math.ceil(self.runner.horizon / self.factor**power) for power in range(_RUNGS)}
        return sorted(step for step in steps if step >= min(_LEAST, self.runner.horizon))

    def final_loss(self, candidate: Candidate) -> float:
        """What the runs evaluate at their end, or the mean batch loss over the last tenth of the steps."""
        return candidate.final_loss(-(-self.runner.horizon // 10))

    def _climb(self, candidates: list[Candidate], chains: list[list[int]], started: set[int], step: int) -> set[int]:
        """Take candidates to a step: those that start, and neighbours of each method's leader while that pays."""
        present: set[int] = set()
        todo = set(started)
        while todo:
            self.runner.advance([candidates[i] for i in sorted(todo)], step)
            self._end_hopeless(candidates)
            present |= {i for i in todo if not candidates[i].out}
            self._rule_out(candidates)
            todo = set()
            for chain in chains:
                if started.isdisjoint(chain):
                    continue
                here = [i for i in chain if i in present]
                if not here:
                    todo |= self._replacement(candidates, [i for i in chain if self._may_run(candidates, i)])
                elif step < self.runner.horizon and not self._is_settled(candidates, here, step):
                    place = chain.index(self._leader(candidates, here, step))
                    beside = chain[max(0, place - 1) : place] + chain[place + 1 : place + 2]
                    todo |= {i for i in beside if i not in present and self._may_run(candidates, i)}
            self.notify()
        allowed = present - self._ruled_out
        return allowed or present

    def _replacement(self, candidates: list[Candidate], rest: list[int]) -> set[int]:
        """Who goes on where all of a method's candidates have ended: the best of the most advanced, or the middle."""
        advanced = max((candidates[i].lanes[0].done for i in rest), default=0)
        if not advanced:
            return set(rest[len(rest) // 2 : len(rest) // 2 + 1])
        there = [i for i in rest if candidates[i].lanes[0].done == advanced]
        return {min(there, key=lambda i: self._score(candidates[i], advanced))}

    def _may_run(self, candidates: list[Candidate], index: int) -> bool:
        return not candidates[index].out and index not in self._ruled_out

    def _kept(
        self, candidates: list[Candidate], chains: list[list[int]], present: set[int], step: int, previous: int | None
    ) -> set[int]:
        """Those that go on: the leader, and whoever is on the way to beat it."""
        if previous is None:
            kept: set[int] = set()
            for chain in chains:
                here = [i for i in chain if i in present]
                leader = [self._leader(candidates, here, step)] if here else []
                rest = sorted(set(here) - set(leader), key=lambda i: self._score(candidates[i], step))
                kept |= set((leader + rest)[:_FIRST])
            return kept
        leader_ = self._leader(candidates, sorted(present), step)
        if self._is_settled(candidates, [leader_], step):
            return {leader_}
        mark = self._predicted(candidates[leader_], step, previous) - 0.5 * self.tolerance * self._scale(candidates)
        return {leader_} | {i for i in present if self._predicted(candidates[i], step, previous) < mark}

    def _leader(self, candidates: list[Candidate], here: Sequence[int], step: int) -> int:
        """The smallest loss of those that move; of equals the smallest rate, because plateaus reach to the right."""
        moving = [i for i in here if self._moves(candidates, i, step)]
        scores = {i: self._score(candidates[i], step) for i in moving or here}
        tie = min(scores.values()) + 0.1 * self.tolerance * self._scale(candidates)
        return min(i for i in scores if scores[i] <= tie)

    @np.errstate(over="ignore")
    def _moves(self, candidates: list[Candidate], index: int, step: int) -> bool:
        """Whether a candidate has done more than stand still, which beats any rate whose first steps are unlucky."""
        promised = np.mean([lane.deltas[:step].sum() for lane in candidates[index].lanes])
        return bool(promised > 0.1 * self.tolerance * self._scale(candidates))

    def _score(self, candidate: Candidate, step: int) -> float:
        """Mean batch loss over the last third of the steps."""
        return candidate.loss_at(step, max(1, round(step / 3)))

    def _predicted(self, candidate: Candidate, step: int, previous: int) -> float:
        """The loss at the horizon if it goes on as from the last rung to this one: f − C as a power of the steps."""
        now, before = (self._score(candidate, s) - self.lower_bound for s in (step, previous))
        if not (now > 0 and before > 0):
            return self.lower_bound + now
        power = math.log(self.runner.horizon / step) / math.log(step / previous)
        trend: float = min(now / before, _WORST) ** power
        return self.lower_bound + now * trend

    def _is_settled(self, candidates: list[Candidate], here: Sequence[int], step: int) -> bool:
        """Whether the leader is so close to C that nobody can be better by more than the tolerance."""
        best = min(self._score(candidates[i], step) for i in here)
        return best - self.lower_bound <= self.tolerance * self._scale(candidates)

    def _scale(self, candidates: list[Candidate]) -> float:
        initial = initial_loss(candidates)
        return 0.0 if initial is None else max(initial - self.lower_bound, 0.0)

    @np.errstate(over="ignore")
    def _end_hopeless(self, candidates: list[Candidate]) -> None:
        """End runs that are dead, or so far above the start that they will not come back."""
        initial, scale = initial_loss(candidates), self._scale(candidates)
        for candidate in candidates:
            if candidate.done and not candidate.out:
                for lane in candidate.lanes:
                    last = lane.losses[max(0, lane.done - 3) : lane.done].mean()
                    high = bool(scale) and last - self.lower_bound > _WORST * scale
                    if high or is_dead(lane, initial):
                        candidate.dead = True
                        candidate.reason = "far above the start" if high else "gradients vanished, loss high"

    def _rule_out(self, candidates: list[Candidate]) -> None:
        """Candidates whose bound is beyond slack × the best one, as far as it is known; looked at anew every time."""
        biases = self.bias(candidates)
        totals = [b + c.projected_noise() for b, c in zip(biases, candidates, strict=True) if c.done and not c.out]
        best = min(totals, default=math.inf) - min(self.lower_bound, 0.0)
        self._ruled_out = set()
        if not 0 < best < math.inf:
            return
        for i, (bias, candidate) in enumerate(zip(biases, candidates, strict=True)):
            if not candidate.out and bias + candidate.noise() - min(self.lower_bound, 0.0) > self.slack * best:
                self._ruled_out.add(i)
                candidate.reason = f"bound above {self.slack:g} × the best"
            elif candidate.reason.startswith("bound"):
                candidate.reason = ""

    def _explain(self, candidates: list[Candidate], present: set[int], kept: set[int], step: int) -> None:
        for i in present:
            candidates[i].reason = "" if i in kept else f"not the leader at step {step}"


def _spread(chain: list[int]) -> list[int]:
    """Every fourth of a method's rates, as far from either end."""
    return chain[(len(chain) - 1) % _STRIDE // 2 :: _STRIDE]
