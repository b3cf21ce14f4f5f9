import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.data import Dataset, load, train_validation_split

X = np.arange(12.0).reshape(6, 2)
Y = [5, -1, 5, 2, -1, 2]


def test_labels_become_classes_in_increasing_order():
    data = Dataset.from_arrays("mine", X, Y)
    assert data.labels == (-1.0, 2.0, 5.0)
    assert data.y.tolist() == [2, 0, 2, 1, 0, 1]
    assert data.y.dtype == np.int64
    assert (data.n_classes, data.task) == (3, "classification")


def test_arrays_are_read_only_copies():
    data = Dataset.from_arrays("mine", X, Y)
    with pytest.raises(ValueError, match="read-only"):
        data.X[0] = 7
    assert X.flags.writeable


@pytest.mark.parametrize(
    ("matrix", "labels", "options", "complaint"),
    [
        (X[:, 0], Y, {}, r"X must have shape \(n, d\) .* got \(6,\)"),
        (X[:, :0], Y, {}, "at least one row and one column"),
        (X, Y[:5], {}, r"y must have shape \(6,\), one number for each row of X, got \(5,\)"),
        (X * np.nan, Y, {}, "X must be finite, got another entry in row 0"),
        (X, ["a", "b"] * 3, {}, r"y must be numbers, one for each row of X, got \['a'\]; np.unique"),
        (X, [1, 2, np.inf, 1, 2, 3], {}, "y must be finite, got another entry in row 2"),
        (X, Y, {"task": "ranking"}, "task must be one of classification, regression, got 'ranking'"),
        (X, [1] * 6, {}, "all rows have the label 1"),
        (X, Y, {"labels": (-1.0, 2.0)}, "label 5 is not among the known labels -1, 2"),
    ],
)
def test_bad_arrays_are_refused(matrix, labels, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Dataset.from_arrays("mine", matrix, labels, **options)


@pytest.mark.parametrize(("name", "train_rows", "validation_rows"), [("vowel", 422, 106), ("dna", 1600, 400)])
def test_split_sizes_of_the_paper(name, train_rows, validation_rows):
    train, validation = train_validation_split(load(name))
    assert (len(train.y), len(validation.y)) == (train_rows, validation_rows)


def test_split_is_a_partition_of_the_rows():
    rows = np.arange(1.0, 41).reshape(-1, 1)
    labels = np.arange(40) % 2
    parts = train_validation_split(Dataset.from_arrays("mine", rows, labels), 0.25)
    for part in parts:
        np.testing.assert_array_equal(part.y, (part.X[:, 0] - 1) % 2)
    both = np.concatenate([part.X for part in parts])
    assert sorted(both[:, 0].tolist()) == list(range(1, 41))


def test_validation_part_keeps_classes_that_it_lacks():
    labels = [0] * 9 + [1] * 9
    _, validation = train_validation_split(Dataset.from_arrays("mine", np.ones((18, 1)), labels), 0.05)
    assert len(validation.y) == 1
    assert validation.n_classes == 2


@given(st.integers(2, 500), st.floats(0, 0.5, exclude_min=True))
def test_neither_part_is_ever_empty(rows, fraction):
    data = Dataset.from_arrays("mine", np.ones((rows, 1)), np.arange(rows), task="regression")
    assert min(len(part.y) for part in train_validation_split(data, fraction)) >= 1


def test_fraction_that_leaves_no_training_row():
    data = Dataset.from_arrays("mine", np.ones((2, 1)), [1, 2], task="regression")
    with pytest.raises(ValueError, match=r"fraction must leave some of the 2 rows of 'mine' for training, got 0\.6"):
        train_validation_split(data, 0.6)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 2, float("nan")])
def test_fraction_out_of_range(fraction):
    with pytest.raises(ValueError, match=rf"fraction must be a number in \(0, 1\), got {fraction}"):
        train_validation_split(load("vowel"), fraction)
