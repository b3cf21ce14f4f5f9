"""Problems by name, and bad input."""

import pickle
import sys

import numpy as np
import pytest

from surefoot.data import Dataset
from surefoot.problems import LinearPredictor, LinearRegression, LogisticRegression, ToyFunction, create


def without_options():
    return ToyFunction()


class Squares(LinearPredictor):
    name = "squares"

    def row_loss(self, predictions, targets):
        return (predictions - targets) ** 2, 2 * (predictions - targets)


@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("linear-regression", {"n": 20, "d": 3}, LinearRegression),
        ("logistic-regression", {"data": "vowel"}, LogisticRegression),
        ("Logistic_Regression", {"data": "vowel", "ridge": 0.1}, LogisticRegression),
        ("toy", {}, ToyFunction),
        ("surefoot.problems:ToyFunction", {"start": 1.0}, ToyFunction),
    ],
)
def test_names_give_problems(name, options, kind):
    assert isinstance(create(name, **options), kind)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("linear-regresion", {}, "problem must be .*, got 'linear-regresion'; did you mean 'linear-regression'"),
        ("linear-regression", {"nois": 1.0}, "option of .* must be .*, got 'nois'; did you mean 'noise'"),
        ("tests.problems.test_create:without_options", {"n": 1}, "option of .* must be left out, .* got 'n'"),
        ("logistic-regression", {}, "problem 'logistic-regression' needs the option 'data'"),
        ("surefoot.nowhere:factory", {}, "must be 'module:factory'"),
        ("digits-cnn", {"devise": "cpu"}, "option of .* must be one of .*name, device, .*, got 'devise'; .* 'device'"),
        ("digits-mlp", {"hidden": 64}, "hidden must be a list of whole numbers of at least 1, got 64"),
        ("digits-mlp", {"hidden": [0]}, r"hidden\[0\] must be a whole number of at least 1, got 0"),
        ("resnet20", {"rows": 2.5}, "^rows must be a whole number of at least 1, got 2.5"),
        ("logistic-regression", {"data": "vowl"}, "data set must be .*, got 'vowl'"),
    ],
)
def test_wrong_names_and_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        create(name, **options)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: LinearRegression(ridge=-1.0), ValueError, "ridge must be at least 0, got -1"),
        (lambda: LinearRegression(start="random"), ValueError, "start must be one of uniform, zeros, got 'random'"),
        (lambda: LinearRegression(3), TypeError, "data must be a name"),
        (
            lambda: LinearRegression(Dataset.from_arrays("c", [[1.0], [2.0]], [0, 1])),
            ValueError,
            "must have real targets, but .c. has classes",
        ),
        (lambda: LogisticRegression("vowel", validation=1.5), ValueError, r"in \[0, 1\), got 1.5"),
        (
            lambda: LogisticRegression(Dataset.from_arrays("r", [[1.0]], [0.5], task="regression")),
            ValueError,
            "must have classes, but .* has real targets",
        ),
        (lambda: LogisticRegression("vowel", split_seed=-1), ValueError, "^split_seed must be a whole number"),
        (
            lambda: LinearRegression(start_seed=-1),
            ValueError,
            "start_seed must be a whole number of at least 0, got -1",
        ),
        (lambda: LogisticRegression(([[1.0], [2.0]], ["a", "b"])), ValueError, "y must be numbers, .* got .*'a'"),
        (lambda: ToyFunction(start="zeros"), ValueError, "start must be a finite number, got 'zeros'"),
        (lambda: Squares([1.0, 2.0], [1.0, 2.0]), ValueError, r"features must have shape \(n, d\)"),
        (lambda: Squares([[1.0], [2.0]], [1.0]), ValueError, r"targets must have shape \(2,\)"),
        (lambda: Squares([[np.nan]], [1.0]), ValueError, "features must be finite"),
        (lambda: create("builtins:dict"), TypeError, r"must give a surefoot\.problems\.Problem"),
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("rows", [[], [[0]], [-1], [50], [0.5]])
def test_bad_rows_are_named(rows):
    with pytest.raises(ValueError, match="rows must"):
        LinearRegression().infimum(rows)


def test_what_a_problem_lacks_is_named():
    problem = Squares([[1.0], [2.0]], [1.0, 2.0])
    assert not problem.has_prox
    assert not problem.optimum().exists
    for call in (lambda: problem.infimum([0]), lambda: problem.envelope(1.0), lambda: problem.validation_loss(None)):
        with pytest.raises(NotImplementedError, match="squares"):
            call()


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("def make(:", ValueError, r"'mine:make' must .* be imported: SyntaxError: .*mine.py, line 1"),
        ("1 / 0", ValueError, r"which can be imported: ZeroDivisionError"),
        ("def make(): return {}['rows']", RuntimeError, "problem 'mine:make' raised KeyError: 'rows'"),
        ("def make(): raise RuntimeError('no data')", RuntimeError, "'mine:make' raised RuntimeError: no data"),
        ("def make(): raise ValueError('rows must be over 0')", ValueError, "^rows must be over 0"),
    ],
)
def test_what_is_wrong_in_a_module_of_yours_is_said_to_be_there(code, error, message, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    with pytest.raises(error, match=message):
        create("mine:make")
    sys.modules.pop("mine", None)


@pytest.mark.parametrize("problem", [LinearRegression(), LogisticRegression("vowel"), ToyFunction()])
def test_problems_can_be_sent_to_other_processes(problem):
    assert pickle.loads(pickle.dumps(problem)).fingerprint() == problem.fingerprint()
