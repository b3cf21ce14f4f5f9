"""Data sets by name: inside the package, CIFAR-10, and LIBSVM files of one's own."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from surefoot._base.arguments import closest
from surefoot.data import cifar
from surefoot.data.cache import BUNDLED
from surefoot.data.dataset import Dataset, Task
from surefoot.data.images import Split, check_split, digits
from surefoot.data.libsvm import read_libsvm


@dataclass(frozen=True)
class DatasetInfo:
    """One line of the list of data sets: what :func:`load` takes, where it is, and the sizes of the training part."""

    name: str
    where: Literal["bundled", "cached", "downloadable"]
    rows: int
    features: int
    classes: int
    task: Task = "classification"
    path: Path | None = None
    """The training file, or the folder of CIFAR-10; None for what is no file of this machine."""


CATALOGUE = {
    "vowel": DatasetInfo("vowel", "bundled", 528, 10, 11, path=BUNDLED / "vowel.scale.xz"),
    "dna": DatasetInfo("dna", "bundled", 2000, 180, 3, path=BUNDLED / "dna.scale.xz"),
    "digits": DatasetInfo("digits", "bundled", 1437, 64, 10),
    "cifar10": DatasetInfo("cifar10", "downloadable", 50_000, 3072, 10),
}
"""The data sets that need no file of one's own."""


def load(name: str | os.PathLike[str], split: Split = "train", *, task: Task | None = None) -> Dataset:
    """A data set by name.

    ``vowel``, ``dna`` and ``digits`` are part of the package, ``cifar10`` is downloaded once; images are rows of pixels
    from 0 to 1. Any other name is the path of a LIBSVM file of your own. Its test file has the same name and ``.t``
    behind it.

    Args:
        name: The data set.
        split: The training file or the test file. Test labels get the class numbers they have in the training file.
        task: What the labels mean. For a file of your own, labels that are all whole numbers mean classification.

    Raises:
        ValueError: Unknown name, no such split, a malformed or damaged file.
        DownloadError: CIFAR-10 is not on this machine and cannot be downloaded.

    >>> data = load("vowel")
    >>> data.X.shape, data.n_classes, data.y[:3].tolist()
    ((528, 10), 11, [0, 1, 2])
    """
    check_split(split)
    text = os.fspath(name)
    if text in ("digits", "cifar10"):
        images = digits(split) if text == "digits" else cifar.cifar10(split)
        pixels, labels = images.images.reshape(len(images), -1) / 255, tuple(map(float, range(len(images.classes))))
        return Dataset.from_arrays(text, pixels, images.labels, task=task or "classification", labels=labels)
    file = _file(text)
    if split == "train":
        X, y = read_libsvm(file)
        if task is None:
            task = "classification" if bool(np.all(y == np.floor(y))) else "regression"
        return Dataset.from_arrays(text, X, y, task=task)
    test = _test_file(file)
    if not test.is_file():
        raise ValueError(f"split must be 'train', got 'test': the data set {text!r} has no test file")
    train = load(name, task=task)
    X, y = read_libsvm(test, n_features=train.X.shape[1])
    return Dataset.from_arrays(text, X, y, task=train.task, labels=train.labels or None)


def get(name: str, *, path: str | os.PathLike[str] | None = None) -> list[Path]:
    """Make sure that a data set is on this machine, and return its files: training, then test if there is one.

    Args:
        name: The data set.
        path: For ``cifar10``: a folder that has it, instead of a download.

    >>> [path.name for path in get("vowel")]
    ['vowel.scale.xz', 'vowel.scale.t.xz']
    """
    if name == "cifar10":
        for split in get_args(Split):
            cifar.cifar10(split, path)  # which checks its batches
        return [cifar.located(path)]
    if path is not None:
        raise ValueError(f"path must be left out for {name!r}, only cifar10 is read from one, got {os.fspath(path)!r}")
    if name == "digits":
        return []  # scikit-learn has them
    train = _file(name)
    read_libsvm(train)
    return [file for file in (train, _test_file(train)) if file.is_file()]


def available() -> list[DatasetInfo]:
    """All data sets that :func:`load` knows by name, and where they are.

    >>> [info.name for info in available()], available()[0].rows
    (['vowel', 'dna', 'digits', 'cifar10'], 528)
    """
    *bundled, cifar10 = CATALOGUE.values()
    folder = cifar.found()
    return [*bundled, replace(cifar10, where="cached", path=folder) if folder else cifar10]


def _file(name: str) -> Path:
    """The training file of a name; ValueError with close names if there is none."""
    known = CATALOGUE.get(name)
    path = Path(name).expanduser() if known is None or known.path is None else known.path
    if not path.is_file():
        raise ValueError(
            f"data set must be one of {', '.join(CATALOGUE)}, or the path of a LIBSVM file, got {name!r}"
            f"{closest(name, CATALOGUE)}"
        )
    return path


def _test_file(train: Path) -> Path:
    compressed = ".xz" if train.suffix == ".xz" else ""
    return train.with_name(train.name.removesuffix(compressed) + ".t" + compressed)
