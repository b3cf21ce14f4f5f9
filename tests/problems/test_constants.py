from __future__ import annotations

import numpy as np
import pytest

from surefoot.problems import ArrayProblem, LinearRegression, LogisticRegression, constants


def test_large_batches_lower_sigma_with_a_standard_error():
    problem = LinearRegression(noise=1.0)
    small, large = constants(problem, 5), constants(problem, 25)
    assert (small.lower_bound_error, small.standard_error) == (0.0, 0.0)  # five rows are fitted exactly
    assert small.interpolation_constant == pytest.approx(problem.optimum().value, rel=1e-12)
    assert constants(problem, 50).interpolation_constant == pytest.approx(0.0, abs=1e-10)
    assert 0 < large.interpolation_constant < 0.5 * small.interpolation_constant
    assert 0 < large.standard_error < 0.1 * large.interpolation_constant
    # The two constants split the same gap f⋆ − C.
    total = large.interpolation_constant + large.lower_bound_error
    assert total == pytest.approx(problem.optimum().value, rel=1e-9)


def test_batches_of_vowel_are_separable():
    found = constants(LogisticRegression("vowel"), 16, batches=10)
    assert found.lower_bound_error == 0.0
    assert found.interpolation_constant == pytest.approx(0.78, abs=0.02)


class Unknown(ArrayProblem):
    """A problem that does not know its minimum."""

    name, features, n_rows = "unknown", 1, 4

    def describe(self):
        return {}

    def evaluate(self, points, rows):
        return np.abs(points[:, 0]), np.sign(points)


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (LinearRegression(), {"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        (LinearRegression(), {"batch_size": 51}, "batch_size must lie in 1 … 50, got 51"),
        (LinearRegression(), {"batch_size": 5, "batches": 0}, "batches must be a whole number of at least 1"),
        (Unknown(), {"batch_size": 2}, "not known for 'unknown'"),
    ],
)
def test_bad_input_is_named(problem, options, message):
    with pytest.raises(ValueError, match=message):
        constants(problem, **options)
