"""Verify the registered cases of all statements; what was solved is kept in a cache."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

from surefoot import pep, theory
from surefoot._base.arguments import one_of
from surefoot._base.files import write_whole
from surefoot._base.missing import missing
from surefoot._base.progress import Tell, reporter
from surefoot.data import folders
from surefoot.pep import _one_step, _runs
from surefoot.pep._solver import PACKAGES, Case, SolverError, WorstCase

CACHE_VARIABLE = "SUREFOOT_PEP_CACHE"
"""A folder for the results, or ``off``."""


class Statement(NamedTuple):
    """A worst-case problem, and the cases that are verified."""

    function: Callable[..., WorstCase]
    cases: Sequence[Case]


def _grid(**values: Iterable[float | int | str]) -> list[Case]:
    """All combinations of some values."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def _horizons(horizons: tuple[int, ...], factors: tuple[float, ...]) -> list[Case]:
    """Cases with rates that are multiples of D/(G√T)."""
    return [
        {"lr": factor / steps**0.5, "steps": steps, "schedule": schedule}
        for steps, schedule, factor in itertools.product(horizons, ("constant", "inverse_sqrt", "linear"), factors)
    ]


_LIPSCHITZ, _RATES = (0.5, 1.0, 2.0), [float(rate) for rate in np.logspace(-2, 2, 25)]
_WHOLE, _TREES = _horizons((2, 4, 8), (0.25, 0.5, 1.0, 2.0, 4.0)), _horizons((2, 3), (0.5, 1.0, 2.0))
STATEMENTS: dict[str, Statement] = {
    "spp": Statement(_one_step.spp_index, _grid(lipschitz=_LIPSCHITZ, lr=_RATES)),
    "spp-weakly-convex": Statement(
        _one_step.spp_index,
        [
            {"lipschitz": lipschitz, "weak_convexity": eta, "lr": product / eta}
            for lipschitz, eta, product in itertools.product(_LIPSCHITZ, (0.1, 1.0, 10.0), (0.01, 0.1, 0.5, 0.9))
        ],
    ),
    "one-step": Statement(
        _one_step.one_step_index,
        _grid(method=_one_step.METHODS, lr=(0.1, 1.0, 10.0, 100.0))
        + _grid(method=_one_step.METHODS, lr=(0.01, 1.0), loss=(0.5,), grad_sq=(4.0,)),
    ),
    "last-iterate": Statement(_runs.last_iterate, _WHOLE),
    "average-iterate": Statement(_runs.average_iterate, _WHOLE),
    "stochastic-last-iterate": Statement(partial(_runs.last_iterate, losses=2), _TREES),
    "stochastic-average-iterate": Statement(partial(_runs.average_iterate, losses=2), _TREES),
    "average-rate": Statement(
        _runs.average_rate,
        [
            {"method": method, "lr": lr, "first": least + a * (1 - least), "second": least + b * (1 - least)}
            for lr in (0.75, 8.0)
            for method, least in (("sps", 0.5 / lr), ("ngn", 1 / (1 + lr)))  # no smaller scales with L = 1
            for a, b in ((0.1, 0.1), (0.1, 0.8), (0.4, 0.8))
        ],
    ),
    "interpolation-rate": Statement(_runs.interpolation_rate, _grid(lr=(0.75, 2.0, 10.0), steps=(1, 2, 3, 4))),
    "one-step-level": Statement(
        _one_step.one_step_index,
        _grid(method=("sps", "ngn"), lr=(0.1, 1.0, 10.0), level=(-2.0, 0.0, 0.3, 0.9)),
    ),
    "last-iterate-level": Statement(
        _runs.last_iterate_level,
        _grid(lr=(1.0, 10.0), level=(2.0,), scale=(0.02, 0.3), price=_runs.PRICES),
    ),
}
"""Every statement by its name."""


def run(names: Iterable[str] | None = None, *, progress: Tell | None = None) -> list[WorstCase]:
    """Verify the registered cases of some statements, or of all.

    A case that no solver solved is among the results: ``worst_case`` is NaN, and ``failures`` say why. Solved ones are
    kept as JSON in ``surefoot/pep`` of the user's cache folder, or where :data:`CACHE_VARIABLE` says.

    Args:
        names: Names in :data:`STATEMENTS`; None means all.
        progress: A bar (True), or a function of (cases done, all); by default a bar if a terminal is attached.

    >>> results = run(["one-step"], progress=False)
    >>> len(results), all(result.agrees for result in results)
    (18, True)
    """
    chosen = [one_of("statement", name, STATEMENTS) for name in (STATEMENTS if names is None else names)]
    jobs = [(name, case) for name in chosen for case in STATEMENTS[name].cases]
    folder, key = _cache_folder(), _key()
    results: list[WorstCase] = []
    shown = sys.stderr.isatty() if progress is None else progress
    with reporter(shown, total=len(jobs), unit="worst cases") as tell:
        for name, case in jobs:
            results.append(_cached(folder, key, name, case))
            tell(len(results))
    return results


def _cached(folder: Path | None, key: str, name: str, case: Case) -> WorstCase:
    """The stored result, or else a new one, which is stored if the problem was solved."""
    content = json.dumps([key, name, dict(case)], sort_keys=True)
    path = None if folder is None else folder / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:24]}.json"
    if path is not None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # there is none, or it is damaged
            stored = json.loads(path.read_text(encoding="utf-8"))
            return WorstCase(**{**stored, "failures": tuple(stored["failures"])})
    try:
        result = dataclasses.replace(STATEMENTS[name].function(**case), parameters=case)
    except SolverError as error:
        return WorstCase(name, case, failures=(str(error),))
    if path is not None:
        with contextlib.suppress(OSError):  # a folder that cannot be written to costs the cache, not the result
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(dataclasses.asdict(result), indent=1, allow_nan=False), "a result", sync=False)
    return result


def _cache_folder() -> Path | None:
    """Where results are kept; None if they are not."""
    setting = os.environ.get(CACHE_VARIABLE, "").strip()
    return None if setting.lower() == "off" else Path(setting).expanduser() if setting else folders()[-1] / "pep"


def _key() -> str:
    """Digest of what all results depend on: the solvers' versions, the code of this package and the theory."""
    try:
        digest = hashlib.sha256(repr([metadata.version(package) for package in PACKAGES]).encode())
    except metadata.PackageNotFoundError as error:
        raise missing("worst-case verification", f"{error.name} is not installed", "pep") from error
    for package in (pep, theory):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


COLUMNS = ("statement", "case", "worst case", "theory", "theory/worst", "exact", "verdict", "solver")
SUMMARY_COLUMNS = ("statement", "cases", "agree", "theory/worst", "tight", "error of exact", "duality gap", "retried")


def table(results: Iterable[WorstCase]) -> list[tuple[str, ...]]:
    """The results as text, below a line of column names.

    >>> table([])[0][:3]
    ('statement', 'case', 'worst case')
    """
    lines: list[tuple[str, ...]] = [COLUMNS]
    for result in results:
        texts = {name: f"{v:.4g}" if isinstance(v, float) else str(v) for name, v in result.parameters.items()}
        first = (result.statement, " ".join(f"{name}={text}" for name, text in texts.items()))
        if result.verdict == "not solved":
            lines.append((*first, "–", "–", "–", "–", "not solved", "; ".join(result.failures)))
            continue
        exact = "–" if result.exact is None else f"{result.exact:.6f}"
        verdict = result.verdict if result.agrees else f"{result.verdict} (unexpected)"
        solver = "; ".join((f"{result.solver}: {result.status}", *(f"after {failure}" for failure in result.failures)))
        numbers = (f"{result.worst_case:.6f}", f"{result.theory:.6f}", f"{result.ratio:.4f}")
        lines.append((*first, *numbers, exact, verdict, solver))
    return lines


def summary(results: Iterable[WorstCase]) -> list[tuple[str, ...]]:
    """One line per statement, below a line of column names.

    The columns say how many cases there are, how many of them agree with the theory, the range of theory/worst case,
    in how many cases theory is tight (within 1e-3), the largest relative distance of the worst case from its closed
    form, the largest difference of dual and primal value, and how many cases needed another solver.

    >>> summary([])
    [('statement', 'cases', 'agree', 'theory/worst', 'tight', 'error of exact', 'duality gap', 'retried')]
    """
    lines: list[tuple[str, ...]] = [SUMMARY_COLUMNS]
    by_name: dict[str, list[WorstCase]] = {}
    for result in results:
        by_name.setdefault(result.statement, []).append(result)
    for name, cases in by_name.items():
        count = (name, str(len(cases)), str(sum(result.agrees for result in cases)))
        solved = [result for result in cases if result.verdict != "not solved"]
        if not solved:
            lines.append((*count, *["–"] * 5))
            continue
        ratios = [result.ratio for result in solved]
        errors = [abs(result.worst_case / result.exact - 1.0) for result in solved if result.exact]
        tight = str(sum(result.verdict == "tight" for result in solved))
        retried = str(sum(bool(result.failures) for result in solved))
        gap = max(abs(result.worst_case - result.attained) for result in solved)
        error = f"{max(errors):.0e}" if errors else "–"
        lines.append((*count, f"{min(ratios):.4f} … {max(ratios):.4f}", tight, error, f"{gap:.0e}", retried))
    return lines
