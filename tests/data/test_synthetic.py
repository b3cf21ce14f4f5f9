import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data import linear_regression


@given(n=st.integers(2, 80), d=st.integers(1, 20), data_seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_columns_have_norm_ten_and_the_solution_has_norm_one_and_fits(n, d, data_seed):
    A, b, x_hat = linear_regression(n, d, data_seed=data_seed)
    np.testing.assert_allclose(np.linalg.norm(A, axis=0), 10, rtol=1e-13)
    assert np.linalg.norm(x_hat) == pytest.approx(1, rel=1e-14)
    np.testing.assert_array_equal(b, A @ x_hat)


def test_noise_goes_on_the_targets_only_with_the_deviation_asked_for():
    clean, noisy = linear_regression(n=20_000), linear_regression(n=20_000, noise=3.0)
    np.testing.assert_array_equal(clean.A, noisy.A)
    np.testing.assert_array_equal(clean.x_hat, noisy.x_hat)
    assert np.std(noisy.b - clean.b) == pytest.approx(3, rel=0.03)  # six standard errors


@pytest.mark.parametrize("n", [50, 10_000])
def test_share_of_entries_that_is_kept(n):
    kept = np.count_nonzero(linear_regression(n=n).A) / (10 * n)
    assert kept == pytest.approx(min(1, 30 * np.log(n) / n), rel=0.05 if n > 50 else 0)


def test_columns_have_either_sign():
    signs = np.sign(linear_regression(n=500, d=40).A.sum(axis=0))
    assert set(signs.tolist()) == {-1.0, 1.0}


def test_seed_fixes_everything():
    assert np.array_equal(linear_regression(data_seed=3).A, linear_regression(data_seed=3).A)
    assert not np.array_equal(linear_regression(data_seed=3).A, linear_regression(data_seed=4).A)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"n": 1}, "n must be a whole number of at least 2, got 1"),
        ({"d": 0}, "d must be a whole number of at least 1, got 0"),
        ({"noise": -1.0}, "noise must be at least 0, got -1.0"),
        ({"data_seed": -1}, "data_seed must be a whole number of at least 0, got -1"),
    ],
)
def test_argument_out_of_range(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        linear_regression(**options)
