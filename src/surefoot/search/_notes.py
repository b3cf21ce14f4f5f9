"""How sure a search is of its answer, and what to be careful with."""

from __future__ import annotations

import math

import numpy as np

from surefoot.search._race import Race, window

_SMALL = 0.01
"""A fall of this share of the start's loss is hardly one."""
_NOISE = 0.1
"""A fall of this share of the standard deviation of the batch losses is hardly one, either."""

_AT_ZERO, _PER_LOG_ERROR, _PER_RIVAL = 1.5, -0.4, 0.5
"""A straight line in the logit, somewhat below what the grids for development say (``benchmarks/search.py`` shows how
often it is right on others)."""
_PER_BLUR = 4.0
"""How much less sure the answer is if batch losses have decided, per standard error of their differences."""
_LEAST_ERROR, _MOST_ERROR = 1e-3, math.e
_RIVALS = 2


@np.errstate(over="ignore", invalid="ignore")
def confidence(race: Race, chosen: int, *, is_evaluated: bool) -> float:
    """The probability that no candidate would end more than 5 % of the gain below the chosen one.

    It follows from the standard errors of the paired differences, relative to the gain (the largest of the candidates
    that ran for a quarter of the horizon), and from how many rivals were taken to the end. It is smaller if noisy batch
    losses have decided among these, instead of an evaluation, and below 0.5 if no gain can be told from the noise.
    """
    gain, seen = race.gain(chosen, race.horizon)
    others = [i for i in range(len(race.rates)) if i != chosen and not race.lost(i)]
    error = {i: race.gap(i, chosen, race.taken(i), gain).error for i in others if 4 * race.taken(i) >= race.horizon}
    rivals = [i for i in others if race.taken(i) == race.horizon]
    largest = min(max(error.values(), default=0.0), _MOST_ERROR)
    logit = _AT_ZERO + _PER_LOG_ERROR * math.log(max(largest, _LEAST_ERROR)) + _PER_RIVAL * min(len(rivals), _RIVALS)
    blurred = 0.0 if is_evaluated else max((error[i] for i in rivals), default=0.0)
    return (1.0 if seen else 0.5) / (1.0 + math.exp(-logit)) / (1.0 + _PER_BLUR * blurred)


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
