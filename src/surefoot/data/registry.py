"""Data sets by name: inside the package, on this machine, CIFAR-10, and the rest of the LIBSVM collection."""

import os
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from surefoot._base.arguments import closest
from surefoot.data import cache, cifar, optdigits
from surefoot.data.catalog import BUNDLED, CATALOG, FOLDERS, PINNED_SHA256, Source, Split, Task
from surefoot.data.dataset import Dataset
from surefoot.data.images import Images
from surefoot.data.libsvm import count_rows, read_libsvm

IMAGES = ("digits", "cifar10")
"""Names of images, which `load` gives as rows of pixels; `digits` and `cifar10` give them as images."""

Where = Literal["bundled", "cached", "downloadable"]

_PLACES = {
    file: f"{source.folder}/{file}" for source in CATALOG.values() for file in (source.train, source.test) if file
}
"""Where the files of the catalogue are on the site, by their names."""

_SITE_NAME = re.compile(rf"({'|'.join(FOLDERS)})((?:/\w[\w.+-]*)+)")


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
        path: The training file, None if it is not on this machine.
    """

    name: str
    where: Where
    task: Task | None
    rows: int | None
    features: int | None
    classes: int | None
    path: Path | None


def load(
    name: str | os.PathLike[str],
    split: Split = "train",
    dense: bool = True,
    *,
    task: Task | None = None,
    base_url: str | None = None,
    progress: bool = True,
) -> Dataset:
    """Return a data set by name.

    ``vowel`` and ``dna`` are part of the package. Any other name is looked up in the data folders (see
    `surefoot.data.folders`) and, if it is not there, downloaded to them once. A name is one of

    * a short name of the LIBSVM collection, as in `available`; it means the scaled file where there is one;
    * ``digits`` (part of the package too) or ``cifar10``: images as rows of pixels from 0 to 1;
    * a file of that collection with its folder, such as ``"binary/a9a.t"``;
    * a LIBSVM file of your own: a path, or the name of a file in a data folder.

    Args:
        name: The data set.
        split: The training file or the test file. Test labels get the class numbers they have in the training file.
        dense: ``X`` as an array; otherwise as a SciPy CSR array.
        task: What the labels mean. By default the folder of the collection tells; for a file of your own, labels that
            are all whole numbers mean classification.
        base_url: A mirror of the site, instead of the variable ``SUREFOOT_LIBSVM_URL`` (for CIFAR-10
            ``SUREFOOT_CIFAR_URL``) or the site itself.
        progress: Show a progress bar while downloading.

    Raises:
        ValueError: Unknown name, no such split, a malformed file.
        DownloadError: The file is not on this machine and cannot be downloaded.
        ChecksumError: The file is not what was published, or what was downloaded before.

    Example:
        >>> data = load("vowel")
        >>> data.X.shape, data.n_classes, data.y[:3].tolist()
        ((528, 10), 11, [0, 1, 2])
    """
    if name == "digits":
        return _pixels("digits", optdigits.digits(split), dense, task)
    if name == "cifar10":
        return _pixels("cifar10", cifar.cifar10(split, base_url=base_url, progress=progress), dense, task)
    source = _source(name)
    file = source.file(split)
    n_features, labels = source.features, None
    if split == "test":
        train = load(name, "train", dense, task=task, base_url=base_url, progress=progress)
        n_features, labels, task = train.X.shape[1], train.labels or None, train.task
    with _opened(source, file, base_url, progress) as path:
        X, y = read_libsvm(path, dense=dense, n_features=n_features)
        if split == "train":
            _check_rows(source, len(y), path)
    if task is None:
        are_whole = bool(np.all(y == np.floor(y)))
        task = source.task or ("classification" if are_whole else "regression")
    return Dataset.from_arrays(source.name, X, y, task=task, labels=labels, copy=False)


def get(
    name: str, *, path: str | os.PathLike[str] | None = None, base_url: str | None = None, progress: bool = True
) -> list[Path]:
    """Make sure that the files of a data set are on this machine, and return them: training, then test if there is one.

    Files that are there are checked and not downloaded again. For a data set of the package these are its compressed
    files in the installation; for ``cifar10`` it is the one file that all its images are prepared into.

    Args:
        name: The data set.
        path: For ``cifar10``: an archive or a folder that has it, instead of a download (see `cifar10`).
        base_url: A mirror of the site, as for `load`.
        progress: Show a progress bar while downloading.

    Example:
        >>> [path.name for path in get("vowel")]
        ['vowel.scale.xz', 'vowel.scale.t.xz']
    """
    if name == "cifar10":
        images = cifar.prepared(path, base_url=base_url, progress=progress)
        cifar.check(images)
        return [images]
    if path is not None:
        raise ValueError(f"path must be left out for {name!r}, only cifar10 is made from one, got {os.fspath(path)!r}")
    if name == "digits":
        return [Path(str(cache.bundled(optdigits.FILE)))]
    source = _source(name)
    paths = []
    for file in filter(None, (source.train, source.test)):
        with _opened(source, file, base_url, progress) as local:
            paths.append(local)
            if file == source.train:
                _check_rows(source, count_rows(local), local)
    return paths


def available() -> list[DatasetInfo]:
    """Return all data sets that `load` knows by name: those in the package, on this machine, then those on a site.

    Example:
        >>> [info.name for info in available()[:2]], available()[0].rows
        (['vowel', 'dna'], 528)
    """
    infos: dict[str, DatasetInfo] = {}
    for source in (*(CATALOG[name] for name in BUNDLED), *_own_files(), *CATALOG.values()):
        inside = source.name in BUNDLED
        path = Path(str(cache.bundled(source.train))) if inside else cache.find(source.train)
        size = (source.rows, source.features, source.classes)
        infos[source.name] = DatasetInfo(source.name, _where(path, inside), source.task, *size, path)
    digits, images = Path(str(cache.bundled(optdigits.FILE))), cifar.found()
    infos["digits"] = DatasetInfo("digits", "bundled", "classification", optdigits.TRAINING_ROWS, 64, 10, digits)
    infos["cifar10"] = DatasetInfo("cifar10", _where(images, False), "classification", 50_000, 3072, 10, images)
    return sorted(infos.values(), key=lambda info: get_args(Where).index(info.where))


def _where(path: Path | None, inside: bool) -> Where:
    return "bundled" if inside else "downloadable" if path is None else "cached"


def _pixels(name: str, images: Images, dense: bool, task: Task | None) -> Dataset:
    """Return images as rows of pixels from 0 to 1."""
    rows: Any = images.images.reshape(len(images), -1) / 255
    if not dense:
        from scipy.sparse import csr_array

        rows = csr_array(rows)
    labels = tuple(float(label) for label in range(len(images.classes)))
    return Dataset.from_arrays(name, rows, images.labels, task=task or "classification", labels=labels, copy=False)


def _source(name: str | os.PathLike[str]) -> Source:
    """Return what a name stands for; ValueError with close names if nothing."""
    text = os.fspath(name)
    if text in CATALOG:
        return CATALOG[text]
    if match := _SITE_NAME.fullmatch(text):
        return Source(text, folder=match[1], train=match[2].lstrip("/"))
    path = Path(text).expanduser() if os.path.isfile(os.path.expanduser(text)) else cache.find(text) if text else None
    if path is not None:
        test = path.with_name(path.name + ".t")
        return Source(text, folder="", train=str(path), test=str(test) if test.is_file() else None)
    known = (*CATALOG, *IMAGES, *(source.name for source in _own_files()))
    searched = ", ".join(str(folder) for folder in cache.folders())
    raise ValueError(
        f"data set must be a name that `surefoot data list --all` shows, a file of the LIBSVM site with its folder "
        f"({', '.join(f'{folder}/FILE' for folder in FOLDERS)}), or a file of your own by its path, or by its name if "
        f"it lies in {searched}, got {text!r}{closest(text, known)}"
    )


def _own_files() -> list[Source]:
    """Return the files in the data folders that no short name of the collection stands for."""
    known = {file for source in CATALOG.values() for file in (source.train, source.test)}
    folders = (folder / cache.SUBFOLDER for folder in cache.folders())
    names = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()}
    return [
        Source(name, folder="", train=name)
        for name in sorted(names - known)
        if not name.startswith(".")
        and not name.endswith((cache.RECORD_SUFFIX, "SHA256SUMS"))
        and name.removesuffix(".t") not in names - {name}
    ]


def _check_rows(source: Source, rows: int, path: Path) -> None:
    """Compare a training file with the catalogue, which vouches for files that have no published checksum."""
    if source.rows is not None and rows != source.rows:
        raise cache.ChecksumError(
            f"{path} has {rows:,} rows, but {source.name} has {source.rows:,} in the catalogue: the file was cut off, "
            "changed, or is another one. Delete it to download it again"
        )


def _local_name(source: Source, file: str) -> str:
    """Return the bare name of a file, or with its folder if the bare name is that of a file from another one."""
    name, place = os.path.basename(file), f"{source.folder}/{file}"
    stored = cache.find(name)
    origin = _PLACES.get(name) or (stored and cache.origin(stored))
    return name if not origin or f"/{origin}".endswith(f"/{place}") else place


def _opened(source: Source, file: str, base_url: str | None, progress: bool) -> AbstractContextManager[Path]:
    """Return the checked local file as a context, because a file of a zipped package exists only while it is read."""
    if source.name in BUNDLED:
        return resources.as_file(cache.bundled(file))
    local = _local_name(source, file)
    pinned = PINNED_SHA256.get(local) if source.folder else None
    path = cache.find(local) if source.folder else Path(file)
    if path is None:
        url = cache.address(f"{source.folder}/{file}", base_url)
        path = cache.target(local)
        cache.download(url, path, sha256=pinned, progress=progress)
    else:
        cache.verify(path, pinned)
    return nullcontext(path)
