"""The compiled steps of tiles: NumPy's numbers but for the last digits, and the same bits beside any neighbour."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from surefoot._base import kernels
from surefoot.problems import WIDTH, LinearRegression, LogisticRegression, _compiled, compiled_tiles


def classification(classes, rows, features, **options):
    random = np.random.default_rng(rows * classes)
    X = random.standard_normal((rows, features))
    y = np.argmax(X[:, :classes] + random.standard_normal((rows, classes)), axis=1)
    return LogisticRegression((X, y), **({"validation": 0.2} | options))


PROBLEMS = {
    "least squares": (LinearRegression(), 5),
    "ridge, one feature": (LinearRegression(n=20, d=1, ridge=0.3), 1),
    "two classes": (classification(2, 40, 7), 9),
    "two classes, ridge": (classification(2, 40, 2, l2=0.1), 3),
    "three classes": (classification(3, 70, 6, l2=0.1), 4),
    "five classes": (classification(5, 90, 5), 70),
    "vowel": (LogisticRegression("vowel"), 16),
}


@pytest.fixture
def functions(compiled_library, monkeypatch):
    """The library's functions, in use; call the result with None to do without them."""

    def use(library):
        found = None if library is None else _compiled._bind(library)
        monkeypatch.setattr(_compiled, "functions", lambda: found)

    use(compiled_library)
    return use


def drawn(problem, size, tiles=3, scale=1.0):
    """Points of some tiles, and a batch for each."""
    random = np.random.default_rng(size)
    points = scale * random.standard_normal((tiles, problem.blocks, WIDTH, problem.features))
    return points, np.stack([random.choice(problem.n_rows, size, replace=False) for _ in range(tiles)])


def told_by(problem, points, rows, sizes=0.25, factor=0.5):
    """What a step of the library tells, and the points and totals after it."""
    told = np.full((5, len(points), WIDTH), np.nan)
    tiles = compiled_tiles(problem, points, np.ones_like(points), told)
    tiles.measure(next(batches := tiles.batches(rows[None])))
    told[2] = sizes
    tiles.move(factor)
    batches.close()
    return told, tiles.points, tiles.total


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_step_is_that_of_numpy(functions, name, scale):
    problem, size = PROBLEMS[name]
    points, rows = drawn(problem, size, scale=scale)
    told, moved, total = told_by(problem, points, rows)
    gradients = np.empty_like(points)
    losses = problem.loss_and_gradient(points, next(problem.batches(rows[None])), gradients)
    start = problem.initial_point().reshape(problem.blocks, 1, -1)
    np.testing.assert_allclose(told[0], losses, rtol=1e-13)
    np.testing.assert_allclose(told[1], (gradients**2).sum(axis=(1, 3)), rtol=1e-12)
    np.testing.assert_allclose(told[4], ((points - start) ** 2).sum(axis=(1, 3)), rtol=1e-13)
    np.testing.assert_allclose(moved, points - 0.25 * gradients, rtol=1e-12, atol=1e-14 * scale)
    np.testing.assert_allclose(total, 1.0 + 0.5 * points, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", PROBLEMS)
def test_full_losses_are_those_of_numpy(functions, name):
    problem, size = PROBLEMS[name]
    points, _ = drawn(problem, size)
    measures = [problem.full_loss] + [problem.validation_loss] * (problem.n_valid > 0)
    found = [measure(points) for measure in measures]
    functions(None)
    for losses, measure in zip(found, measures, strict=True):
        np.testing.assert_allclose(losses, measure(points), rtol=1e-13)


@pytest.mark.parametrize("classes", [2, 3])
def test_small_losses_and_slopes_keep_their_digits(functions, classes):
    problem = LogisticRegression((np.eye(classes), np.arange(classes)), validation=0)
    for gap in (5.0, 20.0, 36.0, 300.0, 700.0, 740.0):
        point = gap * (np.eye(classes) if classes > 2 else np.array([[-1.0, 1.0]]))
        points = np.repeat(point[:, None], WIDTH, axis=1)[None]
        told, _, _ = told_by(problem, points, np.arange(classes)[None])
        exact = np.log1p((classes - 1) * np.exp(-gap))
        assert told[0, 0, 0] == pytest.approx(exact, rel=1e-13, abs=5e-324)
        gradients = np.empty_like(points)
        problem.loss_and_gradient(points, next(problem.batches(np.arange(classes)[None, None])), gradients)
        assert told[1, 0, 0] == pytest.approx(float((gradients[0, :, 0] ** 2).sum()), rel=1e-13, abs=5e-324)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_that_is_no_number_shows_and_harms_nobody(functions, name, bad):
    problem, size = PROBLEMS[name]
    points, rows = drawn(problem, size)
    told, _, _ = told_by(problem, points, rows)
    points[1, :, 3] = bad
    spoilt, _, _ = told_by(problem, points, rows)
    gradients = np.empty_like(points)
    with np.errstate(all="ignore"):
        losses = problem.loss_and_gradient(points, next(problem.batches(rows[None])), gradients)
        expected = np.isfinite(losses + (gradients**2).sum(axis=(1, 3)))
        assert np.isfinite(spoilt[0] + spoilt[1])[1, 3] == expected[1, 3]
    others = np.ones((3, WIDTH), bool)
    others[1, 3] = False
    assert spoilt[:, others].tobytes() == told[:, others].tobytes()


@pytest.mark.parametrize("name", PROBLEMS)
def test_bits_depend_on_no_neighbour(functions, name):
    problem, size = PROBLEMS[name]
    points, rows = drawn(problem, size)
    told, moved, _ = told_by(problem, points, rows)
    alone = np.repeat(points[1:2, :, 5:6], WIDTH, axis=2)
    one, there, _ = told_by(problem, alone, rows[1:2])
    assert (one[:, 0, 9] == told[:, 1, 5])[[0, 1, 4]].all()
    assert (there[0, :, 9] == moved[1, :, 5]).all()
    assert problem.full_loss(alone)[0, 2] == problem.full_loss(points)[1, 5]


def test_bits_depend_on_no_processor(functions, tmp_path):
    """Compiled without wide instructions, as on another machine."""
    compiler = next(name for name in ("cc", "gcc", "clang") if shutil.which(name))
    flags = [flag for flag in kernels._FLAGS if flag != "-O3"]
    plain = tmp_path / "plain.so"
    command = [compiler, *flags, "-O1", "-Wno-psabi", *map(str, kernels._SOURCES), "-o", str(plain), "-lm"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    found = []
    for _ in range(2):
        numbers = []
        for problem, size in PROBLEMS.values():
            points, rows = drawn(problem, size)
            numbers += [*told_by(problem, points, rows), problem.full_loss(points)]
            if isinstance(problem, LogisticRegression):
                numbers += problem.prox(points, rows, np.geomspace(0.01, 100, 3 * WIDTH).reshape(3, WIDTH))
        found.append(b"".join(np.nan_to_num(array).tobytes() for array in numbers))
        functions(ctypes.CDLL(str(plain)))
    assert found[0] == found[1]


@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize(("classes", "size"), [(2, 4), (2, 12), (3, 4), (3, 12), (4, 1)])
def test_proximal_points_are_those_of_numpy(functions, classes, size, l2):
    problem = classification(classes, 40, 6, l2=l2)
    points, rows = drawn(problem, size, tiles=2)
    lr = np.geomspace(1e-3, 1e6, 2 * WIDTH).reshape(2, WIDTH)
    points[0, :, 9:] = points[0, :, :1]
    lr[0, 9:] = lr[0, 0]
    found = problem.prox(points, rows, lr)
    alone = problem.prox(np.repeat(points[1:, :, 6:7], WIDTH, axis=2), rows[1:], np.full((1, WIDTH), lr[1, 6]))
    assert (alone.points[0, :, 0] == found.points[1, :, 6]).all()
    functions(None)
    expected = problem.prox(points, rows, lr)
    np.testing.assert_allclose(found.points, expected.points, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-7, atol=1e-14)
    assert found.gaps.max() <= 1e-9
    small = lr <= 10.0  # where the weight of the distance is above rounding
    np.testing.assert_allclose(found.losses[small], expected.losses[small], rtol=1e-11, atol=1e-14)


def test_a_problem_derived_from_ours_computes_for_itself(functions):
    class Halved(LinearRegression):
        def mean_loss(self, predictions, targets, slopes):
            return 0.5 * super().mean_loss(predictions, targets, slopes)

    problem, halved = LinearRegression(), Halved()
    points, _ = drawn(problem, 5)
    assert compiled_tiles(halved, points, points, np.empty((5, 3, WIDTH))) is None
    np.testing.assert_allclose(halved.full_loss(points), 0.5 * problem.full_loss(points), rtol=1e-13)
