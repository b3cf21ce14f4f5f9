"""The bias of the bound, the same rule for all candidates: from D, from the Moreau envelope, or from a pool of points.

Never from a distance per candidate: bias and noise would both vanish with the rate, and the smallest rate would win by
not moving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from surefoot.search._candidate import Candidate
from surefoot.theory import bounds


class Distance:
    """D²/(2 S_1) with one D for all (Theorem 3.4)."""

    is_known = True
    """Whether it stays as it is while the search goes on, so that partial sums prove something."""

    def __init__(self, distance: float) -> None:
        self.distance = distance
        self.name = f"distance {distance:g}"

    def __call__(self, candidates: Sequence[Candidate]) -> list[float]:
        """The bias D²/(2 S_1) of each candidate."""
        return [float(bounds.distance_bias(candidate.rates, self.distance)) for candidate in candidates]


class Envelope:
    """env_f(x_1) with parameter S_1, computed once a rate; the bound then is one of f itself, not of f − f⋆."""

    name = "envelope"
    is_known = True

    def __init__(self, envelope: Callable[[Any], Any]) -> None:
        self._envelope = envelope
        self._known: dict[float, float] = {}

    def __call__(self, candidates: Sequence[Candidate]) -> list[float]:
        """The envelope of each candidate, computed in one call for all rates that are new."""
        totals = [float(candidate.rates.sum()) for candidate in candidates]
        new = sorted({total for total in totals if total not in self._known})
        if new:
            self._known |= dict(zip(new, map(float, np.atleast_1d(self._envelope(np.array(new)))), strict=True))
        return [self._known[total] for total in totals]


class Pool:
    """min_j f(u_j) + ‖x_1 − u_j‖²/(2 S_1) over the points u_j that any run has visited, x_1 among them.

    The pool grows while the search goes on and lowers every candidate's bias, so what was dropped has to be looked at
    again: keys are always computed from the pool as it is. f(u_j) is the mean of the batch losses before u_j.
    """

    name = "pool"
    is_known = False

    def __init__(self, window: int) -> None:
        self._window = window

    def __call__(self, candidates: Sequence[Candidate]) -> list[float]:
        """The bias of each candidate with the pool of now."""
        losses, distances = self._points(candidates)
        if not losses:
            return [0.0] * len(candidates)
        return [float(bounds.envelope_bias(candidate.rates, losses, distances)) for candidate in candidates]

    @np.errstate(over="ignore")
    def _points(self, candidates: Sequence[Candidate]) -> tuple[list[float], list[float]]:
        losses, distances = [], []
        lanes = [lane for candidate in candidates for lane in candidate.lanes]
        # f(x_1) up to the batches' noise: the mean of the first losses over the data orders.
        firsts = {lane.key.seed: float(lane.losses[0]) for lane in lanes if lane.done and np.isfinite(lane.losses[0])}
        if firsts:
            losses.append(float(np.mean(list(firsts.values()))))
            distances.append(0.0)
        for lane in lanes:
            for step, distance in lane.marks:
                if step <= lane.done and np.isfinite(distance):
                    losses.append(float(lane.losses[max(0, step - self._window) : step].mean()))
                    distances.append(distance)
        finite = np.isfinite(losses)
        return list(np.array(losses)[finite]), list(np.array(distances)[finite])


Bias = Distance | Envelope | Pool
"""A rule for the bias: called with the candidates, it gives the bias of each."""
