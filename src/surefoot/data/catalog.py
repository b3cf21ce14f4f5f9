"""What surefoot knows about the LIBSVM collection: short names, files, sizes, and the checksums it can vouch for."""

import csv
from dataclasses import dataclass
from importlib import resources
from typing import Literal, get_args

Task = Literal["classification", "regression"]
Split = Literal["train", "test"]

# Folders of the LIBSVM site that hold one label a row, and what the label means there.
FOLDERS: dict[str, Task] = {"binary": "classification", "multiclass": "classification", "regression": "regression"}

PINNED_SHA256 = {
    "dna.scale": "03d39477c5e48415e9cd18e006efc8f7a3b5c3deaee8289a72511c35070e3cfe",
    "dna.scale.t": "d2eeed170e4e38ae2aba6aa4cd27a8ca4ecceb01a7751e8e509bb4e1a6bcef39",
    "vowel.scale": "89ecbd4590cabc23b001cbd2d90128efe3c8ad02540ce1a08ef367b98d765585",
    "vowel.scale.t": "b96670a92b4d4d711db91ecc6c89bf7d75347a1ef1f196f5876575f1c5f9a240",
}
"""SHA-256 of whole files of the LIBSVM site, by file name."""

BUNDLED = ("vowel", "dna")
"""Names whose files are part of the package."""


def check_split(split: str) -> None:
    """Raise ValueError unless the name is that of a part."""
    if split not in get_args(Split):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and its size.

    ``folder`` is empty for a file of the user's own, which no site has; sizes are None where nobody has said them.
    """

    name: str
    folder: str
    train: str
    test: str | None = None
    rows: int | None = None
    features: int | None = None
    classes: int | None = None

    @property
    def task(self) -> Task | None:
        """What the labels mean, None if the folder does not tell."""
        return FOLDERS.get(self.folder)

    def file(self, split: Split) -> str:
        """Return the file name of one part; ValueError if there is no such part."""
        check_split(split)
        if split == "train":
            return self.train
        if self.test is None:
            raise ValueError(f"split must be 'train', got 'test': the data set {self.name!r} has no test file")
        return self.test


def _catalog() -> dict[str, Source]:
    """The table that is part of the package; a short name means the scaled file where there is one, as in the paper."""
    text = (resources.files("surefoot.data") / "files" / "libsvm.csv").read_text(encoding="utf-8")
    sources = {}
    for row in csv.DictReader(text.splitlines()):
        rows, features, classes = (int(row[size]) if row[size] else None for size in ("rows", "features", "classes"))
        name = row["name"]
        sources[name] = Source(name, row["folder"], row["train"], row["test"] or None, rows, features, classes)
    return sources


CATALOG = _catalog()
"""The data sets that have a short name."""
