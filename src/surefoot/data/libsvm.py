"""Read LIBSVM text: one line per row, ``label index:value index:value ...``, indices counted from one."""

import bz2
import gzip
import io
import lzma
import math
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# How each format announces itself; the file name is not asked, so a renamed file reads as well.
_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
}


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
        ``X`` with one row per line, and ``y`` with the labels as they stand in the file; both float64.

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
    from sklearn.datasets import load_svmlight_file

    file = Path(path)
    if n_features is not None and not (isinstance(n_features, int | np.integer) and n_features >= 1):
        raise ValueError(f"n_features must be a whole number of at least 1, got {n_features!r}")
    content = _content(file).removeprefix(b"\xef\xbb\xbf")
    try:
        rows, y = load_svmlight_file(io.BytesIO(content), n_features=n_features, zero_based=False)
    except (ValueError, OverflowError) as error:
        raise _fault(file, content, n_features) or ValueError(f"{file}: {error}") from error
    if not len(y):
        raise ValueError(f"{file}: no rows in this file")
    if not (np.isfinite(rows.data).all() and np.isfinite(y).all()):
        raise _fault(file, content, n_features) or ValueError(f"{file}: a number is not finite")
    X: NDArray[np.float64] = rows.toarray()
    return X, y


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    decompress = next((function for magic, function in _DECOMPRESSORS.items() if content.startswith(magic)), bytes)
    try:
        return decompress(content)
    except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{file}: damaged or cut compressed file ({error})") from error


def _fault(file: Path, content: bytes, n_features: int | None) -> ValueError | None:
    """Return an error that names the first line that cannot be read, and what is wrong with it."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        # Bytes are split at the blanks of ASCII only, as scikit-learn does: a no-break space is a fault.
        label, *features = [part.decode("utf-8", "replace") for part in line.partition(b"#")[0].split()] or ["0"]
        if features and features[0].startswith("qid:"):
            features = features[1:]
        complaint = _number_fault("label", label)
        previous = 0
        for feature in features:
            complaint = complaint or _feature_fault(feature, previous, n_features or math.inf)
            previous = previous if complaint else int(feature.partition(":")[0])
        if complaint:
            return ValueError(f"{file}, line {number}: {complaint}")
    return None


def _feature_fault(text: str, previous: int, largest: float) -> str:
    """Return what is wrong with a feature that follows index ``previous``, nothing if it is right."""
    index_text, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[0-9]+", index_text):
        return f"feature {text!r} is not of the form index:value with a whole number as index"
    index = int(index_text)
    if index == 0:
        return f"feature {text!r} has index 0, but indices start at 1"
    if index <= previous:
        return f"feature {text!r} comes after index {previous}, but indices must increase"
    if index > largest:
        return f"feature {text!r} has an index over the number of features, {largest}"
    return _number_fault(f"value of feature {text!r}", value)


def _number_fault(what: str, text: str) -> str:
    try:
        return "" if math.isfinite(float(text)) else f"{what} is {text!r}, must be finite"
    except ValueError:
        hint = " (several labels per row are not supported)" if what == "label" and "," in text else ""
        return f"{what} is {text!r}, not a number{hint}"
