"""From a problem to a number: two solvers, and what counts as an answer."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from surefoot import pep
from surefoot.pep import _solver, _verify
from surefoot.pep._solver import SMALL, attempts, new_problem, solve

STOPPED_EARLY = ("CLARABEL", {"max_iter": 2})
STOPPED_EARLY_TOO = ("SCS", {"eps": 1e-9, "max_iters": 2})


def solved(monkeypatch, tries=None, largest=4.0):
    """A problem with the answer ``largest``: the largest ‖g‖² below it; None for no bound."""
    if tries is not None:
        monkeypatch.setattr(_solver, "attempts", lambda accuracy: tries)
    with new_problem() as problem:
        from PEPit import Point

        gradient = Point()
        if largest is not None:
            problem.add_constraint(gradient**2 <= largest)
        problem.set_performance_metric(gradient**2)
        return solve(problem, "test", {}, 4.0, "equal")


def test_a_solved_problem_has_both_values_and_needs_no_second_solver(monkeypatch):
    found = solved(monkeypatch)
    assert (found.attained, found.worst_case) == pytest.approx((4, 4), rel=1e-6)
    assert (found.status, found.failures, found.agrees) == ("optimal", (), True)


def test_a_solver_that_stops_early_is_followed_by_the_other(monkeypatch):
    found = solved(monkeypatch, [STOPPED_EARLY, attempts(SMALL)[1]])
    assert (found.solver, found.worst_case) == ("SCS", pytest.approx(4, rel=1e-6))
    (failure,) = found.failures
    assert failure.startswith("CLARABEL: ")


def test_an_inaccurate_answer_is_no_answer(monkeypatch, capfd):
    with pytest.raises(pep.SolverError, match=r"CLARABEL: .*; SCS: optimal_inaccurate"):
        solved(monkeypatch, [STOPPED_EARLY, STOPPED_EARLY_TOO])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("largest", "status"), [(-1.0, "infeasible"), (None, "unbounded")])
def test_a_problem_without_a_finite_answer_raises_with_every_status(monkeypatch, largest, status):
    with pytest.raises(pep.SolverError, match=rf"CLARABEL: {status}.*SCS: {status}"):
        solved(monkeypatch, largest=largest)


def test_a_large_duality_gap_is_no_answer(monkeypatch):
    monkeypatch.setattr(_solver, "LARGEST_GAP", 0.0)
    with pytest.raises(pep.SolverError, match="duality gap"):
        solved(monkeypatch, [("SCS", {"eps": 1e-3})])


def test_threads_do_not_mix_their_problems():
    rates = [0.25, 0.5, 1.0, 2.0]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda lr: pep.spp_index(lr=lr, lipschitz=1.0), rates))
    assert [result.worst_case for result in found] == pytest.approx([0.125, 0.25, 0.5, 0.75], rel=1e-6)


@pytest.mark.parametrize("package", ["PEPit", "cvxpy"])
def test_a_missing_package_names_the_extra(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=re.escape("surefoot[pep]")) as raised:
        pep.spp_index(lr=1.0, lipschitz=1.0)
    assert package in str(raised.value)


def test_run_names_the_extra_before_any_work(monkeypatch):
    monkeypatch.setattr(_verify, "PACKAGES", ("no-such-package-at-all",))
    with pytest.raises(ImportError, match=re.escape("surefoot[pep]")):
        pep.run(["spp"], progress=False)
