"""Data sets by name: inside the package, CIFAR-10, and LIBSVM files of one's own."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from surefoot._base.arguments import closest
from surefoot.data import cache, cifar
from surefoot.data.dataset import Dataset, Task
from surefoot.data.images import Images, check_split, digits
from surefoot.data.libsvm import read_libsvm

SUBFOLDER = "libsvm"
"""Files of one's own may also lie here, below a data folder."""

BUNDLED_SHA256 = {
    "vowel.scale": "89ecbd4590cabc23b001cbd2d90128efe3c8ad02540ce1a08ef367b98d765585",
    "vowel.scale.t": "b96670a92b4d4d711db91ecc6c89bf7d75347a1ef1f196f5876575f1c5f9a240",
    "dna.scale": "03d39477c5e48415e9cd18e006efc8f7a3b5c3deaee8289a72511c35070e3cfe",
    "dna.scale.t": "d2eeed170e4e38ae2aba6aa4cd27a8ca4ecceb01a7751e8e509bb4e1a6bcef39",
}
"""SHA-256 of the bundled LIBSVM texts, decompressed: those of the LIBSVM collection."""
_BUNDLED = ("vowel", "dna")


@dataclass(frozen=True)
class DatasetInfo:
    """One line of the list of data sets.

    Attributes:
        name: What `load` takes.
        where: In the package, in a folder of this machine, or only on a site.
        task: What the labels mean, None if unknown before reading.
        rows: Rows of the training file, None if unknown before reading, as are the next two.
        features: Columns.
        classes: Classes, None for regression.
        path: The training file, None if it is not a file of this machine.
    """

    name: str
    where: Literal["bundled", "cached", "downloadable"]
    task: Task | None
    rows: int | None
    features: int | None
    classes: int | None
    path: Path | None


def load(
    name: str | os.PathLike[str],
    split: Literal["train", "test"] = "train",
    *,
    task: Task | None = None,
    progress: bool = True,
) -> Dataset:
    """Return a data set by name.

    ``vowel``, ``dna`` and ``digits`` are part of the package, ``cifar10`` is downloaded once; images are rows of pixels
    from 0 to 1. Any other name is a LIBSVM file of your own: a path, or the name of a file in a data folder (see
    `surefoot.data.folders`). Its test file has the same name and ``.t`` behind it.

    Args:
        name: The data set.
        split: The training file or the test file. Test labels get the class numbers they have in the training file.
        task: What the labels mean. For a file of your own, labels that are all whole numbers mean classification.
        progress: Say what is downloaded.

    Raises:
        ValueError: Unknown name, no such split, a malformed file.
        DownloadError: CIFAR-10 is not on this machine and cannot be downloaded.
        ChecksumError: A file is not what was published.

    Example:
        >>> data = load("vowel")
        >>> data.X.shape, data.n_classes, data.y[:3].tolist()
        ((528, 10), 11, [0, 1, 2])
    """
    check_split(split)
    if name == "digits":
        return _pixels("digits", digits(split), task)
    if name == "cifar10":
        return _pixels("cifar10", cifar.cifar10(split, progress=progress), task)
    path = _file(name, split)
    if split == "train":
        X, y = read_libsvm(path)
        if task is None:
            task = "classification" if bool(np.all(y == np.floor(y))) else "regression"
        return Dataset.from_arrays(os.fspath(name), X, y, task=task, copy=False)
    train = load(name, task=task)
    X, y = read_libsvm(path, n_features=train.X.shape[1])
    return Dataset.from_arrays(os.fspath(name), X, y, task=train.task, labels=train.labels or None, copy=False)


def get(name: str, *, path: str | os.PathLike[str] | None = None, progress: bool = True) -> list[Path]:
    """Make sure that a data set is on this machine, and return its files: training, then test if there is one.

    Args:
        name: The data set.
        path: For ``cifar10``: a folder that has it, instead of a download (see `cifar10`).
        progress: Say what is downloaded.

    Example:
        >>> [path.name for path in get("vowel")]
        ['vowel.scale.xz', 'vowel.scale.t.xz']
    """
    if name == "cifar10":
        folder = cifar.located(path, progress=progress)
        cifar.check(folder)
        return [folder]
    if path is not None:
        raise ValueError(f"path must be left out for {name!r}, only cifar10 is read from one, got {os.fspath(path)!r}")
    if name == "digits":
        return []  # scikit-learn has them
    train = _file(name, "train")
    read_libsvm(train)
    test = _test_file(train)
    return [train, test] if test.is_file() else [train]


def available() -> list[DatasetInfo]:
    """Return all data sets that `load` knows by name: those in the package, on this machine, then those on a site.

    Example:
        >>> [info.name for info in available()[:3]], available()[0].rows
        (['vowel', 'dna', 'digits'], 528)
    """
    folder = cifar.found()
    return [
        DatasetInfo("vowel", "bundled", "classification", 528, 10, 11, _file("vowel", "train")),
        DatasetInfo("dna", "bundled", "classification", 2000, 180, 3, _file("dna", "train")),
        DatasetInfo("digits", "bundled", "classification", 1437, 64, 10, None),
        *(DatasetInfo(name, "cached", None, None, None, None, _file(name, "train")) for name in _own_files()),
        DatasetInfo("cifar10", "cached" if folder else "downloadable", "classification", 50_000, 3072, 10, folder),
    ]


def _pixels(name: str, images: Images, task: Task | None) -> Dataset:
    """Return images as rows of pixels from 0 to 1."""
    rows = images.images.reshape(len(images), -1) / 255
    labels = tuple(float(label) for label in range(len(images.classes)))
    return Dataset.from_arrays(name, rows, images.labels, task=task or "classification", labels=labels, copy=False)


def _file(name: str | os.PathLike[str], split: Literal["train", "test"]) -> Path:
    """Return the file of a name; ValueError with close names if there is none."""
    text = os.fspath(name)
    path = Path(str(cache.bundled(f"{text}.scale"))) if text in _BUNDLED else Path(text).expanduser()
    if text and not path.is_file():
        places = (place / text for folder in cache.folders() for place in (folder, folder / SUBFOLDER))
        path = next((place for place in places if place.is_file()), path)
    if not text or not path.is_file():
        searched = ", ".join(str(folder) for folder in cache.folders())
        known = [*_BUNDLED, "digits", "cifar10", *_own_files()]
        raise ValueError(
            "data set must be a name that `surefoot data list` shows, or a LIBSVM file of your own by its path, or by "
            f"its name if it lies in {searched}, got {text!r}{closest(text, known)}"
        )
    if split == "train":
        return path
    test = _test_file(path)
    if not test.is_file():
        raise ValueError(f"split must be 'train', got 'test': the data set {text!r} has no test file")
    return test


def _test_file(train: Path) -> Path:
    compressed = ".xz" if train.suffix == ".xz" else ""
    return train.with_name(train.name.removesuffix(compressed) + ".t" + compressed)


def _own_files() -> list[str]:
    """Return the names of the training files in the data folders."""
    folders = (folder / SUBFOLDER for folder in cache.folders())
    names = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()}
    return sorted(
        name
        for name in names
        if not name.startswith(".") and name != "SHA256SUMS" and name.removesuffix(".t") not in names - {name}
    )
