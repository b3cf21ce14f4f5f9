"""One registry of methods: what each is called and how it is drawn, in figures, reports, plots and tables alike.

A method's label is the name of its class (``LogNGN``); in specs it is the same in small letters with hyphens
(``log-ngn``). Relatives, the same model in another geometry or with averaging, share a colour and a marker, until they
meet in one picture: see :func:`looks`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

VERMILION, BLUE, GREEN, PURPLE = "#e94311", "#153ec0", "#0d8d66", "#814a85"
OCHRE, BROWN, SKY, PLUM = "#df9f22", "#681f04", "#5ab4e5", "#3e063f"
GREY = "#777777"
"""For what is no method: levels, guides, keys."""

PALETTE = (VERMILION, BLUE, GREEN, PURPLE, BROWN, OCHRE, SKY, PLUM)
"""Colours that were chosen by search to stay apart for every kind of colour vision; those of SGD, SPS, NGN, SPP and
LogNGN also differ in lightness, for paper without colours. A test simulates it. Methods that nobody knows have the last
one that is free."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
"""Names of matplotlib's markers, one a method of a picture."""

LINES = ("-", "-.", (0, (5, 1, 1, 1, 1, 1)))
"""Line styles of losses, in the order in which they are needed; dashes mean bounds."""

Line = str | tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Look:
    """What a method is called, and how it is drawn."""

    name: str
    """What specs and results call it: ``sps(lower_bound=-2)``."""
    label: str
    """For people: ``SPS (C = −2)``."""
    colour: str
    marker: str
    line: Line = "-"
    """The line style, as matplotlib takes it."""

    def options(self, **changes: Any) -> dict[str, Any]:
        """What matplotlib's ``plot`` is given for a line of this method."""
        drawn = {"color": self.colour, "marker": self.marker, "linestyle": self.line, "label": self.label}
        return {**drawn, "markersize": 3.5, "linewidth": 1.5, **changes}


_LINEAR, _TRUNCATED, _ROOT = (VERMILION, "o"), (BLUE, "s"), (GREEN, "^")
_KNOWN: dict[str, tuple[str, tuple[str, str]]] = {
    "sgd": ("SGD", _LINEAR),
    "sps": ("SPS", _TRUNCATED),
    "ngn": ("NGN", _ROOT),
    "spp": ("SPP", (PURPLE, "D")),
    "log-ngn": ("LogNGN", (OCHRE, "v")),
    "power": ("Power", (SKY, "X")),
    "sgd+warmup": ("SGD with warmup", (BROWN, "P")),
    "sgd-momentum": ("SGD with momentum", _LINEAR),
    "momo": ("MoMo", _TRUNCATED),
    "ngn-momentum": ("NGNMomentum", _ROOT),
    "adam": ("Adam", _LINEAR),
    "adamw": ("AdamW", _LINEAR),
    "ngn-adam": ("NGNAdam", _ROOT),
    "momo-adam": ("MoMoAdam", (PURPLE, "D")),
    "ngn-momentum-adam": ("NGNMomentumAdam", _ROOT),
    "muon": ("Muon", _LINEAR),
    "sps-muon": ("SPSMuon", _TRUNCATED),
    "surefoot": ("Surefoot", _TRUNCATED),
}


def known() -> tuple[str, ...]:
    """The names of the methods that come with the package.

    >>> known()[:5]
    ('sgd', 'sps', 'ngn', 'spp', 'log-ngn')
    """
    return tuple(_KNOWN)


def look(name: str) -> Look:
    """Label, colour, marker and line of one method, whatever its parameters; a method of your own has a strong colour.

    >>> look("sps(lower_bound=-2)")
    Look(name='sps(lower_bound=-2)', label='SPS (C = −2)', colour='#153ec0', marker='s', line='-')
    >>> look("mine").colour
    '#3e063f'
    """
    _, drawn = _KNOWN.get(name.partition("(")[0], ("", (PALETTE[-1], MARKERS[-1])))
    return Look(name, label_of(name), *drawn)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """The looks of the methods of one picture by name, all different.

    Methods of the package come first, and the plain ones among them before those with parameters: they keep their own
    look. A method that would share a colour or a marker gets one that is free; when no colour is left the line changes.

    >>> [each.colour for each in looks(["sgd", "sps", "sps(lower_bound=-2)", "mine"]).values()]
    ['#e94311', '#153ec0', '#3e063f', '#5ab4e5']
    """
    unique = list(dict.fromkeys(names))
    colours: Counter[str] = Counter()
    markers: Counter[str] = Counter()
    chosen: dict[str, Look] = {}
    for place, name in enumerate(sorted(unique, key=_rank)):
        usual = look(name)
        colour = _free(usual.colour, PALETTE[::-1], colours)
        marker = _free(usual.marker, MARKERS, markers)
        chosen[name] = replace(usual, colour=colour, marker=marker, line=LINES[place // len(PALETTE) % len(LINES)])
        colours[colour] += 1
        markers[marker] += 1
    return {name: chosen[name] for name in unique}


def label_of(name: str) -> str:
    """What people call a method.

    >>> label_of("log-ngn"), label_of("ngn(lower_bound='level')"), label_of("mine(a=1)")
    ('LogNGN', 'NGN (level)', 'mine (a = 1)')
    """
    base, bracket, rest = name.partition("(")
    label = _KNOWN[base][0] if base in _KNOWN else base
    if not bracket:
        return label
    words = rest.removesuffix(")").replace("'", "").replace("lower_bound=level", "level").replace("lower_bound=", "C=")
    words = re.sub(r"(?<==)-(?=[\d.])", "−", words)
    return f"{label} ({re.sub(r'(?<=[A-Za-z_])=', ' = ', words)})"


def _rank(name: str) -> int:
    """Plain methods of the package come first, then those with parameters, then methods of other people."""
    base, bracket, _ = name.partition("(")
    return 2 if base not in _KNOWN else 1 if bracket else 0


def _free(usual: str, choices: Iterable[str], taken: Counter[str]) -> str:
    """The usual colour or marker if it is free, else the first of the choices that were taken least often."""
    return min(choices, key=taken.__getitem__) if taken[usual] else usual
