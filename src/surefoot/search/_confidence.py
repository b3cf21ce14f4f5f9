"""How sure the answer of a race is, from the same paired differences that decided it."""

from __future__ import annotations

import math

import numpy as np

from surefoot.search._race import Race

REGRET = 0.05
"""A chosen rate is near the best if nobody is better by more than this share of the gain."""
_AT_ZERO, _PER_LOG_ERROR, _PER_RIVAL = 0.81, -0.35, 1.06
"""A straight line in the logit, fitted to grids that were recorded for development (``benchmarks/search.py`` shows how
often it is right on others)."""
_LEAST_ERROR, _MOST_ERROR = 1e-3, math.e
_RIVALS = 2


@np.errstate(over="ignore", invalid="ignore")
def confidence(race: Race, chosen: int) -> float:
    """The probability that no candidate would end more than 5 % of the gain below the chosen one.

    Two things tell: how large the standard errors of the paired differences are, relative to the gain (the largest of
    the candidates that ran for a quarter of the horizon), and how many rivals were taken to the end, too.
    """
    gain, seen = race.gain(chosen, race.horizon)
    errors, rivals = [_LEAST_ERROR], 0
    for i in range(len(race.rates)):
        if i != chosen and 4 * race.taken(i) >= race.horizon and not race.lost(i):
            errors.append(race.gap(i, chosen, race.taken(i), gain).error)
            rivals += race.taken(i) == race.horizon
    error = min(max(errors), _MOST_ERROR) if seen else _MOST_ERROR
    logit = _AT_ZERO + _PER_LOG_ERROR * math.log(error) + _PER_RIVAL * min(rivals, _RIVALS)
    return 1.0 / (1.0 + math.exp(-logit))
