"""What a claim is, and how all of them are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from surefoot.figures import experiments
from surefoot.study import Result
from surefoot.theory._names import unknown

Verdict = Literal["holds", "fails", "not-run"]


class Evidence:
    """The studies that claims look at; each runs once, and is kept in a folder if one is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._results: dict[str, Result] = {}

    def __getitem__(self, name: str) -> Result:
        if name not in self._results:
            self._results[name] = experiments.run(name, self._folder)
        return self._results[name]


class Finding(NamedTuple):
    """What a check saw."""

    holds: bool
    measured: str
    """The numbers, in words."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the numeric rule that decides it, and the check that applies the rule.

    Rules are fixed before anything runs; a claim that fails is reported as failing.
    """

    id: str
    claim: str
    rule: str
    check: Callable[[Evidence], Finding] | None
    """None where the runs do not exist here; then, and where an extra is missing, the verdict is ``not-run``."""


@dataclass(frozen=True)
class Checked:
    """A row of the table."""

    id: str
    claim: str
    rule: str
    measured: str
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def judge(claim: Claim, evidence: Evidence) -> Checked:
    """Apply a claim's rule."""
    if claim.check is None:
        return Checked(claim.id, claim.claim, claim.rule, "", "not-run")
    try:
        finding = claim.check(evidence)
    except ImportError as missing:  # an extra that is not installed; the message names it
        return Checked(claim.id, claim.claim, claim.rule, str(missing), "not-run")
    return Checked(claim.id, claim.claim, claim.rule, finding.measured, "holds" if finding.holds else "fails")


@cache
def all_claims() -> dict[str, Claim]:
    """Every claim by its id, in the paper's order."""
    from surefoot.claims import _indices, _logistic, _regression, _theory

    return {claim.id: claim for part in (_theory, _indices, _regression, _logistic) for claim in part.CLAIMS}


def check(
    ids: Iterable[str] | None = None,
    *,
    folder: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Checked]:
    """Check the claims with these ids, or all.

    Args:
        ids: Which; None means all.
        folder: Where the studies are kept, to be found again.
        progress: Told how many are done, how many there are, and the next one's id.
    """
    known = all_claims()
    chosen = list(known if ids is None else ids)
    for name in chosen:
        if name not in known:
            raise unknown("claim", name, known)
    evidence = Evidence(folder)
    rows = []
    for position, name in enumerate(chosen):
        if progress is not None:
            progress(position, len(chosen), name)
        rows.append(judge(known[name], evidence))
    return rows
