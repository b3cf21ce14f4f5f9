"""LIBSVM text, and the line that a bad file is refused for."""

import bz2
import gzip
import lzma

import pytest

from surefoot.data import read_libsvm

TEXT = b"+1 1:0.5 3:2\n\n-1 qid:3 2:1e-3  # a comment\n# another\n2\n"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize(
    "change", [bytes, gzip.compress, bz2.compress, lzma.compress, lambda text: b"\xef\xbb\xbf" + text]
)
def test_reading(file, change):
    file.write_bytes(change(TEXT))
    X, y = read_libsvm(file)
    assert X.tolist() == [[0.5, 0.0, 2.0], [0.0, 1e-3, 0.0], [0.0, 0.0, 0.0]]
    assert y.tolist() == [1.0, -1.0, 2.0]
    assert read_libsvm(file, n_features=5)[0].shape == (3, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 1:2\n\xc2\xa0\n", r"line 2: label is '\\xa0', not a number"),
        (b"1 1:2\nx 1:2\n", "line 2: label is 'x', not a number"),
        (b"1,2 1:2\n", "line 1: label is '1,2', not a number .several labels per row"),
        (b"1 1:2\n\n1 0:2\n", "line 3: feature '0:2' has index 0, but indices start at 1"),
        (b"1 2:2 1:3\n", "line 1: feature '1:3' comes after index 2"),
        (b"1 2:2 2:3\n", "line 1: feature '2:3' comes after index 2"),
        (b"1 2:2 3\n", "line 1: feature '3' is not of the form index:value"),
        (b"1 2:two\n", "line 1: value of feature '2:two' is 'two', not a number"),
        (b"1 1:2\n1 2:nan\n", "line 2: value of feature '2:nan' is 'nan', must be finite"),
        (b"inf 1:2\n", "line 1: label is 'inf', must be finite"),
        (b"1 1:1\n1 9:2\n", "line 2: feature '9:2' has an index over the number of features, 8"),
        (b"# nothing\n", "no rows in this file"),
        (gzip.compress(TEXT)[:-5], "damaged or cut compressed file"),
    ],
)
def test_bad_lines_are_named(file, text, message):
    file.write_bytes(text)
    with pytest.raises(ValueError, match=rf"data(:|,) {message}"):
        read_libsvm(file, n_features=8)


def test_the_number_of_features_is_a_whole_number(file):
    with pytest.raises(ValueError, match="n_features must be a whole number of at least 1, got 0"):
        read_libsvm(file, n_features=0)
