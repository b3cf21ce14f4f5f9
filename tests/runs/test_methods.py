"""Names of methods."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from surefoot.runs._methods import parse_methods
from surefoot.study import Method, parse_method
from surefoot.theory import models


@pytest.mark.parametrize(
    ("text", "name", "model"),
    [
        ("sgd", "sgd", models.Linear()),
        (" SPS ", "sps", models.Truncated()),
        ("ngn", "ngn", models.SquareRoot()),
        ("log-ngn", "log-ngn", models.Exponential()),
        ("log_ngn", "log-ngn", models.Exponential()),
        ("power(p=0.25)", "power(p=0.25)", models.Power(0.25)),
        ("spp", "spp", None),
        ("sps( lower_bound = -2.0 )", "sps(lower_bound=-2)", models.Truncated(-2.0)),
        ("sps(lower_bound=0.0)", "sps", models.Truncated()),
        ("ngn(lower_bound=0.1)", "ngn(lower_bound=0.1)", models.SquareRoot(0.1)),
        ("power(lower_bound=1e-3, p=1)", "power(p=1, lower_bound=0.001)", models.Power(1, 1e-3)),
    ],
)
def test_a_name_becomes_a_model_and_its_shortest_name(text, name, model):
    assert parse_method(text) == Method(name, model)


@pytest.mark.parametrize("model", [models.Linear(), models.Truncated(-2.0), models.Power(0.25), models.Exponential()])
def test_the_name_of_a_model_parses_back_to_it(model):
    assert parse_method(parse_method(model).name).model == model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spz", "got 'spz'; did you mean 'sps'"),
        ("rmsprop", "one of sgd, sps, ngn, log-ngn, power, spp, momo"),
        ("sps(lowerbound=1)", "did you mean 'lower_bound'"),
        ("sgd(lower_bound=1)", "parameter of method 'sgd' must be one of none, got 'lower_bound'"),
        ("spp(lower_bound=1)", "parameter of method 'spp' must be"),
        ("sps(lower_bound=True)", "must be a finite number, got True"),
        ("sps(lower_bound='x')", "must be a number, level or level(share=...), got 'x'"),
        ("power", "needs its exponent"),
        ("power(p=2)", "p must be a finite number of at most 1, got 2"),
        ("sps(lower_bound=__import__('os'))", "is not of the form"),
        ("sps(1)", "is not of the form"),
        ("", "is not of the form"),
    ],
)
def test_bad_names_are_refused_with_a_hint(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_method(text)


def test_a_study_wide_lower_bound_goes_to_the_methods_that_have_none():
    methods = parse_methods(["sgd", "sps", "ngn(lower_bound=1)", "spp"], lower_bound=-2)
    assert [method.name for method in methods] == ["sgd", "sps(lower_bound=-2)", "ngn(lower_bound=1)", "spp"]


@pytest.mark.parametrize("methods", [["sps", "sps(lower_bound=0)"], ["sps", models.Truncated()], ["spp", "SPP"]])
def test_duplicates_are_refused(methods):
    with pytest.raises(ValueError, match="methods must be distinct, got 'sp"):
        parse_methods(methods)


@pytest.mark.parametrize("methods", [3, [3], None])
def test_what_is_no_method_is_refused(methods):
    with pytest.raises(TypeError, match=r"methods must be"):
        parse_methods(methods)


def test_the_name_in_a_legend_does_not_change_what_is_run():
    assert Method("mine", models.Truncated(-2.0)).identity == parse_method("sps(lower_bound=-2)").identity


def test_own_models_are_told_apart_by_their_code():
    def make(factor):
        # Two classes that differ in one line of code, as before and after an edit.
        code = f"class Mine(Truncated):\n    def relative_value(self, xp, drop):\n        return {factor} * drop\n"
        names = {"Truncated": models.Truncated, "__name__": "elsewhere"}
        exec(code, names)
        return parse_method(dataclass(frozen=True)(names["Mine"])()).identity

    assert make(1) == make(1)
    assert make(1) != make(2)


def test_one_bound_a_batch_is_refused():
    import numpy as np

    with pytest.raises(TypeError, match="lower_bound of a method in a study must be one number"):
        parse_method(models.Truncated(np.zeros(3)))


@dataclass(frozen=True)
class Table(models.Linear):
    """A model with an array among its parameters."""

    values: object = None


def test_a_model_may_hold_an_array():
    one, other = (parse_method(Table(values=np.arange(count))) for count in (3, 4))
    assert one.name.startswith("Table(values=")
    assert one.identity != other.identity
