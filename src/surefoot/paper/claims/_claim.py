"""What a claim is, what it looks at, and how all of them are checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from surefoot._base.arguments import one_of
from surefoot._base.progress import Tell, reporter
from surefoot.paper import cifar10, experiments
from surefoot.plots import label_of

if TYPE_CHECKING:
    import xarray as xr

    from surefoot.study import Result


class Evidence:
    """What claims look at: convex studies, which run when they are asked for, and are kept in a folder if one is given;
    and the recorded numbers of the sweep on CIFAR-10, from the folder or from the package."""

    def __init__(self, folder: Path | None = None, sweeps: Mapping[str, xr.Dataset] | None = None) -> None:
        self._folder = folder
        self._results: dict[str, Result] = {}
        self.sweeps = cifar10.recorded(folder) if sweeps is None else sweeps
        """The numbers of the sweep in every size that was run, by preset, the most trusted first."""

    def __getitem__(self, name: str) -> Result:
        """The result of a convex experiment."""
        if name not in self._results:
            self._results[name] = experiments.run(name, self._folder)
        return self._results[name]


Verdict = Literal["holds", "fails", "not-run"]


class Finding(NamedTuple):
    """Whether a claim holds, and what its check measured, in words."""

    holds: bool | None
    """None: the runs that the rule needs are not there."""
    measured: str
    sweeps: dict[str, str] | None = None
    """What each size of the sweep on CIFAR-10 says, by preset, and what earlier rules said (``before``)."""


Check = Callable[[Any], Finding]


class Claim(NamedTuple):
    """A claim of the paper, the numeric rule that decides it, and the check that applies the rule.

    Rules are fixed before anything runs; a claim that fails is reported as failing.
    """

    id: str
    claim: str
    rule: str
    check: Check
    """Takes the :class:`Evidence`."""


@dataclass(frozen=True)
class Checked:
    """A claim with its rule, what was measured and the verdict."""

    id: str
    claim: str
    rule: str
    measured: str
    verdict: Verdict
    sweeps: dict[str, str] = field(default_factory=dict)
    """See :class:`Finding`."""


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


def all_claims() -> dict[str, Claim]:
    """Every claim by its id, in the paper's order."""
    return {name: claim for claims in SECTIONS.values() for name, claim in claims.items()}


def check(
    ids: Iterable[str] | None = None,
    *,
    folder: Path | None = None,
    progress: Tell | None = None,
    sweeps: Mapping[str, xr.Dataset] | None = None,
) -> list[Checked]:
    """Check the claims with these ids, or all.

    Args:
        ids: Which; None means all.
        folder: Where the studies are kept, to be found again.
        progress: True for a bar, or a function of (claims done, all).
        sweeps: The sweep on CIFAR-10 in place of what is recorded, by preset.
    """
    known = all_claims()
    chosen = [known[one_of("claim", name, known)] for name in (known if ids is None else ids)]
    evidence = Evidence(folder, sweeps)
    checked: list[Checked] = []
    with reporter(progress, total=len(chosen), unit="claims") as tell:
        for claim in chosen:
            try:
                found = claim.check(evidence)
            except ImportError as missing:  # an extra that is not installed; the message says which
                found = Finding(None, str(missing))
            verdict: Verdict = "not-run" if found.holds is None else "holds" if found.holds else "fails"
            checked.append(Checked(claim.id, claim.claim, claim.rule, found.measured, verdict, found.sweeps or {}))
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
