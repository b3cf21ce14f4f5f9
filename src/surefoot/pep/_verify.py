"""Verify many cases: cached results first, the others in a few worker processes."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from surefoot import pep, theory
from surefoot._base.arguments import one_of, whole
from surefoot._base.files import write_whole
from surefoot._base.processes import cores, done_in_processes
from surefoot._base.progress import Tell, reporter
from surefoot.pep import _one_step, _runs
from surefoot.pep._solver import Case, SolverError, WorstCase, versions

CACHE_VARIABLE = "SUREFOOT_PEP_CACHE"
"""A folder for the results, or ``off``."""
MOST_WORKERS = 4
WORTH_A_WORKER = 50
"""A worker takes some two seconds to import the solvers, as long as some fifty problems of the common size take."""


class Statement(NamedTuple):
    """A worst-case problem, and the cases that are verified by default."""

    function: Callable[..., WorstCase]
    cases: Sequence[Case]


def _grid(**values: Iterable[float | int | str]) -> list[Case]:
    """All combinations of some values."""
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def _horizons(horizons: tuple[int, ...], factors: tuple[float, ...]) -> list[Case]:
    """Cases with rates that are multiples of D/(G√T)."""
    return [
        {"lr": factor / steps**0.5, "steps": steps, "schedule": schedule}
        for steps, schedule, factor in itertools.product(horizons, ("constant", "inverse_sqrt", "linear"), factors)
    ]


_LIPSCHITZ, _RATES = (0.5, 1.0, 2.0), [float(rate) for rate in np.logspace(-2, 2, 25)]
_WHOLE, _TREES = _horizons((2, 4, 8), (0.25, 0.5, 1.0, 2.0, 4.0)), _horizons((2, 3), (0.5, 1.0, 2.0))
STATEMENTS: dict[str, Statement] = {
    "spp": Statement(
        _one_step.spp_index,
        _grid(lipschitz=_LIPSCHITZ, lr=_RATES),
    ),
    "spp-weakly-convex": Statement(
        _one_step.spp_index_weakly_convex,
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
    "average-iterate": Statement(
        _runs.average_iterate,
        _WHOLE,
    ),
    "stochastic-last-iterate": Statement(_runs.stochastic_last_iterate, _TREES),
    "stochastic-average-iterate": Statement(_runs.stochastic_average_iterate, _TREES),
    "average-rate": Statement(
        _runs.average_rate,
        [
            {"method": method, "lr": lr, "first": least + a * (1 - least), "second": least + b * (1 - least)}
            for lr in (0.75, 8.0)
            for method, least in (("sps", 0.5 / lr), ("ngn", 1 / (1 + lr)))  # no smaller scales with L = 1
            for a, b in ((0.1, 0.1), (0.1, 0.8), (0.4, 0.8))
        ],
    ),
    "interpolation-rate": Statement(
        _runs.interpolation_rate,
        _grid(lr=(0.75, 2.0, 10.0), steps=(1, 2, 3, 4)),
    ),
    "one-step-level": Statement(
        _one_step.one_step_level,
        _grid(method=_one_step.WITH_LEVEL, lr=(0.1, 1.0, 10.0), level=(-2.0, 0.0, 0.3, 0.9)),
    ),
    "last-iterate-level": Statement(
        _runs.last_iterate_level,
        _grid(lr=(1.0, 10.0), level=(2.0,), scale=(0.02, 0.3), price=_runs.PRICES),
    ),
}
"""Every statement by its name."""


def run(
    names: Iterable[str] | None = None,
    *,
    processes: int | None = None,
    progress: Tell | None = None,
    cache: bool | str | Path | None = None,
) -> list[WorstCase]:
    """Verify the registered cases of some statements, or of all.

    A case that no solver solved is among the results: ``worst_case`` is NaN, and ``failures`` say why.

    Args:
        names: Names in :data:`STATEMENTS`; None means all.
        processes: Worker processes. By default as many as pay off; 1 solves all problems here.
        progress: A bar (True), or a function of (cases done, all); by default a bar if a terminal is attached.
        cache: A folder for the results, or False; by default :data:`CACHE_VARIABLE` decides.

    Example:
        >>> results = run(["one-step"], processes=1, progress=False, cache=False)
        >>> len(results), all(result.agrees for result in results)
        (18, True)
    """
    chosen = [one_of("statement", name, STATEMENTS) for name in (STATEMENTS if names is None else names)]
    jobs = [(name, case) for name in chosen for case in STATEMENTS[name].cases]
    return verify(jobs, processes=processes, progress=progress, cache=cache)


def verify(
    jobs: Sequence[tuple[str, Case]],
    *,
    processes: int | None = None,
    progress: Tell | None = None,
    cache: bool | str | Path | None = None,
) -> list[WorstCase]:
    """Verify any cases, as pairs of a statement's name and its arguments; the rest is as for :func:`run`.

    >>> verify([("one-step", {"method": "ngn", "lr": 1.0})], cache=False)[0].checked().verdict
    'above'
    """
    if processes is not None:
        whole("processes", processes, 1)
    jobs = [(one_of("statement", name, STATEMENTS), _plain(case)) for name, case in jobs]
    folder = cache_folder(cache)
    paths = [None if folder is None else folder / _file_name(*job) for job in jobs]
    results = {place: found for place, path in enumerate(paths) if path and (found := _load(path)) is not None}
    missing = {place: (name, dict(case)) for place, (name, case) in enumerate(jobs) if place not in results}
    workers = processes or max(1, min(cores(), MOST_WORKERS, len(missing) // WORTH_A_WORKER))
    shown = sys.stderr.isatty() if progress is None else progress
    with reporter(shown, total=len(jobs), unit="worst cases") as tell:
        tell(len(results))
        try:
            for place, result in done_in_processes(_solve_one, missing, workers):
                results[place] = result
                if (path := paths[place]) is not None and not math.isnan(result.worst_case):
                    _store(path, result)
                tell(len(results))
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process ended before its problem was solved (out of memory?); processes=1 does without "
                "workers, and results so far are cached"
            ) from error
    return [results[place] for place in range(len(jobs))]


def _plain(case: Case) -> Case:
    """The case with numbers of NumPy as Python's, which can be stored."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in case.items()}


def _solve_one(name: str, case: Case) -> WorstCase:
    try:
        result = STATEMENTS[name].function(**case)
    except SolverError as error:
        return WorstCase(name, case, failures=(str(error),))
    return dataclasses.replace(result, parameters=case)  # without those that are not given


def cache_folder(choice: bool | str | Path | None = None) -> Path | None:
    """Where results are kept; None if they are not.

    ``False`` is nowhere, a path is itself; ``None`` asks ``$SUREFOOT_PEP_CACHE`` (a folder, or ``off``), and like
    ``True`` falls back to ``surefoot/pep`` in the user's cache folder.

    >>> cache_folder("results")
    PosixPath('results')
    """
    if choice is None:
        setting = os.environ.get(CACHE_VARIABLE, "").strip()
        choice = setting.lower() != "off" and (setting or True)
    if isinstance(choice, bool):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return home / "surefoot" / "pep" if choice else None
    return Path(choice).expanduser()


def _file_name(statement: str, case: Case) -> str:
    """The name of a result's file depends on everything that the result depends on."""
    content = {"statement": statement, "parameters": dict(case), "versions": versions(), "code": _code()}
    return f"{statement}-{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]}.json"


@once
def _code() -> str:
    """Digest of the code that the results depend on: this package and the theory."""
    digest = hashlib.sha256()
    for package in (pep, theory):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _load(path: Path) -> WorstCase | None:
    """The stored result; None if there is none, or the file is damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        result = WorstCase(**{**stored, "failures": tuple(stored["failures"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    are_numbers = isinstance(result.worst_case, float) and isinstance(result.theory, float)
    return result if are_numbers and result.status == "optimal" else None


def _store(path: Path, result: WorstCase) -> None:
    """Keep a result. A folder that cannot be written to costs the cache, not the result."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(dataclasses.asdict(result), indent=1, allow_nan=False), "a result", sync=False)


COLUMNS = ("statement", "case", "worst case", "theory", "theory/worst", "exact", "verdict", "solver")
SUMMARY_COLUMNS = ("statement", "cases", "agree", "theory/worst", "tight", "error of exact", "duality gap", "retried")


def table(results: Iterable[WorstCase]) -> list[tuple[str, ...]]:
    """The results as text, below a line of column names.

    >>> table([])[0][:3]
    ('statement', 'case', 'worst case')
    """
    return [COLUMNS, *(_cells(result) for result in results)]


def _cells(result: WorstCase) -> tuple[str, ...]:
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in result.parameters.items()}
    case = " ".join(f"{name}={value}" for name, value in shown.items())
    if result.verdict == "not solved":
        return (result.statement, case, "–", "–", "–", "–", "not solved", "; ".join(result.failures))
    exact = "–" if result.exact is None else f"{result.exact:.6f}"
    verdict = result.verdict if result.agrees else f"{result.verdict} (unexpected)"
    solver = "; ".join((f"{result.solver}: {result.status}", *(f"after {failure}" for failure in result.failures)))
    numbers = (f"{result.worst_case:.6f}", f"{result.theory:.6f}", f"{result.ratio:.4f}", exact)
    return (result.statement, case, *numbers, verdict, solver)


def summary(results: Sequence[WorstCase]) -> list[tuple[str, ...]]:
    """One line per statement, below a line of column names.

    The columns say how many cases there are, how many of them agree with the theory, the range of theory/worst case,
    in how many cases theory is tight (within 1e-3), the largest relative distance of the worst case from its closed
    form, the largest difference of dual and primal value, and how many cases needed another solver.

    >>> summary([])
    [('statement', 'cases', 'agree', 'theory/worst', 'tight', 'error of exact', 'duality gap', 'retried')]
    """
    lines: list[tuple[str, ...]] = [SUMMARY_COLUMNS]
    by_name: Mapping[str, list[WorstCase]] = {result.statement: [] for result in results}
    for result in results:
        by_name[result.statement].append(result)
    for name, cases in by_name.items():
        count = (name, str(len(cases)), str(sum(result.agrees for result in cases)))
        solved: list[Any] = [result for result in cases if result.verdict != "not solved"]
        if not solved:
            lines.append((*count, *["–"] * 5))
            continue
        ratios = [result.ratio for result in solved]
        errors = [abs(result.worst_case / result.exact - 1.0) for result in solved if result.exact]
        tight = str(sum(result.verdict == "tight" for result in solved))
        error = f"{max(errors):.0e}" if errors else "–"
        gap = f"{max(abs(result.worst_case - result.attained) for result in solved):.0e}"
        retried = str(sum(bool(result.failures) for result in solved))
        lines.append((*count, f"{min(ratios):.4f} … {max(ratios):.4f}", tight, error, gap, retried))
    return lines
