import numpy as np
import pytest

from surefoot import pep
from surefoot.theory import bounds, schedules


@pytest.mark.parametrize("steps", [2, 3, 5])
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_average_bound_is_exact_for_large_constant_rates(steps, factor):
    found = pep.average_iterate(lr=factor / steps**0.5, steps=steps)
    assert (found.relation, found.worst_case) == ("equal", pytest.approx(found.theory, rel=1e-6))


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt", "linear"])
@pytest.mark.parametrize("function", [pep.last_iterate, pep.average_iterate])
def test_worst_case_is_at_most_the_bound(function, schedule):
    found = function(lr=0.4, steps=4, schedule=schedule)
    assert 0 < found.worst_case <= found.theory * (1 + 1e-6)


def test_theory_is_the_bound_with_the_index_of_sgd():
    rates = 0.5 * schedules.linear(3)
    expected = bounds.last_iterate(rates, rates * 4 / 2, distance=3.0).total
    assert pep.last_iterate(lr=0.5, steps=3, schedule="linear", lipschitz=2.0, distance=3.0).theory == expected


def test_one_step_has_the_worst_case_gd():
    assert pep.last_iterate(lr=1.0, steps=1, lipschitz=2.0, distance=3.0).worst_case == pytest.approx(6.0, rel=1e-6)


def test_worst_case_scales_with_lipschitz_constant_and_distance():
    unit = pep.last_iterate(lr=0.5, steps=3).worst_case
    scaled = pep.last_iterate(lr=0.5 * 3 / 2, steps=3, lipschitz=2.0, distance=3.0).worst_case
    assert scaled == pytest.approx(6 * unit, rel=1e-6)


def test_worst_case_is_at_least_that_of_the_absolute_value():
    lr, steps = 0.7, 5
    x = 1.0
    for _ in range(steps - 1):
        x -= lr * np.sign(x)
    assert pep.last_iterate(lr=lr, steps=steps).worst_case >= abs(x)


@pytest.mark.parametrize("iterate", ["last_iterate", "average_iterate"])
def test_drawing_one_of_two_losses_is_no_worse_than_one_loss(iterate):
    random = getattr(pep, iterate)(lr=0.8, steps=2, losses=2)
    alone = getattr(pep, iterate)(lr=0.8, steps=2)
    assert random.worst_case == pytest.approx(alone.worst_case, rel=1e-6)


@pytest.mark.parametrize(("method", "first"), [("sps", 0.3), ("ngn", 0.6)])
def test_the_rates_of_sps_and_ngn_hold_with_noise(method, first):
    found = pep.average_rate(method=method, lr=2.0, first=first, second=0.8)
    assert 0 < found.worst_case < found.theory


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_sharpest_rate_under_interpolation_is_that_of_a_quadratic(steps):
    quadratic = sum(0.5 * 4.0**-step for step in range(steps)) / steps  # x halves in every step
    found = pep.interpolation_rate(lr=2.0, steps=steps)
    assert (found.worst_case, found.theory) == pytest.approx((quadratic, 2 / steps), rel=1e-5)


def test_the_last_iterate_bound_holds_with_a_level_if_its_price_is_paid():
    found = pep.last_iterate_level(lr=1.0, level=2.0)
    assert found.worst_case <= found.theory * (1 + 1e-6)


def test_the_last_iterate_bound_with_a_level_fails_without_its_price():
    found = pep.last_iterate_level(lr=1.0, level=2.0, price="left out")
    assert found.theory == 0.25
    assert found.worst_case == pytest.approx(0.960192, abs=1e-5)
    assert (found.verdict, found.agrees) == ("above", True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["last_iterate", "average_iterate"])
def test_random_draws_cost_nothing_in_any_registered_case(name):
    cases = pep.STATEMENTS[f"stochastic-{name.replace('_', '-')}"].cases
    random = [getattr(pep, name)(**case, losses=2).worst_case for case in cases]
    alone = [getattr(pep, name)(**case).worst_case for case in cases]
    np.testing.assert_allclose(random, alone, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("function", [pep.last_iterate, pep.average_iterate])
@pytest.mark.parametrize("schedule", ["constant", "linear", "inverse_sqrt"])
@pytest.mark.parametrize("steps", [1, 3, 5, 6, 7])
@pytest.mark.parametrize("factor", [0.1, 0.7, 1.5, 10.0])
def test_bounds_hold_away_from_the_registered_cases(function, schedule, steps, factor):
    assert function(lr=factor / steps**0.5, steps=steps, schedule=schedule).agrees
