"""CIFAR-10 in the binary layout of its authors: a row is the class, then the red, green and blue pixels."""

import hashlib
import os
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot.data import cache
from surefoot.data.images import Images, Split, check_split

URL = "https://www.cs.toronto.edu/~kriz"
URL_VARIABLE = "SUREFOOT_CIFAR_URL"
ARCHIVE = "cifar-10-binary.tar.gz"
ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
FOLDER = "cifar-10-batches-bin"
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)


def cifar10(split: Split = "train", path: str | os.PathLike[str] | None = None, *, rows: int | None = None) -> Images:
    """The 50,000 training or the 10,000 test images of CIFAR-10.

    They are read from ``path``, or from ``cifar-10-batches-bin`` in a data folder (see :func:`surefoot.data.folders`);
    if there is none, the authors' archive is downloaded and unpacked there (``SUREFOOT_CIFAR_URL`` may name a mirror of
    their site). Every batch must have its published MD5.

    Args:
        split: Training or test images.
        path: The folder ``cifar-10-batches-bin``, or one that holds it.
        rows: The first so many images only.

    Raises:
        FileNotFoundError: ``path`` has no CIFAR-10, or lacks a batch.
        ValueError: A batch is not what was published.
        DownloadError: It is not on this machine and cannot be downloaded.

    >>> images = cifar10("test")  # doctest: +SKIP
    >>> images.shape, images.classes[images.labels[0]]  # doctest: +SKIP
    ((3, 32, 32), 'cat')
    """
    check_split(split)
    folder = located(path)
    content = np.concatenate([_batch(folder / name) for name in MD5 if name.startswith("test") == (split == "test")])
    if rows is not None and not 1 <= rows <= len(content):
        raise ValueError(f"rows must lie in 1 … {len(content)}, the images of the {split} split, got {rows}")
    pixels, labels = content[:rows, 1:].reshape(-1, 3, 32, 32), content[:rows, 0].astype(np.int64)
    # A process on another machine looks for the files there, unless their folder was named.
    return Images(f"cifar10-{split}", pixels, labels, CLASSES, MEAN, STD, partial(cifar10, split, path, rows=rows))


def located(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder with the batches, downloaded and unpacked first if it is not there."""
    folder = found(path)
    if folder is not None:
        return folder
    if path is not None:
        raise FileNotFoundError(f"path must be a folder {FOLDER!r} or one that holds it, got {os.fspath(path)!r}")
    base = os.environ.get(URL_VARIABLE) or URL
    archive = cache.download(f"{base.rstrip('/')}/{ARCHIVE}", sha256=ARCHIVE_SHA256)
    with tarfile.open(archive) as tar:
        tar.extractall(archive.parent, filter="data")
    return archive.parent / FOLDER


def found(path: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder with the batches, which is or is in ``path`` or a data folder; None if there is none."""
    places = cache.folders() if path is None else [Path(path).expanduser()]
    candidates = [folder for place in places for folder in (place, place / FOLDER)]
    return next((folder for folder in candidates if any((folder / name).is_file() for name in MD5)), None)


def _batch(path: Path) -> NDArray[np.uint8]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name}, one of the six batches of CIFAR-10")
    content = path.read_bytes()
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != MD5[path.name]:
        raise ValueError(f"{path} has MD5 {md5}, but the published one has {MD5[path.name]}: changed or damaged")
    return np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
