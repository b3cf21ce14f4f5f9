import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.data import linear_regression

sizes = {"n": st.integers(2, 80), "d": st.integers(1, 20), "data_seed": st.integers(0, 2**32)}


@given(**sizes)
@settings(deadline=None)
def test_every_column_has_norm_ten(n, d, data_seed):
    np.testing.assert_allclose(np.linalg.norm(linear_regression(n, d, data_seed=data_seed).A, axis=0), 10, rtol=1e-13)


@given(**sizes)
@settings(deadline=None)
def test_solution_has_norm_one_and_fits_exactly(n, d, data_seed):
    data = linear_regression(n, d, data_seed=data_seed)
    assert np.linalg.norm(data.x_hat) == pytest.approx(1, rel=1e-14)
    np.testing.assert_array_equal(data.b, data.A @ data.x_hat)


def test_defaults_are_those_of_the_paper():
    data = linear_regression()
    assert (data.A.shape, data.A.dtype, data.noise, data.data_seed) == ((50, 10), np.float64, 0.0, 0)
    assert np.count_nonzero(data.A) == 500  # nothing is dropped at this size


def test_noise_goes_on_the_targets_only():
    clean, noisy = linear_regression(noise=0.0), linear_regression(noise=1.0)
    np.testing.assert_array_equal(clean.A, noisy.A)
    np.testing.assert_array_equal(clean.x_hat, noisy.x_hat)
    assert np.linalg.norm(noisy.b - clean.b) > 1


def test_noise_has_the_standard_deviation_asked_for():
    clean, noisy = linear_regression(n=20_000, noise=0.0), linear_regression(n=20_000, noise=3.0)
    assert np.std(noisy.b - clean.b) == pytest.approx(3, rel=0.03)  # six standard errors


def test_share_of_entries_kept_in_a_tall_matrix():
    n = 10_000
    kept = np.count_nonzero(linear_regression(n=n).A) / (10 * n)
    assert kept == pytest.approx(30 * np.log(n) / n, rel=0.05)


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
        ({"noise": float("nan")}, "noise must be a finite number, got nan"),
        ({"data_seed": -1}, "data_seed must be a whole number of at least 0, got -1"),
    ],
)
def test_argument_out_of_range(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        linear_regression(**options)
