"""What a claim is, what it looks at, and how all of them are checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from surefoot._base.arguments import one_of
from surefoot._base.progress import Tell, reporter
from surefoot.paper import experiments, networks
from surefoot.plots import label_of

if TYPE_CHECKING:
    import xarray as xr

    from surefoot.study import Result

Verdict = Literal["holds", "fails", "not-run"]


class NotRun(Exception):
    """The runs that a claim needs are not here; the message says which, or how to make them."""


class Evidence:
    """What claims look at. Convex studies run when they are asked for, and are kept in a folder if one is given; sweeps
    on networks take hours: only their recorded numbers are read, from the folder or from the package.

    Args:
        folder: Where the studies are kept.
        presets: Sizes of sweeps on networks, the most trusted first.
    """

    def __init__(self, folder: Path | None = None, presets: Sequence[str] = networks.TRUSTED) -> None:
        self._folder, self._presets = folder, presets
        self._results: dict[str, Result] = {}
        self._sweeps: dict[str, dict[str, xr.Dataset]] = {}

    def __getitem__(self, name: str) -> Result:
        """The result of a convex experiment."""
        if name not in self._results:
            self._results[name] = experiments.run(name, self._folder)
        return self._results[name]

    def sweeps(self, name: str) -> dict[str, xr.Dataset]:
        """The numbers of a sweep on a network in every size that was run, by preset.

        Raises:
            NotRun: There is none.
        """
        if name not in self._sweeps:
            self._sweeps[name] = networks.recorded(name, self._folder, self._presets)
        if not self._sweeps[name]:
            command = f"surefoot reproduce {name} --preset {self._presets[-1]} --out OUT"
            raise NotRun(f"run `{command}` first, then `surefoot claims --store OUT/studies`")
        return self._sweeps[name]


class Finding(NamedTuple):
    """Whether a claim holds, and what its check measured, in words."""

    holds: bool
    measured: str


Check = Callable[[Any], Finding]


class Claim(NamedTuple):
    """A claim of the paper, the numeric rule that decides it, and the check that applies the rule.

    Rules are fixed before anything runs; a claim that fails is reported as failing.
    """

    id: str
    claim: str
    rule: str
    check: Check
    """Takes the :class:`Evidence`. Where runs or an extra are missing, the verdict is ``not-run``."""


@dataclass(frozen=True)
class Checked:
    """A claim with its rule, what was measured and the verdict."""

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
        holds, measured = claim.check(evidence)
        verdict: Verdict = "holds" if holds else "fails"
    except (NotRun, ImportError) as missing:  # runs, or an extra that is not installed; the message says what to do
        measured, verdict = str(missing), "not-run"
    return Checked(claim.id, claim.claim, claim.rule, measured, verdict)


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
    checked: list[Checked] = []
    with reporter(progress, total=len(chosen), unit="claims") as tell:
        for name in chosen:
            checked.append(judge(known[name], evidence))
            tell(len(checked))
    return checked


def listed(values: Mapping[str, float], form: str) -> str:
    """Each method's label and its number, in words.

    >>> listed({"sgd": 0.5, "log-ngn": 2.0}, ".2f")
    'SGD 0.50, LogNGN 2.00'
    """
    return ", ".join(f"{label_of(name)} {value:{form}}" for name, value in values.items())


def windows(rows: Iterable[Any]) -> str:
    """The measured windows in words."""
    return ", ".join(f"{label_of(row.algorithm)} {row.low:.3g}–{row.high:.3g}" for row in rows)


def decades(high: float, low: float) -> float:
    """log10(high/low); NaN, which meets no rule, where one of them does not exist."""
    return math.log10(high / low) if high > 0 and low > 0 else math.nan


def at_most_a_step(apart: Iterable[float], step: float) -> bool:
    """Whether all of these decades are within a step of the grid of rates, up to rounding."""
    return all(abs(value) <= step + 1e-9 for value in apart)
