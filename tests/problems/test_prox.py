"""Proximal points against SciPy's minimisers, and the order of the indices that follows from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from surefoot.problems import LinearRegression, LogisticRegression, ToyFunction
from surefoot.theory import models


def classification(classes, rows, features, **options):
    random = np.random.default_rng(rows * classes)
    X = random.standard_normal((rows, features))
    y = np.argmax(X[:, :classes] + random.standard_normal((rows, classes)), axis=1)
    return LogisticRegression((X, y), validation=0, **options)


PROBLEMS = {
    "least squares, dual": (LinearRegression(n=20, d=8), 4),
    "least squares, primal": (LinearRegression(n=20, d=4, noise=1.0), 9),
    "ridge, dual": (LinearRegression(n=20, d=8, ridge=0.3), 4),
    "ridge, primal": (LinearRegression(n=20, d=4, ridge=0.3), 9),
    "two classes, dual": (classification(2, 30, 6), 4),
    "two classes, primal": (classification(2, 30, 6, ridge=0.1), 12),
    "three classes, dual": (classification(3, 30, 6, ridge=0.1), 4),
    "three classes, primal": (classification(3, 30, 6), 12),
    "toy": (ToyFunction(), 1),
}


def prox(problem, points, rows, lr):
    """One proximal point for each of up to 16 points and rates."""
    points = np.atleast_2d(points)[None]
    found = problem.prox(points, np.asarray(rows)[None], np.resize(lr, points.shape[:2]))
    return found.points[0], found.losses[0], found.gaps[0]


def loss_and_gradient(problem, point, rows):
    losses, gradients = problem.loss_and_gradient(point[None, None], np.asarray(rows)[None])
    return losses[0, 0], gradients[0, 0]


@pytest.mark.parametrize("name", PROBLEMS)
def test_proximal_points_are_those_of_a_general_minimiser(name):
    problem, size = PROBLEMS[name]
    random = np.random.default_rng(0)
    rows = random.choice(problem.n_rows, size, replace=False)
    points = random.standard_normal((4, problem.dimension))
    lrs = np.array([0.01, 0.5, 10.0, 200.0])
    new, losses, gaps = prox(problem, points, rows, lrs)
    for x, lr, y, loss, gap in zip(points, lrs, new, losses, gaps, strict=True):

        def objective(u, x=x, lr=lr):
            value, gradient = loss_and_gradient(problem, u, rows)
            return value + (u - x) @ (u - x) / (2 * lr), gradient + (u - x) / lr

        if name == "toy":  # the corner is not for methods that want derivatives
            best = minimize(
                lambda u, f=objective: f(u)[0], x, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 0}
            )
        else:
            best = minimize(objective, x, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 3000})
        value = objective(y)[0]
        assert value <= best.fun + 1e-12 * max(abs(best.fun), 1)
        np.testing.assert_allclose(y, best.x, rtol=2e-5, atol=2e-5 * (1 + np.sqrt(lr)))
        assert loss == pytest.approx(loss_and_gradient(problem, y, rows)[0], rel=1e-10, abs=1e-15)
        assert 0 <= gap <= 1e-13 * max(objective(x)[0], 1e-3)


@pytest.mark.parametrize("name", ["vowel", "dna"])
def test_proximal_points_of_the_paper_s_data_are_certified(name):
    problem = LogisticRegression(name)
    random = np.random.default_rng(1)
    lrs = np.geomspace(0.01, 100, 16)
    new, _, gaps = prox(problem, np.tile(problem.initial_point(), (16, 1)), random.choice(problem.n_rows, 16), lrs)
    assert np.isfinite(new).all()
    assert gaps.max() < 1e-18


@pytest.mark.parametrize("classes", [2, 3])
def test_proximal_points_of_large_features_are_found_at_extreme_rates(classes):
    small = classification(classes, 60, 3)
    large = LogisticRegression((1e5 * small.A, small.y), validation=0)
    start, lrs = large.initial_point(), np.logspace(-2, 8, 16)
    new, losses, _ = prox(large, np.tile(start, (16, 1)), np.arange(40), lrs)
    objective = losses + np.sum((new - start) ** 2, axis=1) / (2 * lrs)
    assert (np.diff(objective) < 1e-9).all()
    assert objective[-1] == pytest.approx(large.infimum(range(40))[1], rel=1e-6)


@pytest.mark.parametrize("rows", [4, 8, 20])
def test_proximal_points_of_fewer_rows_than_parameters_with_features_of_hundreds(rows):
    random = np.random.default_rng(0)
    problem = LogisticRegression((100 * random.standard_normal((60, 12)), random.integers(0, 3, 60)), validation=0)
    lrs = np.geomspace(1e-6, 1e6, 16)
    start = problem.initial_point()
    new, losses, gaps = prox(problem, np.tile(start, (16, 1)), np.arange(rows), lrs)
    assert (gaps <= 1e-6 * (losses + np.sum((new - start) ** 2, axis=1) / (2 * lrs))).all()


def test_proximal_points_that_are_not_found_are_reported():
    random = np.random.default_rng(0)
    problem = LogisticRegression((1e6 * random.standard_normal((60, 12)), random.integers(0, 3, 60)), validation=0)
    points = np.tile(problem.initial_point(), (16, 1))
    with pytest.warns(RuntimeWarning, match=r"proximal points .* may be off .* with features of about 1e\+06"):
        _, _, gaps = prox(problem, points, np.arange(20), np.geomspace(1e-6, 1e6, 16))
    assert gaps.max() > 1e-3


def test_prox_of_points_that_are_not_numbers_ends():
    problem, size = PROBLEMS["three classes, primal"]
    points = np.zeros((2, problem.dimension))
    points[0] = np.inf
    with np.errstate(all="ignore"):
        new, _, _ = prox(problem, points, np.arange(size), 1.0)
    assert np.isfinite(new[1]).all()


def test_proximal_points_of_one_row_of_least_squares_are_steps_of_ngn():
    problem = LinearRegression()
    random = np.random.default_rng(0)
    points = random.standard_normal((16, 10))
    lrs = np.geomspace(1e-3, 1e3, 16)
    for row in range(5):
        new, losses, _ = prox(problem, points, [row], lrs)
        for x, lr, y, after in zip(points, lrs, new, losses, strict=True):
            loss, gradient = loss_and_gradient(problem, x, [row])
            step = models.SquareRoot().step(loss, float(gradient @ gradient), lr)
            np.testing.assert_allclose(y, x - step.size * gradient, rtol=1e-10, atol=1e-12)
            exact = models.exact_delta(loss, after, float((y - x) @ (y - x)), lr)
            assert exact == pytest.approx(step.delta, rel=1e-9)


@given(
    name=st.sampled_from(sorted(PROBLEMS)),
    seed=st.integers(0, 10_000),
    scale=st.floats(0.01, 10.0),
    log_lr=st.floats(-4.0, 4.0),
)
def test_the_index_of_spp_is_below_that_of_sps_at_the_exact_infimum_below_that_of_sgd(name, seed, scale, log_lr):
    problem, size = PROBLEMS[name]
    random = np.random.default_rng(seed)
    rows = random.choice(problem.n_rows, size, replace=False)
    x, lr = scale * random.standard_normal(problem.dimension), 10.0**log_lr
    loss, gradient = loss_and_gradient(problem, x, rows)
    grad_sq = float(gradient @ gradient)
    new, losses, gaps = prox(problem, x, rows, lr)
    spp = models.exact_delta(loss, losses[0], float((new[0] - x) @ (new[0] - x)), lr)
    lower, _ = problem.infimum(rows)
    sps = models.Truncated(lower_bound=lower).step(loss, grad_sq, lr).delta
    sgd = models.Linear().step(loss, grad_sq, lr).delta
    slack = 1e-12 * loss + gaps[0]
    assert spp <= sps + slack
    assert sps <= sgd * (1 + 1e-12)
