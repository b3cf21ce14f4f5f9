"""Verify many statements: cached results first, the others in a few worker processes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from surefoot._base.arguments import one_of, whole
from surefoot._base.processes import cores, done_in_processes
from surefoot._base.progress import Tell, reporter
from surefoot.pep._cache import Cache, folder
from surefoot.pep._solver import SolverError
from surefoot.pep._statement import STATEMENTS, Case, Verification

Job = tuple[str, Case]
"""Name of a statement, and the arguments of its function."""

MOST_WORKERS = 4
WORTH_A_WORKER = 50
"""A worker takes some two seconds to import the solvers, as long as some fifty problems of the common size take."""


@dataclass(frozen=True)
class Row:
    """One verified case, or one that no solver solved (``result`` is None, and ``error`` says why)."""

    name: str
    parameters: Case
    result: Verification | None
    error: str = ""

    COLUMNS = ("statement", "case", "worst case", "theory", "theory/worst", "exact", "verdict", "solver")

    @property
    def ok(self) -> bool:
        """Whether the case was solved and agrees with the theory."""
        return self.result is not None and self.result.agrees

    def verified(self) -> Verification:
        """The result, for callers that need one.

        Raises:
            SolverError: No solver solved the case.
        """
        if self.result is None:
            raise SolverError(f"{self.name} {dict(self.parameters)}: {self.error}")
        return self.result

    def cells(self) -> tuple[str, ...]:
        """The row as text, one entry for each of ``COLUMNS``."""
        case = " ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                        for name, value in self.parameters.items())  # fmt: skip
        result = self.result
        if result is None:
            return (self.name, case, "–", "–", "–", "–", "not solved", self.error)
        exact = "–" if result.exact is None else f"{result.exact:.6f}"
        verdict = result.verdict if result.agrees else f"{result.verdict} (unexpected)"
        solver = "; ".join((f"{result.solver}: {result.status}", *(f"after {failure}" for failure in result.failures)))
        numbers = (f"{result.worst_case:.6f}", f"{result.theory:.6f}", f"{result.ratio:.4f}", exact)
        return (self.name, case, *numbers, verdict, solver)


SUMMARY_COLUMNS = ("statement", "cases", "agree", "theory/worst", "tight", "error of exact", "duality gap", "retried")


def run(
    names: Iterable[str] | None = None,
    *,
    processes: int | None = None,
    progress: Tell | None = None,
    cache: bool | str | Path | None = None,
) -> list[Row]:
    """Verify the statements of these names (default: all) on their registered cases; the rows are in that order.

    Args:
        names: Keys of ``STATEMENTS``.
        processes: Worker processes, each of which solves one problem at a time; 1 solves in this process. Default: as
            many as there are cores, at most four, and fewer for few problems. With more than one, a script must guard
            its start with ``if __name__ == "__main__":``.
        progress: Called with the number of cases done and their total whenever one is done. ``None`` shows a bar if
            standard error is a terminal, ``True`` always, ``False`` never.
        cache: A folder for results, ``False`` for none, ``None`` for the default of the user
            (``$SUREFOOT_PEP_CACHE``, or ``surefoot/pep`` in the cache folder).

    Raises:
        ImportError: The extra ``surefoot[pep]`` is not installed.
        ValueError: A name is not known, or ``processes`` is not a positive number.

    Example:
        >>> rows = run(["one-step"], processes=1, progress=False, cache=False)
        >>> len(rows), all(row.ok for row in rows)
        (18, True)
    """
    chosen = [one_of("statement", name, STATEMENTS) for name in (STATEMENTS if names is None else names)]
    jobs = [(name, case) for name in chosen for case in STATEMENTS[name].cases]
    return verify(jobs, processes=processes, progress=progress, cache=cache)


def verify(
    jobs: Sequence[Job],
    *,
    processes: int | None = None,
    progress: Tell | None = None,
    cache: bool | str | Path | None = None,
) -> list[Row]:
    """Verify any cases, as pairs of a statement's name and its arguments; the rest is as for :func:`run`.

    >>> verify([("one-step", {"method": "ngn", "lr": 1.0})], cache=False)[0].verified().verdict
    'above'
    """
    if processes is not None:
        whole("processes", processes, 1)
    jobs = [(one_of("statement", name, STATEMENTS), _plain(case)) for name, case in jobs]
    store = Cache(folder(cache))
    known = {index: store.load(*job) for index, job in enumerate(jobs)}
    rows = {index: Row(*jobs[index], result) for index, result in known.items() if result is not None}
    missing = {index: (name, dict(case)) for index, (name, case) in enumerate(jobs) if index not in rows}
    shown = sys.stderr.isatty() if progress is None else progress
    with reporter(shown, total=len(jobs), unit="worst cases") as tell:
        tell(len(rows))
        try:
            for index, row in done_in_processes(_solve_one, missing, processes or _default_processes(len(missing))):
                rows[index] = row
                if row.result is not None:
                    store.store(row.parameters, row.result)
                tell(len(rows))
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process ended before its problem was solved (out of memory?); processes=1 does without "
                "workers, and results so far are cached"
            ) from error
    return [rows[index] for index in range(len(jobs))]


def _plain(case: Case) -> Case:
    """The case with numbers of NumPy as Python's, which can be stored."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in case.items()}


def _default_processes(problems: int) -> int:
    return max(1, min(cores(), MOST_WORKERS, problems // WORTH_A_WORKER))


def _solve_one(name: str, case: Case) -> Row:
    try:
        return Row(name, case, STATEMENTS[name].function(**case))
    except SolverError as error:
        return Row(name, case, None, str(error))


def table(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """The rows as text, below a line of column names.

    >>> table([])[0][:3]
    ('statement', 'case', 'worst case')
    """
    return [Row.COLUMNS, *(row.cells() for row in rows)]


def summary(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """One line a statement, below a line of column names.

    The columns say how many cases there are, how many of them agree with the theory, the range of theory/worst case,
    in how many cases theory is tight (within 1e-3), the largest relative distance of the worst case from its closed
    form, the largest difference of dual and primal value, and how many cases needed another solver.

    >>> summary([])
    [('statement', 'cases', 'agree', 'theory/worst', 'tight', 'error of exact', 'duality gap', 'retried')]
    """
    lines: list[tuple[str, ...]] = [SUMMARY_COLUMNS]
    for name in dict.fromkeys(row.name for row in rows):
        cases = [row for row in rows if row.name == name]
        results = [row.result for row in cases if row.result is not None]
        agree = str(sum(row.ok for row in cases))
        if not results:
            lines.append((name, str(len(cases)), agree, *["–"] * 5))
            continue
        ratios = [result.ratio for result in results]
        errors = [abs(result.worst_case / result.exact - 1.0) for result in results if result.exact]
        tight = str(sum(result.verdict == "tight" for result in results))
        retried = str(sum(bool(result.failures) for result in results))
        error, gap = f"{max(errors):.0e}" if errors else "–", f"{max(result.gap for result in results):.0e}"
        lines.append(
            (name, str(len(cases)), agree, f"{min(ratios):.4f} … {max(ratios):.4f}", tight, error, gap, retried)
        )
    return lines
