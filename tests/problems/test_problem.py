"""Losses and gradients of every problem, against finite differences and plain formulas."""

import numpy as np
import pytest

from surefoot.problems import (
    ArrayProblem,
    LinearPredictor,
    LinearRegression,
    LogisticRegression,
    ToyFunction,
)


class Huber(LinearPredictor):
    name = "huber"

    def row_loss(self, predictions, targets):
        gap = predictions - targets
        inside = np.clip(gap, -1.0, 1.0)
        return inside * (gap - 0.5 * inside), inside


class Distances(ArrayProblem):
    """mean ‖x − a_i‖: the geometric median."""

    name = "geometric-median"

    def __init__(self, centers):
        self.centers = np.asarray(centers, float)
        self.n_rows, self.features = self.centers.shape

    def describe(self):
        return {"centers": self.centers.tolist()}

    def evaluate(self, points, rows):
        gap = points[:, None] - self.centers[rows]
        length = np.linalg.norm(gap, axis=2, keepdims=True)
        return length[..., 0].mean(axis=1), (gap / np.maximum(length, 1e-300)).mean(axis=1)


def random_classes(classes, **options):
    random = np.random.default_rng(1)
    X = random.standard_normal((24, 5))
    return LogisticRegression((X, np.arange(24) % classes), validation=0, **options)


def make(name):
    random = np.random.default_rng(0)
    A, y = random.standard_normal((12, 4)), random.standard_normal(12)
    return {
        "least squares": lambda: LinearRegression((A, y)),
        "ridge": lambda: LinearRegression((A, y), ridge=0.7),
        "two classes": lambda: random_classes(2),
        "four classes": lambda: random_classes(4, ridge=0.2),
        "toy": ToyFunction,
        "huber": lambda: Huber(A, 3 * y, ridge=0.1),
        "geometric median": lambda: Distances(A),
    }[name]()


NAMES = ["least squares", "ridge", "two classes", "four classes", "toy", "huber", "geometric median"]


def evaluate(problem, points, rows):
    """Batch losses (runs,) and gradients (runs, dimension)."""
    losses, gradients = problem.loss_and_gradient(np.atleast_2d(points)[None], np.asarray(rows)[None])
    return losses[0], gradients[0]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_losses(name):
    problem = make(name)
    random = np.random.default_rng(5)
    rows = np.arange(min(3, problem.n_rows))
    points = 0.4 * random.standard_normal((18, problem.dimension))
    _, gradients = evaluate(problem, points, rows)
    width = 1e-6
    for coordinate in range(problem.dimension):
        shift = width * np.eye(problem.dimension)[coordinate]
        difference = evaluate(problem, points + shift, rows)[0] - evaluate(problem, points - shift, rows)[0]
        np.testing.assert_allclose(gradients[:, coordinate], difference / (2 * width), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_full_loss_is_the_loss_of_the_batch_of_all_rows(name):
    problem = make(name)
    points = np.random.default_rng(5).standard_normal((20, problem.dimension))
    losses, _ = evaluate(problem, points, np.arange(problem.n_rows))
    np.testing.assert_allclose(problem.full_loss(points), losses, rtol=1e-12)


def test_full_loss_over_more_rows_than_fit_at_once():
    random = np.random.default_rng(0)
    X, y = random.standard_normal((5000, 3)), random.integers(0, 5, 5000)
    problem = LogisticRegression((X, y), validation=0)
    points = random.standard_normal((40, 15))
    scores = np.einsum("nd,rkd->rnk", X, points.reshape(40, 5, 3))
    expected = np.mean(np.log(np.exp(scores).sum(axis=2)) - scores[:, np.arange(5000), y], axis=1)
    np.testing.assert_allclose(problem.full_loss(points), expected, rtol=1e-12)


def test_least_squares_has_the_factor_of_the_text():
    problem = LinearRegression((np.array([[1.0], [2.0]]), np.array([0.0, 0.0])))
    losses, gradients = evaluate(problem, [[1.0]], np.array([0, 1]))
    assert losses[0] == (1 + 4) / 4
    assert gradients[0, 0] == (1 + 4) / 2


def test_cross_entropy_of_zero_parameters_is_the_logarithm_of_the_classes():
    problem = LogisticRegression("dna", start="zeros")
    assert problem.full_loss(problem.initial_point()[None])[0] == pytest.approx(np.log(3), rel=1e-15)


@pytest.mark.parametrize("classes", [2, 3])
def test_small_cross_entropies_keep_their_digits(classes):
    X = np.eye(classes)[:, -1:] * 2 - 1 if classes == 2 else np.eye(3)
    problem = LogisticRegression((X, np.arange(classes)), validation=0)
    scale = 50.0
    point = [scale] if classes == 2 else scale * np.eye(3).ravel()
    losses, gradients = evaluate(problem, point, np.arange(classes))
    small = np.exp(-scale) if classes == 2 else 2 * np.exp(-scale)
    assert losses[0] == pytest.approx(small, rel=1e-12)
    assert np.abs(gradients).max() == pytest.approx(small / (1 if classes == 2 else 3), rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_huge_scores_overflow_nowhere(classes):
    problem = random_classes(classes)
    losses, gradients = evaluate(problem, np.full(problem.dimension, 1e200), np.arange(4))
    assert np.isfinite(losses).all()
    assert np.isfinite(gradients).all()


def test_initial_point_is_uniform_from_one_seed_or_zero():
    point = LogisticRegression("vowel").initial_point()
    assert np.array_equal(point, LogisticRegression("vowel").initial_point())
    assert 0.9 / np.sqrt(10) < np.abs(point).max() <= 1 / np.sqrt(10)
    assert not LinearRegression(start="zeros").initial_point().any()


def test_validation_rows_are_held_out():
    problem = LinearRegression(n=50, validation=0.2)
    assert (problem.n_rows, problem.n_valid) == (40, 10)
    expected = np.mean((problem.A_valid @ problem.initial_point() - problem.y_valid) ** 2) / 2
    assert problem.validation_loss(problem.initial_point()[None])[0] == pytest.approx(expected)


def test_fingerprints_tell_problems_apart():
    problems = [
        LinearRegression(),
        LinearRegression(data_seed=1),
        LinearRegression(noise=0.1),
        LinearRegression(ridge=0.1),
        LinearRegression(start="zeros"),
        LogisticRegression("vowel"),
        LogisticRegression("vowel", ridge=0.1),
        LogisticRegression("vowel", split_seed=1),
        ToyFunction(),
    ]
    assert len({problem.fingerprint() for problem in problems}) == len(problems)
    assert LinearRegression().fingerprint() == LinearRegression().fingerprint()


def test_a_predictor_without_a_loss_is_refused_before_any_work():
    class Lossless(LinearPredictor):
        name = "lossless"

    with pytest.raises(TypeError, match="Lossless must define row_loss"):
        Lossless(np.ones((4, 2)), np.ones(4))
