import importlib.util
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from surefoot import pep
from surefoot.pep import _solver
from surefoot.pep._solver import SMALL, attempts, solve

STOPPED_EARLY = ("CLARABEL", {"max_iter": 2})
STOPPED_EARLY_TOO = ("SCS", {"eps": 1e-9, "max_iters": 2})


def gradient_norm(problem):
    """A problem with the answer 4: the largest ‖g‖² below 4."""
    from PEPit.functions import ConvexFunction

    function = problem.declare_function(ConvexFunction)
    gradient, _ = function.oracle(problem.set_initial_point())
    problem.add_constraint(gradient**2 <= 4)
    problem.set_performance_metric(gradient**2)
    return {"halved": gradient**2 / 2}


def infeasible(problem):
    from PEPit.functions import ConvexFunction

    function = problem.declare_function(ConvexFunction)
    gradient, _ = function.oracle(problem.set_initial_point())
    problem.add_constraint(gradient**2 <= -1)
    problem.set_performance_metric(gradient**2)
    return {}


def unbounded(problem):
    from PEPit.functions import ConvexFunction

    function = problem.declare_function(ConvexFunction)
    gradient, _ = function.oracle(problem.set_initial_point())
    problem.set_performance_metric(gradient**2)
    return {}


def test_a_solved_problem_has_both_values_and_its_instance():
    found = solve(gradient_norm, attempts(SMALL))
    assert (found.attained, found.worst_case, found.instance["halved"]) == pytest.approx((4, 4, 2), rel=1e-6)


def test_the_first_solver_needs_no_second():
    assert solve(gradient_norm, attempts(SMALL)).failures == ()


@pytest.mark.parametrize("solver", [0, 1])
def test_each_solver_alone_solves(solver):
    assert solve(gradient_norm, attempts(SMALL)[solver : solver + 1]).worst_case == pytest.approx(4, rel=1e-6)


def test_a_solver_that_stops_early_is_followed_by_the_other():
    found = solve(gradient_norm, [STOPPED_EARLY, attempts(SMALL)[1]])
    assert found.solver == "SCS"
    assert found.worst_case == pytest.approx(4, rel=1e-6)
    assert len(found.failures) == 1
    assert found.failures[0].startswith("CLARABEL: ")


def test_an_inaccurate_answer_is_no_answer():
    with pytest.raises(pep.SolverError, match=r"CLARABEL: .*; SCS: optimal_inaccurate"):
        solve(gradient_norm, [STOPPED_EARLY, STOPPED_EARLY_TOO])


@pytest.mark.parametrize(("build", "status"), [(infeasible, "infeasible"), (unbounded, "unbounded")])
def test_a_problem_without_a_finite_answer_raises_with_every_status(build, status):
    with pytest.raises(pep.SolverError, match=rf"CLARABEL: {status}.*SCS: {status}"):
        solve(build, attempts(SMALL))


@pytest.mark.skipif(importlib.util.find_spec("mosek") is not None, reason="MOSEK is installed here")
def test_a_solver_that_is_not_installed_counts_as_failed():
    found = solve(gradient_norm, [("MOSEK", {}), attempts(SMALL)[0]])
    assert (found.solver, found.failures[0].split(":")[0]) == ("CLARABEL", "MOSEK")


def test_a_large_duality_gap_is_no_answer(monkeypatch):
    monkeypatch.setattr(_solver, "LARGEST_GAP", 0.0)
    with pytest.raises(pep.SolverError, match="duality gap"):
        solve(gradient_norm, [("SCS", {"eps": 1e-3})])


def test_nothing_is_printed(capfd):
    with pytest.raises(pep.SolverError):
        solve(unbounded, [STOPPED_EARLY, STOPPED_EARLY_TOO])
    assert capfd.readouterr() == ("", "")


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
    monkeypatch.setattr(_solver, "PACKAGES", ("no-such-package-at-all",))
    with pytest.raises(ImportError, match=re.escape("surefoot[pep]")):
        pep.run(["spp"], progress=False)
