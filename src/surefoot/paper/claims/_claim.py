"""What a claim is, what it looks at, and how all of them are checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from surefoot._base.arguments import one_of
from surefoot._base.progress import Tell, reporter
from surefoot.paper import experiments, presets
from surefoot.paper.summary import Summary, recorded, summarise
from surefoot.plots import label_of
from surefoot.study import Result, Sensitivity

Verdict = Literal["holds", "fails", "not-run"]
SIZES = ("paper", "medium", "small")
"""Presets of sweeps on networks, the most trusted first."""


class NotRun(Exception):
    """The runs that a claim needs are not here; the message says how to make them."""


class Swept(NamedTuple):
    """A sweep on a network that was run before."""

    preset: str
    settings: presets.Sweep
    runs: dict[str, Summary]
    """By label: ``sgd``, ``sgd+warmup``, …"""
    recorded: bool = False
    """Whether the numbers come with the package, and were not computed here."""


class Evidence:
    """The studies that claims look at. Convex ones run when they are asked for, and are kept in a folder if one is
    given; sweeps on networks take hours, and are only looked up: in the folder, then in what comes with the package.

    Args:
        folder: Where the studies are kept.
        sizes: Presets of sweeps on networks, the most trusted first.
    """

    def __init__(self, folder: Path | None = None, sizes: Sequence[str] = SIZES) -> None:
        self._folder, self._sizes = folder, sizes
        self._results: dict[str, Result] = {}
        self._sweeps: dict[str, list[Swept]] = {}

    def __getitem__(self, name: str) -> Result:
        if name not in self._results:
            self._results[name] = experiments.run(name, self._folder)
        return self._results[name]

    def sweeps(self, name: str) -> list[Swept]:
        """A sweep on a network in every size that there is, the most trusted first: those of the folder, then those of
        the package in other sizes.

        Of one that is not finished, the methods and rates count all of whose runs are there, if these are enough
        to speak of a window.

        Raises:
            NotRun: There is none.
        """
        if name in self._sweeps:
            return self._sweeps[name]
        here, shipped = [], []
        for preset in self._sizes:
            settings = presets.sweep(name, preset)
            results = None if self._folder is None else presets.finished(name, preset, self._folder)
            if results is not None:
                here.append(Swept(preset, settings, summarise(results)))
            elif (runs := recorded(name, preset)) is not None:
                shipped.append(Swept(preset, settings, runs, recorded=True))
        if not here and not shipped:
            command = f"surefoot reproduce {name} --preset {self._sizes[-1]} --out OUT"
            raise NotRun(f"run `{command}` first, then `surefoot claims --store OUT/studies`")
        self._sweeps[name] = here + shipped
        return self._sweeps[name]


class Finding(NamedTuple):
    """Whether a claim holds, and what its check measured."""

    holds: bool
    measured: str
    """The numbers, in words."""

    @property
    def verdict(self) -> Verdict:
        """``holds`` or ``fails``."""
        return "holds" if self.holds else "fails"


Check = Callable[[Evidence], Finding]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the numeric rule that decides it, and the check that applies the rule.

    Rules are fixed before anything runs; a claim that fails is reported as failing.
    """

    id: str
    claim: str
    rule: str
    check: Check
    """Where its runs or an extra are missing, the verdict is ``not-run``."""


@dataclass(frozen=True)
class Checked:
    """A claim with its rule, what was measured and the verdict: a row of the table."""

    id: str
    claim: str
    rule: str
    measured: str
    verdict: Verdict


SECTIONS: dict[str, dict[str, Claim]] = {
    "theory": {},
    "stability indices": {},
    "linear regression": {},
    "logistic regression": {},
    "ResNet20 on CIFAR-10": {},
}
"""The claims by what they are about and by their ids, in the paper's order."""


def claim_about(section: str, name: str, words: str, rule: str) -> Callable[[Check], Check]:
    """The decorator that makes a claim of a check: its section, its id, what the paper says, and what decides it."""

    def take(check: Check) -> Check:
        SECTIONS[section][name] = Claim(name, words, rule, check)
        return check

    return take


def judge(claim: Claim, evidence: Evidence) -> Checked:
    """Apply a claim's rule."""
    try:
        finding = claim.check(evidence)
    except (NotRun, ImportError) as missing:  # runs, or an extra that is not installed; the message says what to do
        return Checked(claim.id, claim.claim, claim.rule, str(missing), "not-run")
    return Checked(claim.id, claim.claim, claim.rule, finding.measured, finding.verdict)


def all_claims() -> dict[str, Claim]:
    """Every claim by its id, in the paper's order."""
    return {name: claim for claims in SECTIONS.values() for name, claim in claims.items()}


def check(
    ids: Iterable[str] | None = None, *, folder: Path | None = None, progress: Tell | None = None
) -> list[Checked]:
    """Check the claims with these ids, or all.

    Args:
        ids: Which; None means all.
        folder: Where the studies are kept, to be found again.
        progress: True for a bar, or a function of (claims done, all).
    """
    known = all_claims()
    chosen = [one_of("claim", name, known) for name in (known if ids is None else ids)]
    evidence = Evidence(folder)
    rows: list[Checked] = []
    with reporter(progress, total=len(chosen), unit="claims") as tell:
        for name in chosen:
            rows.append(judge(known[name], evidence))
            tell(len(rows))
    return rows


def listed(values: Mapping[str, float], form: str) -> str:
    """Each method's label and its number, in words.

    >>> listed({"sgd": 0.5, "log-ngn": 2.0}, ".2f")
    'SGD 0.50, LogNGN 2.00'
    """
    return ", ".join(f"{label_of(name)} {value:{form}}" for name, value in values.items())


def windows(rows: Iterable[Sensitivity]) -> str:
    """The measured windows in words."""
    return ", ".join(f"{label_of(row.algorithm)} {row.low:.3g}–{row.high:.3g}" for row in rows)


def decades(high: float, low: float) -> float:
    """log10(high/low); NaN, which meets no rule, where one of them does not exist."""
    return math.log10(high / low) if high > 0 and low > 0 else math.nan


def at_most_a_step(apart: Iterable[float], step: float) -> bool:
    """Whether all of these decades are within a step of the grid of rates, up to rounding."""
    return all(abs(value) <= step + 1e-9 for value in apart)
