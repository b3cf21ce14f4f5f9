"""Many cases at once: the cache, and the text that is printed."""

import dataclasses
import json

import pytest

from surefoot import pep
from surefoot.pep import _verify

NGN, SPS = {"method": "ngn", "lr": 1.0}, {"method": "sps", "lr": 2.0}


@pytest.fixture(scope="module")
def result():
    return dataclasses.replace(pep.one_step_index(**NGN), parameters=NGN)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """A registry whose cases are solved in no time."""
    monkeypatch.setitem(pep.STATEMENTS, "one-step", pep.STATEMENTS["one-step"]._replace(cases=(NGN, SPS)))


def run():
    return pep.run(["one-step"], progress=False)


def test_run_returns_the_cases_in_order_and_counts_them():
    seen = []
    found = pep.run(["one-step"], progress=lambda done, total: seen.append((done, total)))
    assert [(each.parameters["method"], each.agrees) for each in found] == [("ngn", True), ("sps", True)]
    assert seen == [(1, 2), (2, 2)]


def test_what_is_wrong_is_refused_before_any_work():
    with pytest.raises(ValueError, match="did you mean 'one-step'"):
        pep.run(["spp", "one-stap"], progress=False)


def test_a_problem_that_nobody_solves_is_a_result_with_the_reason(monkeypatch):
    def failing(**case):
        raise pep.SolverError("CLARABEL: infeasible; SCS: infeasible")

    monkeypatch.setitem(pep.STATEMENTS, "one-step", pep.Statement(failing, (NGN,)))
    (found,) = run()
    assert (found.agrees, found.verdict, "infeasible" in found.failures[0]) == (False, "not solved", True)
    assert "not solved" in pep.table([found])[1]
    assert pep.summary([found])[1] == ("one-step", "1", "0", "–", "–", "–", "–", "–")
    with pytest.raises(pep.SolverError, match="infeasible"):
        found.checked()


class TestCache:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv(pep.CACHE_VARIABLE, str(tmp_path / "kept"))
        return tmp_path / "kept"

    def test_stored_results_are_taken(self, folder, result):
        assert run()[0] == result
        for path in folder.iterdir():
            path.write_text(json.dumps({**json.loads(path.read_text()), "solver": "nobody"}))
        assert {each.solver for each in run()} == {"nobody"}

    def test_other_parameters_or_versions_have_another_file(self, folder, monkeypatch):
        run()
        assert len(list(folder.iterdir())) == 2
        monkeypatch.setattr(_verify.metadata, "version", lambda package: "0.0")
        run()
        assert len(list(folder.iterdir())) == 4

    @pytest.mark.parametrize("text", ["", "[]", '{"worst_case": 1.0}'])
    def test_a_damaged_file_counts_as_missing(self, folder, result, text):
        run()
        for path in folder.iterdir():
            path.write_text(text)
        assert run()[0] == result

    def test_a_folder_that_cannot_be_made_costs_only_the_cache(self, folder, result):
        folder.write_text("")
        assert run()[0] == result

    @pytest.mark.parametrize("setting", ["", "off", " OFF "])
    def test_the_folder_is_the_users_cache_unless_it_is_off(self, monkeypatch, tmp_path, setting):
        monkeypatch.setenv(pep.CACHE_VARIABLE, setting)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        run()
        assert (tmp_path / "surefoot" / "pep").exists() is not bool(setting)


def test_a_case_is_a_line_that_marks_what_was_not_expected(result):
    wrong = dataclasses.replace(result, exact=0.5)
    header, *lines = pep.table([result, wrong, dataclasses.replace(result, failures=("CLARABEL: user_limit",))])
    assert lines[0][:4] == ("one-step", "method=ngn lr=1", "0.555556", "0.333333")
    assert len(lines[0]) == len(header)
    assert "unexpected" in lines[1][6]
    assert "after CLARABEL: user_limit" in lines[2][-1]


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
def test_every_registered_case_agrees(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv(pep.CACHE_VARIABLE, "off")
    assert [line for line in pep.table(pep.run(progress=False)) if "unexpected" in line[6]] == []
