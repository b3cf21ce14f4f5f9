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
    ("text", "line", "shown"),
    [
        (b"1 1:2\n\xc2\xa0\n", 2, r"\\xa0"),
        (b"1 1:2\nx 1:2\n", 2, "x 1:2"),
        (b"1,2 1:2\n", 1, "1,2 1:2"),
        (b"1 1:2\n\n1 0:2\n1 1:1\n", 3, "1 0:2"),
        (b"1 2:2 1:3\n", 1, "1 2:2 1:3"),
        (b"1 2:2 2:3\n", 1, "1 2:2 2:3"),
        (b"1 2:2 3\n", 1, "1 2:2 3"),
        (b"1 1:1\n1 1:1\n1 2:two\nx\n", 3, "1 2:two"),
        (b"1 1:2\n1 2:nan\n", 2, "1 2:nan"),
        (b"inf 1:2\n", 1, "inf 1:2"),
        (b"1 1:1\n1 9:2\n", 2, "1 9:2"),
    ],
)
def test_bad_lines_are_named(file, text, line, shown):
    file.write_bytes(text)
    rule = "must be a finite label, then index:value with increasing indices from 1 up to 8 and finite values"
    with pytest.raises(ValueError, match=f"data, line {line}: {rule}, got '{shown}'"):
        read_libsvm(file, n_features=8)


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"# nothing\n", "no rows in this file"), (gzip.compress(TEXT)[:-5], "damaged or cut compressed file")],
)
def test_bad_files_are_named(file, text, message):
    file.write_bytes(text)
    with pytest.raises(ValueError, match=f"data: {message}"):
        read_libsvm(file)


def test_the_number_of_features_is_a_whole_number(file):
    with pytest.raises(ValueError, match="n_features must be a whole number of at least 1, got 0"):
        read_libsvm(file, n_features=0)
