"""The weights of the verdict, as ``python benchmarks/verdict.py --fit`` prints them.

``small`` and ``large`` are logistic regressions of "below" and "above the window of good rates", ``best`` a robust
linear one of log10(best rate / this rate). Above 0 a rate is too small, or too large. The cuts are such that, with the
task at hand left out of the fit, 2.3 % of the rates inside their window are called too small and 2 % too large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Sum = tuple[float, Mapping[str, float]]
"""A constant, and the weights of numbers of the evidence."""


class Weights(NamedTuple):
    """Three weighted sums of the evidence."""

    small: Sum
    large: Sum
    best: Sum
    edge: float
    """The ``large`` sum from which on a rate is at the edge."""


WEIGHTS = Weights(
    small=(
        -3.35,
        {
            "promised": -2.75,
            "away": -1.68,
            "straight": -1.92,
            "uphill": -0.25,
            "learned": -3.89,
            "spike": -3.41,
            "noise": 1.0,
            "above": -3.49,
            "falls": 1.8,
            "warmup": 0.66,
        },
    ),
    large=(
        -1.79,
        {
            "promised": 1.32,
            "uphill": 0.26,
            "learned": -2.88,
            "away": 1.45,
            "kept": -0.18,
            "straight": 1.07,
            "falls": -1.62,
            "warmup": -1.34,
            "shortened": -0.17,
        },
    ),
    best=(
        -0.38,
        {
            "promised": -0.45,
            "uphill": -0.09,
            "away": -0.51,
            "straight": -0.29,
            "shortened": 0.78,
            "warmup": 0.32,
            "falls": 0.6,
        },
    ),
    edge=-2.33,
)
