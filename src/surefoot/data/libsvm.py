"""Read and write LIBSVM text: one line a row, ``label index:value index:value ...``, indices counted from one.

One expression says what the format is; where it does not match, the lines are gone through to say which one is wrong.
"""

import bz2
import codecs
import gzip
import lzma
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._base.files import write_whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_BLOCK_BYTES = 1 << 24
_LARGEST_INDEX = 2**31 - 1
_DENSE_LIMIT_BYTES = 8 << 30
_NUMBER = rb"[+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+"
_FORMAT = re.compile(rb"(?:\s*+%b(?:[^\S\n]++\d++:%b)*+[^\S\n]*+\n)*+\s*+" % (_NUMBER, _NUMBER))
_COMMENT = re.compile(rb"#[^\n]*")
_QUERY_ID = re.compile(rb"^([^\S\n]*[^\s:]+[^\S\n]+)qid:\d+(?=\s|\Z)", re.MULTILINE)

# How each format announces itself; the file name is not asked, so a renamed file reads as well.
_DECOMPRESSORS: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


_Rows = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""Some parsed rows: a label and a count of features for each row, then columns (from zero) and values of them all."""


@overload
def read_libsvm(
    path: str | os.PathLike[str], *, dense: Literal[True] = True, n_features: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...


@overload
def read_libsvm(
    path: str | os.PathLike[str], *, dense: Literal[False], n_features: int | None = None
) -> tuple["csr_array[np.float64]", NDArray[np.float64]]: ...


@overload
def read_libsvm(
    path: str | os.PathLike[str], *, dense: bool, n_features: int | None = None
) -> tuple["NDArray[np.float64] | csr_array[np.float64]", NDArray[np.float64]]: ...


def read_libsvm(
    path: str | os.PathLike[str], *, dense: bool = True, n_features: int | None = None
) -> tuple["NDArray[np.float64] | csr_array[np.float64]", NDArray[np.float64]]:
    """Read a LIBSVM file, plain or compressed by gzip, bzip2 or xz.

    Comments (``#`` to the end of the line), ``qid:`` entries and blank lines are skipped.

    Args:
        path: The file.
        dense: Return ``X`` as an array; otherwise as a SciPy CSR array.
        n_features: Columns of ``X``. By default the largest index of the file, which for a test file may be less
            than in the training file.

    Returns:
        ``X`` with one row a line, and ``y`` with the labels as they stand in the file; both float64.

    Raises:
        ValueError: A malformed line (the message has the file and the line number), a damaged compressed file, or a
            file with no rows.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny"
        >>> _ = file.write_text("+1 1:0.5 3:2\\n-1 2:1  # a comment\\n")
        >>> X, y = read_libsvm(file)
        >>> X.tolist(), y.tolist()
        ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1.0, -1.0])
    """
    file = Path(path)
    if n_features is not None and not (isinstance(n_features, int | np.integer) and 1 <= n_features <= _LARGEST_INDEX):
        raise ValueError(f"n_features must be a whole number from 1 to {_LARGEST_INDEX}, got {n_features!r}")
    largest = n_features or _LARGEST_INDEX
    parsed = []
    line_number = 1
    for block in _blocks(file):
        rows = _parse_block(block, largest)
        if rows is None:
            raise _fault(block, largest, file, line_number)
        parsed.append(rows)
        line_number += block.count(b"\n")
    if not sum(len(labels) for labels, *_ in parsed):
        raise ValueError(f"{file}: no rows in this file")
    labels, counts, columns, values = (np.concatenate(pieces) for pieces in zip(*parsed, strict=True))
    shape = (len(labels), n_features or int(columns.max(initial=-1)) + 1)
    if not dense:
        from scipy.sparse import csr_array

        sparse = csr_array((values, columns, np.concatenate([[0], np.cumsum(counts)])), shape=shape)
        sparse.eliminate_zeros()
        return sparse, labels
    if (size := 8 * shape[0] * shape[1]) > _DENSE_LIMIT_BYTES:
        raise ValueError(
            f"{file}: {shape[0]} rows of {shape[1]} features need {size / 2**30:.0f} GiB as a dense array; "
            "read it with dense=False"
        )
    matrix = np.zeros(shape)
    matrix[np.repeat(np.arange(shape[0]), counts), columns] = values
    return matrix, labels


def count_rows(path: str | os.PathLike[str]) -> int:
    """Count the rows of a LIBSVM file, plain or compressed, without reading their numbers.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny"
        >>> _ = file.write_text("+1 1:0.5 3:2\\n\\n-1 2:1  # a comment\\n")
        >>> count_rows(file)
        2
    """
    return sum(bool(line.partition(b"#")[0].strip()) for block in _blocks(Path(path)) for line in block.splitlines())


def _blocks(file: Path) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines, each ended by a newline, so that large files need little memory."""
    with open(file, "rb") as raw:
        start = raw.read(6)
    opener = next((opener for magic, opener in _DECOMPRESSORS.items() if start.startswith(magic)), None)
    try:
        with cast(IO[bytes], opener(file) if opener else open(file, "rb")) as stream:
            rest = stream.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
            while chunk := stream.read(_BLOCK_BYTES):
                head, newline, tail = (rest + chunk).rpartition(b"\n")
                if newline:
                    yield head + newline
                rest = tail
            if rest:
                yield rest + b"\n"
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{file}: damaged or cut compressed file ({error})") from error
    except OSError as error:
        if error.errno is None:  # bz2 reports damage as a bare OSError
            raise ValueError(f"{file}: damaged or cut compressed file ({error})") from error
        raise


def _parse_block(block: bytes, largest: int) -> _Rows | None:
    """Return the rows of a block that ends with a newline, or None if a line in it is wrong."""
    if b"#" in block:
        block = _COMMENT.sub(b"", block)
    if b"qid:" in block:
        block = _QUERY_ID.sub(rb"\1", block)
    if not _FORMAT.fullmatch(block):
        return None
    counts = np.array([line.count(b":") for line in block.split(b"\n") if line.strip()], np.int64)
    numbers = np.fromstring(block.replace(b":", b" "), sep=" ") if len(counts) else np.empty(0)
    at_label = np.cumsum(2 * counts + 1) - 2 * counts - 1
    labels, features = numbers[at_label], np.delete(numbers, at_label).reshape(-1, 2)
    index, values = features.T.copy()
    rising = np.diff(index, prepend=0) > 0
    first = (np.cumsum(counts) - counts)[counts > 0]
    rising[first] = index[first] >= 1
    if not rising.all() or index.max(initial=0) > largest or not np.isfinite(numbers).all():
        return None
    return labels, counts, index.astype(np.int64) - 1, values


def _fault(block: bytes, largest: int, file: Path, line_number: int) -> ValueError:
    """Return an error with the number of the first line of a block that cannot be read, and what is wrong with it."""
    lines = enumerate(block.split(b"\n"), start=line_number)
    number, line = next((number, line) for number, line in lines if _parse_block(line + b"\n", largest) is None)
    label, *features = line.partition(b"#")[0].decode("utf-8", "replace").split()
    if features and re.fullmatch(r"qid:[0-9]+", features[0]):
        features = features[1:]
    complaint = _number_fault("label", label)
    previous = 0
    while features and not complaint:
        complaint = _feature_fault(features[0], previous, largest)
        previous = int(features.pop(0).partition(":")[0]) if not complaint else 0
    return ValueError(f"{file}, line {number}: {complaint or 'it must be of the form label index:value index:value'}")


def _feature_fault(text: str, previous: int, largest: int) -> str:
    """Return what is wrong with a feature that follows index ``previous``, nothing if it is right."""
    index_text, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[0-9]+", index_text):
        return f"feature {text!r} is not of the form index:value with a whole number as index"
    index = int(index_text)
    if index == 0:
        return f"feature {text!r} has index 0, but indices start at 1"
    if index == previous:
        return f"feature {text!r} repeats index {index}"
    if index < previous:
        return f"feature {text!r} comes after index {previous}, but indices must increase"
    if index > largest:
        return f"feature {text!r} has an index over the number of features, {largest}"
    return _number_fault(f"value of feature {text!r}", value)


def _number_fault(what: str, text: str) -> str:
    try:
        return "" if math.isfinite(float(text.replace("_", "?"))) else f"{what} is {text!r}, must be finite"
    except ValueError:
        hint = " (several labels on one row are not supported)" if what == "label" and "," in text else ""
        return f"{what} is {text!r}, not a number{hint}"


def write_libsvm(path: str | os.PathLike[str], X: "ArrayLike | csr_array[np.float64]", y: ArrayLike) -> None:
    """Write a LIBSVM file that reads back bit for bit, compressed if the name ends in ``.gz``, ``.bz2`` or ``.xz``.

    The file appears complete or not at all.

    Args:
        path: The file; an existing one is replaced.
        X: Rows, a dense matrix or a SciPy sparse one. Zeros are not written.
        y: Labels, one a row.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny.xz"
        >>> write_libsvm(file, [[0.0, 0.1], [2.0, 0.0]], [0, 1])
        >>> read_libsvm(file)[0].tolist()
        [[0.0, 0.1], [2.0, 0.0]]
    """
    from scipy.sparse import csr_array, issparse

    rows = X if issparse(X) else np.asarray(X, np.float64)
    labels = np.asarray(y, np.float64)
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise ValueError(f"X and y must have shapes (n, d) and (n,), got {rows.shape} and {labels.shape}")
    matrix = csr_array(rows, copy=True)  # a copy, because the next two lines work in place
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not (np.isfinite(labels).all() and np.isfinite(matrix.data).all()):
        raise ValueError("X and y must be finite")
    lines = []
    for row, label in enumerate(labels.tolist()):
        entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
        pairs = zip(matrix.indices[entries].tolist(), matrix.data[entries].tolist(), strict=True)
        lines.append(" ".join([f"{label:.17g}", *(f"{column + 1}:{value:.17g}" for column, value in pairs)]) + "\n")
    target = Path(path)
    compress = _COMPRESSORS.get(target.suffix, bytes)
    write_whole(target, compress("".join(lines).encode()), "the rows")
