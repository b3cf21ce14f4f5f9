"""Texts as the numbers of their characters, for models that predict the next one."""

import lzma
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot._base.arguments import share
from surefoot.data.cache import BUNDLED

FILE = "shakespeare.txt"

Codes = NDArray[np.unsignedinteger[Any]]


class Characters(NamedTuple):
    """A text as numbers of its characters, in two parts."""

    name: str
    train: Codes
    """The first part: for each character its place in the vocabulary."""
    validation: Codes
    """The rest, likewise."""
    vocabulary: str
    """All characters of the text, sorted."""


def characters(path: str | os.PathLike[str] | None = None, *, validation: float = 0.1) -> Characters:
    """The characters of a text file as numbers.

    Args:
        path: Any text file in UTF-8; by default some scenes of Shakespeare that are part of the package (100 kB).
        validation: Share of the text, from its end, for validation; at least 0 and under 1.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not text in UTF-8, or too short; ``validation`` is out of range.

    >>> text = characters()
    >>> len(text.train), len(text.validation), "".join(text.vocabulary[code] for code in text.train[:13])
    (89859, 9984, 'First Citizen')
    """
    share("validation", validation, or_zero=True)
    text = lzma.decompress((BUNDLED / f"{FILE}.xz").read_bytes()).decode() if path is None else _text(Path(path))
    letters, places = np.unique(np.frombuffer(text.encode("utf-32-le"), "<u4"), return_inverse=True)
    codes: Codes = places.astype(np.min_scalar_type(len(letters) - 1))
    n_train = len(codes) - round(validation * len(codes))
    if n_train == 0:
        raise ValueError(f"validation must leave some of the {len(codes)} characters for training, got {validation}")
    vocabulary = letters.tobytes().decode("utf-32-le")
    return Characters(FILE if path is None else Path(path).name, codes[:n_train], codes[n_train:], vocabulary)


def _text(path: Path) -> str:
    file = path.expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"path must be a text file, got {str(file)!r}, where there is none")
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeError as error:
        raise ValueError(f"{file} is not text in UTF-8: {error}") from error
    if len(text) < 2:
        raise ValueError(f"{file} must have at least 2 characters, got {len(text)}")
    return text
