"""The search for the smallest bound: best first, with bias + partial noise as the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from surefoot.rules import Dead, History
from surefoot.runs import Lane, Runner
from surefoot.search._bias import Bias
from surefoot.search._candidate import Candidate, raised

_DEAD = Dead(loss_ratio=0.9)
"""The rule for dead runs; its window is set to a twentieth of a run."""


@dataclass
class BestFirst:
    """Advance the candidate with the smallest key until a complete one has it.

    No noise term is negative, so a key is a lower bound of the candidate's whole Ω, and the search ends with the
    minimiser of Ω. Data orders are taken one after the other: the last steps of a run weigh most, so a complete order
    raises the key by more than parts of several.
    """

    runner: Runner
    bias: Bias
    notify: Callable[[], None]
    tolerance: float
    """ε: stop once nothing can be better by more than this factor."""
    rung: int
    """Steps at once, so that switching between runs is rare."""

    def search(self, candidates: list[Candidate], start: Sequence[Candidate] = ()) -> Candidate | None:
        """The candidate with the smallest bound, None if all are infinite; keys alone say where to start."""
        while True:
            keys = self.keys(candidates)
            complete = [i for i, candidate in enumerate(candidates) if candidate.complete and not candidate.out]
            going = [i for i, c in enumerate(candidates) if not c.complete and not c.out and np.isfinite(keys[i])]
            # Complete ones first, the first of equals: the minimiser that a grid would name.
            best = min(complete, key=lambda i: keys[i], default=None)
            following = min(going, key=lambda i: keys[i], default=None)
            if following is None or (best is not None and keys[best] <= raised(keys[following], self.tolerance)):
                return None if best is None or not np.isfinite(keys[best]) else candidates[best]
            chosen = candidates[following]
            lane = _next_lane(chosen)
            likely = [_next_lane(candidates[i]) for i in sorted(going, key=lambda i: keys[i])]
            self.runner.advance([lane], min(lane.done + self.rung, self.runner.horizon), likely)
            if not self.bias.is_known:
                self._check(candidates, chosen, lane)
            self.notify()

    def _check(self, candidates: list[Candidate], chosen: Candidate, lane: Lane) -> None:
        """End a candidate whose losses speak against its bound, which can be fooled without convexity.

        Dead runs end, and so do complete ones whose loss is above their bound (of f itself, with a pool).
        """
        if is_dead(chosen, lane):
            chosen.dead, chosen.reason = True, "gradients vanished, loss high"
        elif chosen.complete:
            bound = self.keys(candidates)[candidates.index(chosen)]
            loss = chosen.last_loss()
            if loss > bound:
                chosen.dead, chosen.reason = True, f"its loss {loss:.3g} refutes its bound {bound:.3g}"

    def keys(self, candidates: list[Candidate]) -> list[float]:
        """bias + partial noise of each, with the bias as it is known now."""
        noises = [candidate.noise() for candidate in candidates]
        return [bias + noise for bias, noise in zip(self.bias(candidates), noises, strict=True)]


def _next_lane(candidate: Candidate) -> Lane:
    """The run of the data order that goes on."""
    return next(lane for lane in candidate.lanes if not lane.complete)


@np.errstate(over="ignore")
def is_dead(candidate: Candidate, lane: Lane) -> bool:
    """Whether the gradients of a run have vanished although its loss is still high.

    The index then is small, and a bound would be fooled. Not for convex losses, where a vanished gradient is a minimum.
    A run tells no gradients: 2δ_t/α_t stands for ‖g_t‖², which it is for short steps.
    """
    moving = candidate.rates[: lane.done] > 0
    losses, squares = lane.losses[: lane.done][moving], 2.0 * lane.deltas[: lane.done][moving]
    rates = candidate.rates[: lane.done][moving]
    rule = replace(_DEAD, window=max(10, lane.horizon // 20))
    return not lane.diverged and rule.first(History(losses, squares / rates, squares, rates)) is not None
