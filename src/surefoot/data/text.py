"""Texts as the numbers of their characters, for models that predict the next one."""

import lzma
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot._base.arguments import share
from surefoot.data.cache import bundled

FILE = "shakespeare.txt"
SHA256 = "b4a657aedf64a7c4dbb5201c11d9c2443df0145061c8df8c386b30266dc1f389"
"""Checksum of the bundled text, decompressed."""

Codes = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Characters:
    """A text as numbers of its characters, in two parts. The arrays are read-only.

    Attributes:
        name: What it is called.
        train: The first part: for each character its place in the vocabulary.
        validation: The rest, likewise.
        vocabulary: All characters of the text, sorted.

    >>> text = characters()
    >>> text.decode(text.train[:13])
    'First Citizen'
    """

    name: str
    train: Codes
    validation: Codes
    vocabulary: str

    def __post_init__(self) -> None:
        for part in (self.train, self.validation):
            part.flags.writeable = False

    def decode(self, codes: ArrayLike) -> str:
        """The text that the numbers stand for."""
        return "".join(self.vocabulary[code] for code in np.asarray(codes).tolist())


def characters(path: str | os.PathLike[str] | None = None, *, validation: float = 0.1) -> Characters:
    """The characters of a text file as numbers.

    Args:
        path: Any text file in UTF-8; by default some scenes of Shakespeare that are part of the package (100 kB).
        validation: Share of the text, from its end, for validation; at least 0 and under 1.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not text in UTF-8, or too short; ``validation`` is out of range.

    >>> text = characters()
    >>> len(text.train), len(text.validation), len(text.vocabulary)
    (89859, 9984, 61)
    """
    share("validation", validation, or_zero=True)
    name, text = _text(path)
    letters, places = np.unique(np.frombuffer(text.encode("utf-32-le"), "<u4"), return_inverse=True)
    codes: Codes = places.astype(np.min_scalar_type(len(letters) - 1))
    n_train = len(codes) - round(validation * len(codes))
    if n_train == 0:
        raise ValueError(f"validation must leave some of the {len(codes)} characters for training, got {validation}")
    vocabulary = letters.tobytes().decode("utf-32-le")
    return Characters(name, codes[:n_train].copy(), codes[n_train:].copy(), vocabulary)


def _text(path: str | os.PathLike[str] | None) -> tuple[str, str]:
    if path is None:
        return FILE, lzma.decompress(bundled(FILE).read_bytes()).decode()
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"path must be a text file, got {str(file)!r}, where there is none")
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeError as error:
        raise ValueError(f"{file} is not text in UTF-8: {error}") from error
    if len(text) < 2:
        raise ValueError(f"{file} must have at least 2 characters, got {len(text)}")
    return file.name, text
