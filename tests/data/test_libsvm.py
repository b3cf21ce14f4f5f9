import bz2
import gzip
import itertools
import lzma
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array

from surefoot.data import libsvm, read_libsvm, write_libsvm

TEXT = b"+1 1:0.5 3:-2e-3\n-1 2:1\n\n3.5\n"
X = np.array([[0.5, 0.0, -2e-3], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
Y = np.array([1.0, -1.0, 3.5])
shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(folder: Path, text: bytes) -> Path:
    path = folder / "data"
    path.write_bytes(text)
    return path


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_reads_every_compression_whatever_the_file_is_called(tmp_path, compress):
    found, labels = read_libsvm(written(tmp_path, compress(TEXT)))
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(labels, Y)


def test_sparse_equals_dense(tmp_path):
    found, labels = read_libsvm(written(tmp_path, TEXT), dense=False)
    assert isinstance(found, csr_array)
    np.testing.assert_array_equal(found.toarray(), X)
    np.testing.assert_array_equal(labels, Y)


def test_stored_zeros_are_dropped_from_the_sparse_form(tmp_path):
    assert read_libsvm(written(tmp_path, b"1 1:0 2:5\n"), dense=False)[0].nnz == 1


@pytest.mark.parametrize(
    "text",
    [
        b"1 1:2 2:3 # note 5:6\n# a whole line\n2 2:4\n",
        b"1 qid:7 1:2 2:3\n2\tqid:8\t2:4\n",
        b"1 1:2 2:3 \r\n2 2:4\r\n",
        b"\n\n  1   1:2\t2:3\n \n2 2:4",
        b"1 1:2 2:3 # caf\xe9 qid:1\n2 qid:3 2:4 #\n",
        b"1 0000000001:2 2:3\n2 2:4\n",
    ],
    ids=["comments", "query ids", "windows line ends", "blank space", "comment after query id", "leading zeros"],
)
def test_reads_the_variants_of_the_format(tmp_path, text):
    found, labels = read_libsvm(written(tmp_path, text))
    np.testing.assert_array_equal(found, [[2, 3], [0, 4]])
    np.testing.assert_array_equal(labels, [1, 2])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"1 0:2", "'0:2' has index 0, but indices start at 1"),
        (b"1 2:2 1:3", "'1:3' comes after index 2"),
        (b"1 2:2 2:3", "'2:3' repeats index 2"),
        (b"1 2", "'2' is not of the form index:value"),
        (b"1 2:", "value of feature '2:' is '', not a number"),
        (b"1 :2", "':2' is not of the form"),
        (b"1 1:2:3", "'2:3', not a number"),
        (b"1 1.5:2", "'1.5:2' is not of the form"),
        (b"1 -1:2", "'-1:2' is not of the form"),
        (b"1 1e1:2", "'1e1:2' is not of the form"),
        (b"1 1:abc", "'abc', not a number"),
        (b"1 1:1_0", "'1_0', not a number"),
        (b"1 1:nan", "'nan', must be finite"),
        (b"1 1:1e999", "'1e999', must be finite"),
        (b"inf 1:1", "label is 'inf', must be finite"),
        (b"1:2 3", "label is '1:2', not a number"),
        (b"1,2 1:2", "several labels on one row are not supported"),
        (b"qid:3 1:2", "label is 'qid:3', not a number"),
        (b"1 1:2 qid:3", "'qid:3' is not of the form"),
        (b"1 qid:x 1:2", "'qid:x' is not of the form"),
        (b"1 99999999999:2", "index over the number of features"),
        (b"1 1:\xff", "not a number"),
    ],
)
def test_malformed_line_is_named(tmp_path, line, complaint):
    path = written(tmp_path, b"1 1:1\n# comment\n" + line + b"\n2 1:1\n")
    with pytest.raises(ValueError, match="line 3: ") as caught:
        read_libsvm(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)


def test_line_numbers_run_on_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(libsvm, "_BLOCK_BYTES", 16)
    with pytest.raises(ValueError, match="line 101: "):
        read_libsvm(written(tmp_path, b"1 1:2 3:4\n" * 100 + b"1 0:1\n"))


@pytest.mark.parametrize("block", [1, 7, 64])
def test_block_size_does_not_matter(tmp_path, monkeypatch, block):
    monkeypatch.setattr(libsvm, "_BLOCK_BYTES", block)
    np.testing.assert_array_equal(read_libsvm(written(tmp_path, TEXT))[0], X)


def test_number_of_features_can_be_given(tmp_path):
    assert read_libsvm(written(tmp_path, TEXT), n_features=5)[0].shape == (3, 5)


def test_index_over_the_given_number_of_features_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"line 1: feature '3:-2e-3' has an index over the number of features, 2"):
        read_libsvm(written(tmp_path, TEXT), n_features=2)


def test_mark_of_utf_8_at_the_start_is_skipped(tmp_path):
    plain, marked = read_libsvm(written(tmp_path, TEXT)), tmp_path / "marked"
    marked.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "data").read_bytes())
    np.testing.assert_array_equal(read_libsvm(marked)[0], plain[0])
    marked.write_bytes(b"\xef\xbb\xbf")
    assert libsvm.count_rows(marked) == 0


@pytest.mark.parametrize("count", [0, 2.5, "3"])
def test_number_of_features_must_be_positive(tmp_path, count):
    with pytest.raises(ValueError, match=f"n_features must be a whole number from 1 to 2147483647, got {count!r}"):
        read_libsvm(written(tmp_path, TEXT), n_features=count)


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# only a comment\n"])
def test_file_without_rows_is_an_error(tmp_path, text):
    with pytest.raises(ValueError, match="no rows"):
        read_libsvm(written(tmp_path, text))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("damage", [lambda data: data[:-10], lambda data: data[:20] + b"?" + data[21:]])
def test_damaged_compressed_file_is_named(tmp_path, compress, damage):
    path = written(tmp_path, damage(compress(TEXT * 50)))
    with pytest.raises(ValueError, match="damaged or cut compressed file") as caught:
        read_libsvm(path)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_libsvm(tmp_path / "nowhere")


def test_dense_form_too_large_for_memory_is_refused(tmp_path):
    with pytest.raises(ValueError, match="dense=False"):
        read_libsvm(written(tmp_path, b"1 2000000000:1\n"))


# Pieces that LIBSVM lines are made of, right and wrong, glued at random.
PIECES = ["1", "2", "30", "-1", "+0.5", "1e3", "nan", "1_0", ":", "1:2", "2:0.5", "3:-7", "qid:4"]
PIECES += [" ", "\t", "\n", "#", "x"]


def plainly(line):
    """Label and features of a line, read word by word; None for a blank one."""
    label, *features = line.partition("#")[0].split() or [None]
    if features and re.fullmatch("qid:[0-9]+", features[0]):
        features = features[1:]
    pairs = [(int(index), number(value)) for index, _, value in (feature.partition(":") for feature in features)]
    indices = [0, *(index for index, _ in pairs)]
    if any(after <= before or after > 100 for before, after in itertools.pairwise(indices)):
        raise ValueError(f"indices must rise: {line}")
    return label and (number(label), pairs)


def number(text):
    if "_" in text or not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


@given(st.lists(st.sampled_from([*PIECES, " ", "\n"]), max_size=40).map("".join))
@settings(max_examples=300)
def test_a_block_is_read_as_its_words_are_or_refused_with_its_first_wrong_line(text):
    block = text.encode() + b"\n"
    rows, wrong = [], 0
    for place, line in enumerate(text.split("\n"), start=1):
        try:
            rows.append(plainly(line))
        except ValueError:
            wrong = place
            break
    found = libsvm._parse_block(block, 100)
    assert (found is None) == bool(wrong)
    if found is None:
        assert str(libsvm._fault(block, 100, Path("text"), 1)).startswith(f"text, line {wrong}: ")
        return
    rows = list(filter(None, rows))
    labels, counts, columns, values = (part.tolist() for part in found)
    assert labels == [label for label, _ in rows]
    assert counts == [len(pairs) for _, pairs in rows]
    assert list(zip(columns, values, strict=True)) == [
        (index - 1, value) for _, pairs in rows for index, value in pairs
    ]


matrices = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(allow_nan=False, allow_infinity=False) | st.just(0.0),
)


@given(matrices, st.data(), st.sampled_from(["", ".gz", ".bz2", ".xz"]), st.booleans())
@shared_folder
def test_what_is_written_reads_back_bit_for_bit(tmp_path, matrix, data, suffix, dense):
    labels = data.draw(hnp.arrays(np.float64, len(matrix), elements=st.floats(allow_nan=False, allow_infinity=False)))
    path = tmp_path / f"round{suffix}"
    write_libsvm(path, matrix if dense else csr_array(matrix), labels)
    found, found_labels = read_libsvm(path, dense=dense, n_features=matrix.shape[1])
    np.testing.assert_array_equal(found if dense else found.toarray(), matrix)
    np.testing.assert_array_equal(found_labels, labels)
    assert list(tmp_path.glob(".*.part")) == []


def test_writing_leaves_the_matrix_alone(tmp_path):
    matrix = csr_array((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    write_libsvm(tmp_path / "data", matrix, [1])
    assert matrix.nnz == 2


@pytest.mark.parametrize(
    ("matrix", "labels"), [([[1.0]], [1, 2]), ([1.0], [1]), ([[np.nan]], [1]), ([[1.0]], [np.inf])]
)
def test_what_cannot_be_written_is_refused(tmp_path, matrix, labels):
    with pytest.raises(ValueError, match="X and y must"):
        write_libsvm(tmp_path / "data", matrix, labels)
    assert list(tmp_path.glob("*data*")) == []
