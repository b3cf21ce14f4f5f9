"""How sure a search is of its answer, and what to be careful with."""

from __future__ import annotations

import math

import numpy as np

from surefoot.search._race import Race, window

_SMALL = 0.01
"""A fall of this share of the start's loss is hardly one."""
_NOISE = 0.1
"""A fall of this share of the standard deviation of the batch losses is hardly one, either."""

_AT_ZERO, _PER_LOG_ERROR, _PER_RIVAL = 0.81, -0.35, 0.4
"""A straight line in the logit, fitted to grids that were recorded for development (``benchmarks/search.py`` shows how
often it is right on others)."""
_LEAST_ERROR, _MOST_ERROR = 1e-3, math.e
_RIVALS = 2


@np.errstate(over="ignore", invalid="ignore")
def confidence(race: Race, chosen: int) -> float:
    """The probability that no candidate would end more than 5 % of the gain below the chosen one.

    It follows from how large the standard errors of the paired differences are, relative to the gain (the largest of
    the candidates that ran for a quarter of the horizon), and from how many rivals were taken to the end. Below 0.5 if
    no gain can be told from the noise.
    """
    gain, seen = race.gain(chosen, race.horizon)
    errors, rivals = [_LEAST_ERROR], 0
    for i in range(len(race.rates)):
        if i != chosen and 4 * race.taken(i) >= race.horizon and not race.lost(i):
            errors.append(race.gap(i, chosen, race.taken(i), gain).error)
            rivals += race.taken(i) == race.horizon
    logit = _AT_ZERO + _PER_LOG_ERROR * math.log(min(max(errors), _MOST_ERROR)) + _PER_RIVAL * min(rivals, _RIVALS)
    return (1.0 if seen else 0.5) / (1.0 + math.exp(-logit))


@np.errstate(over="ignore", invalid="ignore")
def notes(race: Race, chosen: int) -> list[str]:
    """What to be careful with, in sentences."""
    sentences = []
    gain, seen = race.gain(chosen, race.horizon)
    start, end = race.start(), race.level(chosen, race.horizon)
    if not seen:
        sentences.append(
            f"No rate can be told apart: nobody's gain is larger than the noise of the batches ({start:.4g} at the "
            f"start, {end:.4g} at the end). Larger batches, more seeds or more steps would show more."
        )
    elif gain < _SMALL * abs(start) or gain < _NOISE * float(race.histories[chosen][window(race.horizon)].std()):
        sentences.append(
            f"The chosen run barely improves on the start: {start:.4g} before, {end:.4g} after. None of these rates "
            "may be right, or the run may need more steps."
        )
    chain = next(chain for chain in race.chains() if chosen in chain)
    if len(chain) > 1 and chosen in (chain[0], chain[-1]):
        which = "smallest" if chosen == chain[0] else "largest"
        sentences.append(f"The best rate is the {which} of the grid. extend=True looks beyond it.")
    return sentences
