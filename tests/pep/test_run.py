import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from surefoot import pep
from surefoot.pep import _run

NGN = ("one-step", {"method": "ngn", "lr": 1.0})
SPS = ("one-step", {"method": "sps", "lr": 2.0})


@pytest.fixture(scope="module")
def result():
    return pep.one_step_index(method="ngn", lr=1.0)


@pytest.fixture
def few(monkeypatch):
    """A registry whose cases are solved in no time."""
    statement = dataclasses.replace(pep.STATEMENTS["one-step"], cases=(NGN[1], SPS[1]))
    monkeypatch.setitem(pep.STATEMENTS, "one-step", statement)


@pytest.mark.usefixtures("few")
def test_run_returns_one_row_a_case_in_order():
    rows = pep.run(["one-step"], progress=False)
    assert [(row.parameters["method"], row.ok) for row in rows] == [("ngn", True), ("sps", True)]


@pytest.mark.usefixtures("few")
def test_progress_counts_to_the_end():
    seen = []
    pep.run(["one-step"], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.usefixtures("few")
def test_a_progress_bar_goes_to_standard_error(capfd):
    pep.run(["one-step"], progress=True)
    out, err = capfd.readouterr()
    assert (out, "worst cases" in err) == ("", True)


def test_unknown_names_are_refused_before_any_work():
    with pytest.raises(ValueError, match="did you mean 'one-step'"):
        pep.run(["spp", "one-stap"], progress=False)


def test_cases_of_unknown_statements_are_refused():
    with pytest.raises(ValueError, match=r"statement must be one of .*, got 'nope'"):
        pep.verify([("nope", {})], progress=False)


def test_numbers_of_numpy_in_cases_are_stored_as_python_s(tmp_path):
    first, second = (
        pep.verify([("last-iterate", {"lr": 1.0, "steps": steps})], processes=1, progress=False, cache=tmp_path)[0]
        for steps in (np.int64(1), 1)
    )
    assert first == second


@pytest.mark.parametrize("processes", [0, -1, 1.5, True])
def test_processes_must_be_a_positive_number(processes):
    with pytest.raises(ValueError, match="processes"):
        pep.run(["spp"], processes=processes)


def test_every_statement_has_a_name_a_description_and_cases():
    for name, statement in pep.STATEMENTS.items():
        assert statement.name == name
        assert statement.description
        assert statement.cases


def test_the_figure_of_lambda_has_three_constants_and_25_rates():
    cases = pep.STATEMENTS["spp"].cases
    assert len({case["lipschitz"] for case in cases}) == 3
    assert len({case["lr"] for case in cases}) == 25


def test_a_problem_that_nobody_solves_is_a_row_with_the_reason(monkeypatch):
    def failing(**case):
        raise pep.SolverError("CLARABEL: infeasible; SCS: infeasible")

    statement = dataclasses.replace(pep.STATEMENTS["one-step"], cases=(NGN[1],), function=failing)
    monkeypatch.setitem(pep.STATEMENTS, "one-step", statement)
    (row,) = pep.run(["one-step"], progress=False)
    assert (row.ok, row.result, "infeasible" in row.error) == (False, None, True)
    assert "not solved" in row.cells()
    with pytest.raises(pep.SolverError, match="infeasible"):
        row.verified()


def test_few_problems_start_no_workers():
    assert _run._default_processes(_run.WORTH_A_WORKER - 1) == 1


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory):
    """What a script says that solves two cases with two workers, without a guard around it."""
    script = tmp_path_factory.mktemp("script") / "unguarded.py"
    script.write_text(f"""import json, sys
from surefoot import pep
loaded = [name for name in ("PEPit", "cvxpy", "torch") if name in sys.modules]
found = pep.verify({[NGN, SPS]!r}, processes=2, cache=False, progress=False)
print(json.dumps([loaded, [each.result.worst_case for each in found]]))
""")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_workers_of_a_script_without_a_guard_give_the_results_of_this_process(unguarded):
    alone = pep.verify([NGN, SPS], processes=1, cache=False, progress=False)
    assert unguarded[1] == [each.result.worst_case for each in alone]


def test_import_loads_no_solver(unguarded):
    assert unguarded[0] == []


# --- text


def test_table_has_a_cell_for_each_column(result):
    rows = [pep.Row("one-step", NGN[1], result), pep.Row("one-step", SPS[1], None, "reason")]
    lines = pep.table(rows)
    assert {len(line) for line in lines} == {len(pep.Row.COLUMNS)}
    assert lines[1][:4] == ("one-step", "method=ngn lr=1", "0.555556", "0.333333")


def test_table_marks_what_was_not_expected(result):
    wrong = dataclasses.replace(result, exact=0.5)
    assert "unexpected" in pep.Row("one-step", NGN[1], wrong).cells()[6]


def test_table_reports_the_solver_that_failed_before(result):
    second = dataclasses.replace(result, failures=("CLARABEL: user_limit",))
    assert "after CLARABEL: user_limit" in pep.Row("one-step", NGN[1], second).cells()[-1]


def test_summary_has_one_line_a_statement(result):
    rows = [pep.Row("one-step", NGN[1], result), pep.Row("one-step", SPS[1], None, "reason")]
    header, line = pep.summary(rows)
    assert dict(zip(header, line, strict=True))["agree"] == "1"


def test_summary_of_nothing_solved_has_no_numbers():
    assert pep.summary([pep.Row("spp", {}, None, "reason")])[1] == ("spp", "1", "0", "–", "–", "–", "–", "–")


@pytest.mark.parametrize(
    ("worst", "relation", "agrees"),
    [
        (1.0, "equal", True),
        (0.99, "equal", False),
        (0.99, "at most", True),
        (1.01, "at most", False),
        (1.01, "above", True),
        (1.0, "above", False),
    ],
)
def test_agreement_is_that_of_the_relation(result, worst, relation, agrees):
    found = dataclasses.replace(result, worst_case=worst, theory=1.0, exact=None, relation=relation)
    assert found.agrees is agrees


@pytest.mark.slow
def test_every_registered_case_agrees():
    rows = pep.run(progress=False)
    assert [row.cells() for row in rows if not row.ok] == []
