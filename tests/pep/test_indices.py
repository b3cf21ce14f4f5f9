import math

import pytest

from surefoot import pep
from surefoot.pep import _one_step, _solver
from surefoot.pep._solver import attempts
from surefoot.theory import bounds, models

RATES = [1e-2, 0.3, 1.0, 4.0, 1e2]


@pytest.mark.parametrize("lipschitz", [0.5, 2.0])
@pytest.mark.parametrize("lr", RATES)
def test_spp_index_is_the_exact_curve(lr, lipschitz):
    found = pep.spp_index(lr=lr, lipschitz=lipschitz)
    assert found.worst_case == pytest.approx(bounds.worst_delta_spp(1.0, lipschitz**2, lr), rel=1e-6)
    assert found.worst_case <= found.theory * (1 + 1e-6)
    assert found.theory == min(lr * lipschitz**2 / 2, 1.0)


def test_spp_index_agrees_with_the_other_solver(monkeypatch):
    first = pep.spp_index(lr=2.0, lipschitz=1.0)
    monkeypatch.setattr(_solver, "attempts", lambda accuracy: attempts(accuracy)[1:])
    second = pep.spp_index(lr=2.0, lipschitz=1.0)
    assert (first.solver, second.solver) == ("CLARABEL", "SCS")
    assert first.worst_case == pytest.approx(second.worst_case, rel=1e-6)


def test_spp_index_scales_with_the_gap():
    small, large = (pep.spp_index(lr=2.0, lipschitz=math.sqrt(gap), gap=gap).worst_case for gap in (1.0, 7.0))
    assert large == pytest.approx(7 * small, rel=1e-6)


@pytest.mark.parametrize("product", [0.05, 0.5, 0.95])
@pytest.mark.parametrize(("lipschitz", "weak_convexity"), [(0.3, 1.0), (2.0, 0.2)])
def test_weakly_convex_index_is_exact_and_below_the_lemma(product, lipschitz, weak_convexity):
    lr = product / weak_convexity
    found = pep.spp_index(lr=lr, lipschitz=lipschitz, weak_convexity=weak_convexity)
    expected = bounds.worst_delta_spp(1.0, lipschitz**2, lr, weak_convexity=weak_convexity)
    assert found.worst_case == pytest.approx(expected, rel=1e-6)
    assert found.worst_case <= found.theory * (1 + 1e-6)


@pytest.mark.parametrize("method", ["sgd", "sps", "ngn"])
@pytest.mark.parametrize(("loss", "grad_sq", "lr"), [(1.0, 1.0, 0.1), (1.0, 1.0, 10.0), (0.5, 4.0, 1.0)])
def test_one_step_index_is_the_safe_one(method, loss, grad_sq, lr):
    found = pep.one_step_index(method=method, loss=loss, grad_sq=grad_sq, lr=lr)
    size = _one_step.METHODS[method](0.0).step(loss, grad_sq, lr).size
    assert found.worst_case == pytest.approx(models.safe_delta(loss, grad_sq, lr, size), rel=1e-6)
    assert method == "ngn" or found.worst_case == pytest.approx(found.theory, rel=1e-6)


def test_the_models_index_is_too_small_for_ngn():
    found = pep.one_step_index(method="ngn", lr=1.0)
    assert (found.worst_case, found.theory) == pytest.approx((5 / 9, 1 / 3), rel=1e-6)
    assert (found.verdict, found.agrees) == ("above", True)


@pytest.mark.parametrize("method", ["sps", "ngn"])
@pytest.mark.parametrize(("level", "lr"), [(0.0, 1.0), (0.3, 10.0), (0.9, 1.0)])
def test_with_a_level_above_the_infimum_the_safe_index_is_exact(method, level, lr):
    found = pep.one_step_index(method=method, lr=lr, level=level)
    size = _one_step.METHODS[method](level).step(1.0, 1.0, lr).size
    assert found.worst_case == pytest.approx(models.safe_delta(1.0, 1.0, lr, size, lower_bound=level), rel=1e-6)


def test_below_the_infimum_the_index_is_smaller_than_the_levels():
    found = pep.one_step_index(method="sps", lr=10.0, level=-2.0)
    assert (found.agrees, found.verdict) == (True, "below")


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (pep.spp_index, {"lr": 0.0, "lipschitz": 1.0}, "lr"),
        (pep.spp_index, {"lr": 1.0, "lipschitz": math.inf}, "lipschitz"),
        (pep.spp_index, {"lr": 1.0, "lipschitz": 1.0, "gap": math.nan}, "gap"),
        (pep.spp_index, {"lr": 1.0, "lipschitz": 1.0, "weak_convexity": 1.0}, "1/weak_convexity"),
        (pep.one_step_index, {"method": "adam", "lr": 1.0}, "adam"),
        (pep.one_step_index, {"method": "sgd", "lr": 1.0, "grad_sq": "1"}, "grad_sq"),
        (pep.one_step_index, {"method": "sgd", "lr": 1.0, "level": 0.0}, "must be one of sps, ngn, got 'sgd'"),
        (pep.one_step_index, {"method": "sps", "lr": 1.0, "level": 1.0}, "level must be below the loss"),
        (pep.last_iterate_level, {"lr": 1.0, "level": 0.0}, "level"),
        (pep.last_iterate_level, {"lr": 1.0, "level": 1.0, "price": "free"}, "free"),
        (pep.last_iterate_level, {"lr": 1.0, "level": 1.0, "scale": 2.0}, "scale"),
        (pep.last_iterate, {"lr": 1.0, "steps": 0}, "steps"),
        (pep.last_iterate, {"lr": 1.0, "steps": 2, "schedule": "sideways"}, "sideways"),
        (pep.average_iterate, {"lr": -1.0, "steps": 2}, "lr"),
        (pep.last_iterate, {"lr": 1.0, "steps": 4, "losses": 2}, "steps"),
    ],
)
def test_bad_arguments_are_named(function, arguments, named):
    with pytest.raises(ValueError, match=named):
        function(**arguments)
