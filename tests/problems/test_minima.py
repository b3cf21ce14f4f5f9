"""Minima, infima of batches and Moreau envelopes."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression as Sklearn

from surefoot.problems import LinearRegression, LogisticRegression, ToyFunction


def full_loss(problem, point):
    return float(problem.full_loss(point[None])[0])


def sklearn_loss(X, y):
    """The minimal mean cross entropy without penalty and bias, by scikit-learn.

    A gradient of 1e-9 leaves an error of its square; with less, its line search ends in rounding and warns.
    """
    fit = Sklearn(C=np.inf, fit_intercept=False, solver="newton-cg", tol=1e-9, max_iter=5000).fit(X, y)
    scores = X @ fit.coef_.T
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    top = scores.max(axis=1)
    right = scores[np.arange(len(y)), y]
    return float(np.mean(np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - right))


def overlapping(classes, rows=60, features=3):
    random = np.random.default_rng(classes)
    X = random.standard_normal((rows, features))
    return LogisticRegression((X, random.integers(0, classes, rows)), validation=0)


def test_vowel_s_minimum_is_scikit_learn_s_and_the_closest_to_the_start():
    problem = LogisticRegression("vowel")
    optimum = problem.optimum()
    assert optimum.exists
    assert optimum.value == pytest.approx(sklearn_loss(problem.A, problem.y), abs=1e-7)
    assert optimum.value == pytest.approx(full_loss(problem, optimum.point), rel=1e-12)
    moved = (optimum.point - problem.initial_point()).reshape(11, 10)
    assert 60 < np.linalg.norm(moved) < 110
    # Moving all classes alike changes no loss, so the closest minimiser has no such part.
    assert np.abs(moved.sum(axis=0)).max() < 1e-9 * np.abs(moved).max()


def test_dna_is_separable_and_has_no_minimum():
    optimum = LogisticRegression("dna").optimum()
    assert not optimum.exists
    assert optimum.value == 0
    assert optimum.point is None
    assert "separable" in optimum.reason


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_minima_of_overlapping_classes_are_scikit_learn_s(classes):
    problem = overlapping(classes)
    assert problem.optimum().exists
    assert problem.optimum().value == pytest.approx(sklearn_loss(problem.A, problem.y), rel=1e-8)


def test_classes_that_only_touch_have_an_infimum_that_is_not_attained():
    # The first feature separates classes 0 and 1 but for two equal rows with different labels.
    X = np.array([[-1.0], [-2.0], [1.0], [3.0], [0.0], [0.0]])
    optimum = LogisticRegression((X, np.array([0, 0, 1, 1, 0, 1])), validation=0).optimum()
    assert not optimum.exists
    assert optimum.value == pytest.approx(2 * np.log(2) / 6, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [1e3, 1e4, 1e6, [1.0, 100.0, 1e5]])
def test_minima_do_not_depend_on_the_units_of_the_features(classes, scale):
    problem = overlapping(classes)
    large = LogisticRegression((problem.A * scale, problem.y), validation=0)
    assert large.optimum().exists
    assert large.optimum().value == pytest.approx(problem.optimum().value, rel=1e-9)
    assert large.infimum(range(40)) == pytest.approx(problem.infimum(range(40)), rel=1e-9)
    moved = (large.optimum().point - large.initial_point()).reshape(-1, 3)
    assert classes == 2 or np.abs(moved.sum(axis=0)).max() < 1e-9 * np.abs(moved).max()


def test_features_that_no_row_uses_do_no_harm():
    random = np.random.default_rng(0)
    X, y = random.standard_normal((40, 3)), random.integers(0, 2, 40)
    wide = np.hstack([X, np.zeros((40, 2)), X[:, :1]])
    narrow = LogisticRegression((X, y), validation=0).optimum()
    optimum = LogisticRegression((wide, y), validation=0).optimum()
    assert optimum.exists
    assert optimum.value == pytest.approx(narrow.value, rel=1e-10)


def test_large_features_that_separate_the_classes_are_separable():
    X = 1e6 * np.random.default_rng(0).standard_normal((50, 3))
    assert "linearly separable" in LogisticRegression((X, X[:, 0] > 0), validation=0).optimum().reason


def test_a_method_that_fails_does_not_call_the_classes_separable(monkeypatch):
    monkeypatch.setattr("surefoot.problems._newton._STEPS", 1)
    optimum = overlapping(3).optimum()
    assert not optimum.exists
    assert optimum.value is None
    assert "did not converge" in optimum.reason


def test_rows_of_zeros_have_a_constant_loss():
    X = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0], [0.0, 0.0]])
    problem = LogisticRegression((X, [0, 1, 0, 1]), validation=0)
    assert problem.infimum([0]) == problem.infimum([0, 3]) == pytest.approx((np.log(2), np.log(2)))
    nothing = LogisticRegression((np.zeros((4, 2)), [0, 1, 2, 0]), validation=0)
    assert nothing.optimum().value == pytest.approx(np.log(3))
    assert nothing.optimum().point.tolist() == nothing.initial_point().tolist()


@pytest.mark.parametrize("name", ["vowel", "dna"])
def test_batches_of_sixteen_are_separable(name):
    problem = LogisticRegression(name)
    random = np.random.default_rng(0)
    for _ in range(10):
        assert problem.infimum(random.choice(problem.n_rows, 16, replace=False)) == (0.0, 0.0)


@pytest.mark.parametrize("classes", [2, 3])
def test_infima_of_overlapping_batches_are_enclosed(classes):
    problem = overlapping(classes)
    rows = np.arange(40)
    low, high = problem.infimum(rows)
    expected = sklearn_loss(problem.A[rows], problem.y[rows])
    assert low - 1e-9 <= expected <= high + 1e-9
    assert 0 <= high - low < 1e-9


def test_infima_of_least_squares():
    problem = LinearRegression(noise=1.0)
    assert problem.infimum(range(5))[1] < 1e-20
    rows = np.arange(25)
    low, high = problem.infimum(rows)
    residual = np.linalg.lstsq(problem.A[rows], problem.y[rows])[1][0]
    assert low <= residual / 50 * (1 + 1e-12)
    assert residual / 50 * (1 - 1e-12) <= high
    assert high - low < 1e-9


def test_minima_of_least_squares():
    clean = LinearRegression(start="zeros")
    assert clean.optimum().value < 1e-25
    assert np.linalg.norm(clean.optimum().point) == pytest.approx(1.0)
    noisy = LinearRegression(noise=1.0, ridge=0.1)
    optimum = noisy.optimum()
    assert optimum.value == pytest.approx(full_loss(noisy, optimum.point), rel=1e-12)
    _, gradient = noisy.loss_and_gradient(optimum.point[None, None], np.arange(50)[None])
    assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize(
    "problem",
    [
        LinearRegression(n=30, d=5, noise=0.5),
        LinearRegression(n=30, d=5, ridge=0.2),
        overlapping(3),
        overlapping(2),
        ToyFunction(),
    ],
    ids=["least squares", "ridge", "three classes", "two classes", "toy"],
)
def test_envelopes_are_minima_of_loss_plus_distance(problem):
    start = problem.initial_point()
    parameters = np.array([30.0, 0.1, 2.0])
    values = problem.envelope(parameters)
    for parameter, value in zip(parameters, values, strict=True):
        best = minimize(
            lambda u, p=parameter: full_loss(problem, u) + (u - start) @ (u - start) / (2 * p),
            start,
            method="Nelder-Mead" if problem.name == "toy" else "BFGS",
            options={"xatol": 1e-10, "fatol": 1e-14} if problem.name == "toy" else {"gtol": 1e-8},
        )
        assert value == pytest.approx(best.fun, rel=1e-7)
    assert problem.envelope(2.0) == pytest.approx(values[2], rel=1e-12)
    assert values[0] < values[2] < values[1] < full_loss(problem, start)


def test_envelopes_at_the_paper_s_smallest_rates():
    assert LogisticRegression("vowel").envelope(0.01 * 520) == pytest.approx(2.3, abs=0.05)
    assert LogisticRegression("dna").envelope(0.01 * 1000) == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("parameter", [0.0, -1.0, np.nan])
def test_envelopes_need_positive_parameters(parameter):
    with pytest.raises(ValueError, match="parameter must be positive"):
        LinearRegression().envelope(parameter)
