"""What a claim is, and how all of them are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from surefoot.paper import experiments, presets
from surefoot.paper.summary import Summary, recorded, summarise
from surefoot.study import Result
from surefoot.theory.arguments import unknown

Verdict = Literal["holds", "fails", "not-run"]


class NotRun(Exception):
    """The runs that a claim needs are not here; the message says how to make them."""


class Sweep(NamedTuple):
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

    def __init__(self, folder: Path | None = None, sizes: Sequence[str] = ("paper", "medium", "small")) -> None:
        self._folder, self._sizes = folder, sizes
        self._results: dict[str, Result] = {}
        self._sweeps: dict[str, Sweep] = {}

    def __getitem__(self, name: str) -> Result:
        if name not in self._results:
            self._results[name] = experiments.run(name, self._folder)
        return self._results[name]

    def sweep(self, name: str) -> Sweep:
        """A sweep on a network: of the first preset of ``sizes`` that the folder holds, or else the package.

        Of one that is not finished, the methods and rates count all of whose runs are there, if these are enough
        to speak of a window.

        Raises:
            NotRun: There is none.
        """
        if name not in self._sweeps:
            self._sweeps[name] = self._found(name)
        return self._sweeps[name]

    def _found(self, name: str) -> Sweep:
        for preset in self._sizes:
            results = None if self._folder is None else presets.finished(name, preset, self._folder)
            if results is not None:
                return Sweep(preset, presets.sweep(name, preset), summarise(results))
        for preset in self._sizes:
            runs = recorded(name, preset)
            if runs is not None:
                return Sweep(preset, presets.sweep(name, preset), runs, recorded=True)
        command = f"surefoot reproduce {name} --preset {self._sizes[-1]} --out OUT"
        raise NotRun(f"run `{command}` first, then `surefoot claims --store OUT/studies`")


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
    check: Callable[[Evidence], Finding]
    """Where its runs or an extra are missing, the verdict is ``not-run``."""


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
    try:
        finding = claim.check(evidence)
    except (NotRun, ImportError) as missing:  # runs, or an extra that is not installed; the message says what to do
        return Checked(claim.id, claim.claim, claim.rule, str(missing), "not-run")
    return Checked(claim.id, claim.claim, claim.rule, finding.measured, "holds" if finding.holds else "fails")


@cache
def all_claims() -> dict[str, Claim]:
    """Every claim by its id, in the paper's order."""
    return {claim.id: claim for claims in _parts().values() for claim in claims}


def sections() -> dict[str, list[str]]:
    """The ids of all claims by what they are about.

    >>> list(sections())
    ['theory', 'stability indices', 'linear regression', 'logistic regression', 'ResNet20 on CIFAR-10']
    """
    return {section: [claim.id for claim in claims] for section, claims in _parts().items()}


def _parts() -> dict[str, tuple[Claim, ...]]:
    from surefoot.paper.claims import _indices, _logistic, _networks, _regression, _theory

    return {
        "theory": _theory.CLAIMS,
        "stability indices": _indices.CLAIMS,
        "linear regression": _regression.CLAIMS,
        "logistic regression": _logistic.CLAIMS,
        "ResNet20 on CIFAR-10": _networks.CLAIMS,
    }


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
