"""Many cases at once: workers, the cache, and the text that is printed."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from surefoot import pep
from surefoot.pep import _verify

NGN = ("one-step", {"method": "ngn", "lr": 1.0})
SPS = ("one-step", {"method": "sps", "lr": 2.0})


@pytest.fixture(scope="module")
def result():
    return dataclasses.replace(pep.one_step_index(method="ngn", lr=1.0), parameters=NGN[1])


@pytest.fixture
def few(monkeypatch):
    """A registry whose cases are solved in no time."""
    statement = pep.STATEMENTS["one-step"]._replace(cases=(NGN[1], SPS[1]))
    monkeypatch.setitem(pep.STATEMENTS, "one-step", statement)


@pytest.mark.usefixtures("few")
def test_run_returns_the_cases_in_order_and_counts_them():
    seen = []
    found = pep.run(["one-step"], progress=lambda done, total: seen.append((done, total)))
    assert [(each.parameters["method"], each.agrees) for each in found] == [("ngn", True), ("sps", True)]
    assert seen == [(1, 2), (2, 2)]


def test_what_is_wrong_is_refused_before_any_work():
    with pytest.raises(ValueError, match="did you mean 'one-step'"):
        pep.run(["spp", "one-stap"], progress=False)
    with pytest.raises(ValueError, match=r"statement must be one of .*, got 'nope'"):
        pep.verify([("nope", {})], progress=False)
    for processes in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="processes"):
            pep.run(["spp"], processes=processes)


def test_the_figure_of_lambda_has_three_constants_and_25_rates():
    cases = pep.STATEMENTS["spp"].cases
    assert len({case["lipschitz"] for case in cases}) == 3
    assert len({case["lr"] for case in cases}) == 25


def test_a_problem_that_nobody_solves_is_a_result_with_the_reason(monkeypatch):
    def failing(**case):
        raise pep.SolverError("CLARABEL: infeasible; SCS: infeasible")

    statement = pep.STATEMENTS["one-step"]._replace(cases=(NGN[1],), function=failing)
    monkeypatch.setitem(pep.STATEMENTS, "one-step", statement)
    (found,) = pep.run(["one-step"], progress=False)
    assert (found.agrees, found.verdict, "infeasible" in found.failures[0]) == (False, "not solved", True)
    assert "not solved" in pep.table([found])[1]
    assert pep.summary([found])[1] == ("one-step", "1", "0", "–", "–", "–", "–", "–")
    with pytest.raises(pep.SolverError, match="infeasible"):
        found.checked()


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory):
    """What a script prints that solves two cases with two workers, without a guard around it."""
    script = tmp_path_factory.mktemp("script") / "unguarded.py"
    script.write_text(f"""import json, sys
from surefoot import pep
loaded = [name for name in ("PEPit", "cvxpy", "torch") if name in sys.modules]
found = pep.verify({[NGN, SPS]!r}, processes=2, cache=False, progress=False)
print(json.dumps([loaded, [each.worst_case for each in found]]))
""")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_workers_of_a_script_without_a_guard_give_the_results_of_this_process(unguarded):
    alone = pep.verify([NGN, SPS], processes=1, cache=False, progress=False)
    assert unguarded[1] == [each.worst_case for each in alone]


def test_import_loads_no_solver(unguarded):
    assert unguarded[0] == []


class TestCache:
    def test_a_stored_result_is_taken(self, tmp_path, result):
        (first,) = pep.verify([NGN], cache=tmp_path, progress=False)
        assert first == result
        (path,) = tmp_path.iterdir()
        path.write_text(json.dumps({**json.loads(path.read_text()), "solver": "nobody"}))
        assert pep.verify([NGN], cache=tmp_path, progress=False)[0].solver == "nobody"

    def test_other_parameters_or_versions_have_another_file(self, tmp_path, monkeypatch):
        pep.verify([NGN, SPS, ("one-step", {"method": "ngn", "lr": np.float64(1.0)})], cache=tmp_path, progress=False)
        assert len(list(tmp_path.iterdir())) == 2
        monkeypatch.setattr(_verify, "versions", lambda: {"PEPit": "0.0"})
        pep.verify([NGN], cache=tmp_path, progress=False)
        assert len(list(tmp_path.iterdir())) == 3

    @pytest.mark.parametrize("text", ["", "[]", '{"worst_case": 1.0}', "inaccurate"])
    def test_a_damaged_or_inaccurate_file_counts_as_missing(self, tmp_path, result, text):
        pep.verify([NGN], cache=tmp_path, progress=False)
        (path,) = tmp_path.iterdir()
        inaccurate = json.dumps({**json.loads(path.read_text()), "status": "optimal_inaccurate"})
        path.write_text(inaccurate if text == "inaccurate" else text)
        assert pep.verify([NGN], cache=tmp_path, progress=False) == [result]

    def test_a_folder_that_cannot_be_made_costs_only_the_cache(self, tmp_path, result):
        (tmp_path / "file").write_text("")
        assert pep.verify([NGN], cache=tmp_path / "file" / "below", progress=False) == [result]

    def test_the_folder_is_the_users_cache_or_that_of_the_variable(self, monkeypatch, tmp_path):
        monkeypatch.delenv(pep.CACHE_VARIABLE)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert _verify.cache_folder() == _verify.cache_folder(True) == tmp_path / "surefoot" / "pep"
        for value, expected in (("off", None), (" OFF ", None), (str(tmp_path), tmp_path)):
            monkeypatch.setenv(pep.CACHE_VARIABLE, value)
            assert _verify.cache_folder() == expected


def test_a_case_is_a_line_that_marks_what_was_not_expected(result):
    header, line, wrong, second = pep.table(
        [
            result,
            dataclasses.replace(result, exact=0.5),
            dataclasses.replace(result, failures=("CLARABEL: user_limit",)),
        ]
    )
    assert line[:4] == ("one-step", "method=ngn lr=1", "0.555556", "0.333333")
    assert len(line) == len(header)
    assert "unexpected" in wrong[6]
    assert "after CLARABEL: user_limit" in second[-1]


def test_summary_has_one_line_per_statement(result):
    header, line = pep.summary([result, result])
    assert dict(zip(header, line, strict=True))["agree"] == "2"


@pytest.mark.parametrize(
    ("worst", "relation", "agrees"),
    [
        (1.0, "equal", True),
        (0.99, "equal", False),
        (0.99, "at most", True),
        (1.01, "at most", False),
        (1.01, "above", True),
        (1.0, "above", False),
        (float("nan"), "at most", False),
    ],
)
def test_agreement_is_that_of_the_relation(result, worst, relation, agrees):
    found = dataclasses.replace(result, worst_case=worst, theory=1.0, exact=None, relation=relation)
    assert found.agrees is agrees


@pytest.mark.slow
def test_every_registered_case_agrees():
    assert [line for line in pep.table(pep.run(progress=False)) if "unexpected" in line[6]] == []
