"""Read LIBSVM text: one line per row, ``label index:value index:value ...``, indices counted from one."""

import bisect
import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot._base.arguments import whole

# How each format announces itself; the file name is not asked, so a renamed file reads as well.
_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
}
_MALFORMED = (ValueError, OverflowError)


def read_libsvm(
    path: str | os.PathLike[str], *, n_features: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read a LIBSVM file, plain or compressed by gzip, bzip2 or xz, with scikit-learn.

    Comments (``#`` to the end of the line), ``qid:`` entries and blank lines are skipped.

    Args:
        path: The file.
        n_features: Columns of ``X``. By default the largest index of the file, which for a test file may be less
            than in the training file.

    Returns:
        ``X`` with one row per line, and ``y`` with the labels as they stand in the file.

    Raises:
        ValueError: A malformed line (named with its number), a damaged compressed file, or a file with no rows.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny"
    >>> _ = file.write_text("+1 1:0.5 3:2\\n-1 2:1  # a comment\\n")
    >>> X, y = read_libsvm(file)
    >>> X.tolist(), y.tolist()
    ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1.0, -1.0])
    """
    file = Path(path)
    if n_features is not None:
        whole("n_features", n_features, 1)
    lines = _content(file).removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    try:
        X, y = _parsed(lines, n_features)
    except _MALFORMED as error:
        # As many lines from the start as can be read; the next one is at fault.
        good = bisect.bisect_left(range(1, len(lines)), True, key=lambda count: _fails(lines[:count], n_features))
        limit = "" if n_features is None else f" up to {n_features}"
        raise ValueError(
            f"{file}, line {good + 1}: must be a finite label, then index:value with increasing indices from 1{limit} "
            f"and finite values, got {lines[good].strip().decode('utf-8', 'replace')[:200]!r} ({error})"
        ) from error
    if not len(y):
        raise ValueError(f"{file}: no rows in this file")
    return X, y


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    decompress = next((function for magic, function in _DECOMPRESSORS.items() if content.startswith(magic)), bytes)
    try:
        return decompress(content)
    except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{file}: damaged or cut compressed file ({error})") from error


def _parsed(lines: list[bytes], n_features: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features and labels that scikit-learn reads; ValueError for numbers that are not finite, too."""
    from sklearn.datasets import load_svmlight_file

    rows, y = load_svmlight_file(io.BytesIO(b"".join(lines)), n_features=n_features, zero_based=False)
    if not (np.isfinite(rows.data).all() and np.isfinite(y).all()):
        raise ValueError("a number is not finite")
    return rows.toarray(), y


def _fails(lines: list[bytes], n_features: int | None) -> bool:
    try:
        _parsed(lines, n_features)
    except _MALFORMED:
        return True
    return False
