import pytest

from surefoot import pep
from surefoot.pep._one_step import WITH_LEVEL
from surefoot.theory import models


@pytest.mark.parametrize("method", ["sps", "ngn"])
@pytest.mark.parametrize(("level", "lr"), [(0.0, 1.0), (0.3, 10.0), (0.9, 1.0)])
def test_with_a_level_above_the_infimum_the_safe_index_is_exact(method, level, lr):
    found = pep.one_step_level(method=method, lr=lr, level=level)
    size = WITH_LEVEL[method](lower_bound=level).step(1.0, 1.0, lr).size
    assert found.worst_case == pytest.approx(models.safe_delta(1.0, 1.0, lr, size, lower_bound=level), rel=1e-6)


def test_below_the_infimum_the_index_is_smaller_than_the_levels():
    found = pep.one_step_level(method="sps", lr=10.0, level=-2.0)
    assert found.agrees
    assert found.verdict == "below"


def test_the_last_iterate_bound_holds_with_its_price():
    found = pep.last_iterate_level(lr=1.0, level=2.0)
    assert found.worst_case <= found.theory * (1 + 1e-6)


def test_the_last_iterate_bound_fails_without_it():
    found = pep.last_iterate_level(lr=1.0, level=2.0, price="left out")
    assert found.theory == 0.25
    assert found.worst_case == pytest.approx(0.960192, abs=1e-5)
    assert (found.verdict, found.agrees) == ("above", True)


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (pep.one_step_level, {"method": "sgd", "lr": 1.0, "level": 0.0}, "sgd"),
        (
            pep.one_step_level,
            {"method": "sps", "lr": 1.0, "level": 1.0},
            "level must be below the loss",
        ),
        (pep.last_iterate_level, {"lr": 1.0, "level": 0.0}, "level"),
        (pep.last_iterate_level, {"lr": 1.0, "level": 1.0, "price": "free"}, "free"),
        (pep.last_iterate_level, {"lr": 1.0, "level": 1.0, "scale": 2.0}, "scale"),
    ],
)
def test_bad_arguments_are_named(function, arguments, named):
    with pytest.raises(ValueError, match=named):
        function(**arguments)
