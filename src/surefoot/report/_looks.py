"""One look a method, in all studies of a page: a colour and a mark that nothing else on the page has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from surefoot.figures._style import COLOURS, colour_of

MARKS = {"sgd": "o", "sps": "s", "ngn": "^", "spp": "D", "log-ngn": "v", "sgd+warmup": "P"}
"""Marks of methods without parameters, in matplotlib's letters."""

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#8c3b00")
LETTERS = ("o", "s", "^", "D", "v", "P", "X", "*")


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    mark: str


def looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of every method of a page, by name.

    A method of the paper has its own, on every page. Any other gets one by its name, or the next that is free: colours
    repeat only after all have been used, and pairs of colour and mark after 64 methods.

    >>> looks(["ngn", "mine"])["ngn"]
    Look(colour='#009e73', mark='^')
    """
    distinct = list(dict.fromkeys(names))
    found = {name: Look(colour_of(name), MARKS[name]) for name in distinct if name in MARKS and name in COLOURS}
    taken = set(found.values())
    for name in distinct:
        if name not in found:
            found[name] = _free(name, taken)
            taken.add(found[name])
    return found


def _free(name: str, taken: set[Look]) -> Look:
    """The first free look, counted from a place that the name decides."""
    start = crc32(name.encode())
    if len(taken) >= len(PALETTE) * len(LETTERS):
        return Look(PALETTE[start % 8], LETTERS[start // 8 % 8])
    pairs = [Look(PALETTE[(start + place) % 8], LETTERS[(start // 8 + place + place // 8) % 8]) for place in range(64)]
    colours, marks = {look.colour for look in taken}, {look.mark for look in taken}
    rank = {pair: (pair.colour in colours, pair.mark in marks, pair in taken) for pair in pairs}
    return min(pairs, key=rank.__getitem__)
