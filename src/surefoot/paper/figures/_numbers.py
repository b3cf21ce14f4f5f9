"""Which figure of the paper each of ours is."""

from __future__ import annotations

import re

PAPER = {
    "toy-function": "1",
    "power-law": "2 (left)",
    "pep": "2 (right)",
    "stability-index": "3",
    "cifar10-loss-and-bound": "4",
    "cifar10-delta": "5",
    "linear-regression": "6",
    "v1": "7 (left)",
    "v2": "7 (middle)",
    "v3": "7 (right)",
    "vowel": "8",
    "cifar10-distances": "9",
    "cifar10-half": "10",
    "cifar10-validation": "11",
    "dna": "12",
}
"""The number in the paper by our name; the others are our own."""


def numbered(name: str) -> str:
    """What a figure is called in a heading.

    >>> numbered("v2"), numbered("level")
    ('Figure 7 (middle)', 'Beyond the paper')
    """
    return f"Figure {PAPER[name]}" if name in PAPER else "Beyond the paper"


def of_number(name: str) -> list[str]:
    """Our names of a figure of the paper, ``figure7`` or ``fig. 7``; none if it is no such name.

    >>> of_number("Figure 7"), of_number("fig1"), of_number("vowel")
    (['v1', 'v2', 'v3'], ['toy-function'], [])
    """
    found = re.fullmatch(r"fig(?:ure|\.)?[\s_-]*(\d+)", name.strip().lower())
    return [] if found is None else [ours for ours, number in PAPER.items() if number.split()[0] == found[1]]
