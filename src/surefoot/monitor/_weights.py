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


PLAIN = Weights(
    small=(
        -4.81,
        {
            "promised": -2.11,
            "away": -1.92,
            "straight": -1.33,
            "uphill": -0.26,
            "learned": -3.32,
            "spike": -6.17,
            "falls": 1.71,
            "warmup": 0.75,
        },
    ),
    large=(
        -1.86,
        {
            "promised": 1.24,
            "uphill": 0.26,
            "learned": -2.99,
            "away": 1.45,
            "kept": -0.19,
            "straight": 0.93,
            "spike": 0.66,
            "falls": -1.65,
            "warmup": -1.42,
            "shortened": -0.31,
        },
    ),
    best=(
        -0.37,
        {
            "promised": -0.46,
            "uphill": -0.09,
            "away": -0.5,
            "straight": -0.3,
            "shortened": 0.82,
            "warmup": 0.38,
            "falls": 0.58,
        },
    ),
    edge=-2.34,
)
"""For what the steps say alone."""
PROBED = Weights(
    small=(
        -2.52,
        {
            "promised": -1.58,
            "away": -1.9,
            "straight": -0.77,
            "uphill": -0.29,
            "learned": -3.82,
            "spike": -5.99,
            "falls": 1.82,
            "warmup": 0.76,
            "ahead": 1.78,
        },
    ),
    large=(
        -1.1,
        {
            "promised": 1.51,
            "uphill": 0.24,
            "learned": -1.58,
            "away": 1.42,
            "kept": -0.13,
            "straight": 1.2,
            "spike": 0.25,
            "falls": -1.65,
            "warmup": -1.41,
            "shortened": -0.36,
            "room": -2.41,
        },
    ),
    best=(
        -0.29,
        {
            "promised": -0.44,
            "uphill": -0.09,
            "away": -0.49,
            "straight": -0.3,
            "shortened": 0.81,
            "warmup": 0.38,
            "falls": 0.59,
            "ahead": 0.11,
        },
    ),
    edge=-2.41,
)
"""For a run that was probed as well."""
