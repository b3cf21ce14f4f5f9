"""CIFAR-10: from its published archives or an unpacked folder into one file that is mapped into memory.

Archives are never extracted, and pickles can make nothing but arrays.
"""

import gzip
import hashlib
import io
import lzma
import os
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import numpy as np

from surefoot._base.files import replacing
from surefoot.data import cache
from surefoot.data.cache import ChecksumError
from surefoot.data.catalog import Split, check_split
from surefoot.data.images import Images

URL_VARIABLE = "SUREFOOT_CIFAR_URL"
URL = "https://www.cs.toronto.edu/~kriz"
SUBFOLDER = "cifar10"
PREPARED = "cifar-10.bin"
"""The file of all batches, one after the other in the binary layout."""

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
IMAGE_SHAPE = (3, 32, 32)
ROW_BYTES = 1 + 3 * 32 * 32
FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")


@dataclass(frozen=True)
class Release:
    """What is known about the published files.

    Attributes:
        rows: Images of a batch.
        binary_md5: MD5 of each batch in the binary layout: a row is the class, then the red, green and blue pixels.
        python_md5: MD5 of each batch in the Python layout, a pickle.
        archive_sha256: SHA-256 of the archive of the binary layout.
    """

    rows: int
    binary_md5: dict[str, str]
    python_md5: dict[str, str]
    archive_sha256: str

    @property
    def names(self) -> tuple[str, ...]:
        """The batches in order: those of the training images, then that of the test images."""
        return tuple(self.binary_md5)

    @property
    def files(self) -> tuple[str, ...]:
        """The file names of the batches, in the binary and in the Python layout."""
        return tuple(name + suffix for name in self.names for suffix in (".bin", ""))

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch in the binary layout."""
        return self.rows * ROW_BYTES


RELEASE = Release(
    rows=10_000,
    binary_md5={
        "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    python_md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    archive_sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)


def cifar10(
    split: Split = "train",
    path: str | os.PathLike[str] | None = None,
    *,
    base_url: str | None = None,
    progress: bool = True,
) -> Images:
    """Return the 50,000 training or the 10,000 test images of CIFAR-10, mapped into memory from one file.

    That file is made once, in a data folder (see `surefoot.data.folders`), from the first of these that is there:
    ``path``; an archive or an unpacked folder in the data folders; the archive of the authors' site, downloaded to
    them. Every batch has the MD5 its authors' files have, when it is prepared and when it is opened. Archives are
    read, not extracted, and a pickle of the Python layout can only make arrays.

    Args:
        split: Training or test images.
        path: A folder (or one that holds ``cifar-10-batches-bin`` or ``cifar-10-batches-py``) or a tar archive, in the
            binary or in the Python layout. It is read and checked in full, even if the prepared file is there.
        base_url: A mirror of the authors' site, instead of the variable ``SUREFOOT_CIFAR_URL`` or the site itself.
        progress: Show a progress bar while downloading.

    Raises:
        FileNotFoundError: ``path`` does not exist, or has no CIFAR-10, or lacks a batch.
        ValueError: An unknown split; an archive that is damaged or cut off, or would write outside its folder.
        ChecksumError: A batch is not what was published.
        DownloadError: It is not on this machine and cannot be downloaded.
        OSError: The prepared file cannot be stored, for example on a full disk; nothing is left of it then.

    Example:
        >>> images = cifar10("test")  # doctest: +SKIP
        >>> images.shape, images.classes[images.labels[0]]  # doctest: +SKIP
        ((3, 32, 32), 'cat')
    """
    check_split(split)
    return _mapped(prepared(path, base_url=base_url, progress=progress), split, check=True)


def prepared(path: str | os.PathLike[str] | None = None, *, base_url: str | None = None, progress: bool = True) -> Path:
    """Return the file of all images that `cifar10` maps into memory, made first if it is not there."""
    stored = cache.find(PREPARED, SUBFOLDER)
    if path is None:
        return stored or _prepare(_source() or _downloaded(base_url, progress))
    place = Path(path).expanduser()
    source = located(place)
    if source is None:
        kind = "has no CIFAR-10 in it" if place.exists() else "does not exist"
        raise FileNotFoundError(
            f"path is {str(place)!r}, which {kind}: give one of the archives {' or '.join(ARCHIVES)}, "
            f"or a folder with one of {', '.join((*FOLDERS, *ARCHIVES))}"
        )
    if stored is None:
        return _prepare(source)
    for _ in read_batches(source):  # only checked: batches with these checksums are in the prepared file
        pass
    return stored


def check(path: Path) -> None:
    """Compare all batches of the prepared file with the published checksums; ChecksumError if one differs."""
    for split in get_args(Split):
        _mapped(path, split, check=True)


def found() -> Path | None:
    """Return what is in the data folders: the prepared file, or an archive or an unpacked folder to make it from."""
    return cache.find(PREPARED, SUBFOLDER) or _source()


def _source() -> Path | None:
    """Return an archive or an unpacked folder in the data folders."""
    places = (place for folder in cache.folders() for place in (folder, folder / SUBFOLDER))
    return next((source for place in places if (source := located(place)) is not None), None)


def _downloaded(base_url: str | None, progress: bool) -> Path:
    archive = ARCHIVES[0]
    url = cache.address(archive, base_url, variable=URL_VARIABLE, site=URL)
    path = cache.target(archive, SUBFOLDER)
    cache.download(url, path, sha256=RELEASE.archive_sha256, progress=progress, limit_bytes=1 << 30)
    return path


def _prepare(source: Path) -> Path:
    """Write the checked batches in order. Several processes may do so at once: each writes a file of its own."""
    path = cache.target(PREPARED, SUBFOLDER)
    with replacing(path, "the prepared CIFAR-10") as file:
        for name, rows in read_batches(source):
            file.seek(RELEASE.names.index(name) * RELEASE.batch_bytes)
            file.write(rows)
    return path


def _mapped(path: Path, split: Split, check: bool) -> Images:
    """Map the prepared file into memory, checked against the published checksums if asked for."""
    names = [name for name in RELEASE.names if name.startswith("test") == (split == "test")]
    first = RELEASE.names.index(names[0])
    hint = f"; delete {path} to prepare it again"
    size = path.stat().st_size
    if size != len(RELEASE.names) * RELEASE.batch_bytes:
        raise ChecksumError(f"{path} has {size} bytes, must have {len(RELEASE.names) * RELEASE.batch_bytes}{hint}")
    rows = np.memmap(
        path, np.uint8, "r", offset=first * RELEASE.batch_bytes, shape=(len(names) * RELEASE.rows, ROW_BYTES)
    ).view(np.ndarray)
    if check:
        for index, name in enumerate(names):
            batch = rows[index * RELEASE.rows : (index + 1) * RELEASE.rows]
            _check_md5(f"{path}, {name},", batch.data, RELEASE.binary_md5[name])
    return Images(
        name=f"cifar10-{split}",
        images=rows[:, 1:].reshape(-1, *IMAGE_SHAPE),
        labels=rows[:, 0].astype(np.int64),
        classes=CLASSES,
        mean=MEAN,
        std=STD,
        checksum=" ".join(RELEASE.binary_md5[name] for name in names),
        reopen=partial(_reopened, path, split),
    )


def _reopened(path: Path, split: Split) -> Images:
    """Return the images in another process, which on another machine may have the file elsewhere."""
    return _mapped(path, split, check=False) if path.is_file() else cifar10(split)


def located(path: Path) -> Path | None:
    """Return the archive, or the folder with the batches, that ``path`` is or holds; None if there is none."""
    if path.is_file():
        return path
    for folder in (path, *(path / name for name in FOLDERS)):
        if any((folder / file).is_file() for file in RELEASE.files):
            return folder
    return next((path / name for name in ARCHIVES if (path / name).is_file()), None)


def read_batches(source: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the checked bytes (binary layout) of every batch of a folder or an archive, in its order."""
    missing = set(RELEASE.names)
    for place, file, data in _archive_files(source) if source.is_file() else _folder_files(source):
        name = file.removesuffix(".bin")
        missing.discard(name)
        if file == name:  # the Python layout
            _check_md5(place, data, RELEASE.python_md5[name])
            data = _rows_of_pickle(place, data)
        _check_md5(place, data, RELEASE.binary_md5[name])
        yield name, data
    if missing:
        raise FileNotFoundError(
            f"{source} has no {min(missing)}.bin (binary layout) and no {min(missing)} (Python layout)"
        )


def _check_md5(place: str, data: "bytes | memoryview", expected: str) -> None:
    """Raise ChecksumError if the data do not have the MD5."""
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if md5 != expected:
        raise ChecksumError(f"{place} has MD5 {md5}, but the published one has {expected}: it was changed or damaged")


def _folder_files(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    for name in RELEASE.names:
        for file in (name + ".bin", name):
            path = folder / file
            if path.is_file():
                _check_size(str(path), path.stat().st_size, file)
                yield str(path), file, path.read_bytes()
                break


def _archive_files(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the batches among the members of an archive, by name. Nothing is extracted, so no name can leave a folder.

    An archive with a name that would do so is refused all the same: its authors did not make it.
    """
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts:
                    raise ValueError(f"{path} has a member {member.name!r} outside its own folder; it is not CIFAR-10")
                if name.name not in RELEASE.files:
                    continue
                place = f"{path}, member {member.name!r},"
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    raise ValueError(f"{place} is not a file; this is not CIFAR-10")
                _check_size(place, member.size, name.name)
                yield place, name.name, content.read()
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path} is not a tar archive, or damaged, or not complete: {error}") from error


def _check_size(place: str, size: int, file: str) -> None:
    """Refuse what cannot be a batch before it fills the memory."""
    if file.endswith(".bin") and size != RELEASE.batch_bytes:
        raise ChecksumError(f"{place} has {size} bytes, but the published one has {RELEASE.batch_bytes}")
    if size > 2 * RELEASE.batch_bytes:  # the pickles are a little larger: they name their images
        raise ChecksumError(f"{place} has {size} bytes, far more than the published one")


class _ArrayUnpickler(pickle.Unpickler):
    """Makes arrays, numbers, texts, lists and dicts; any other class or function is an error."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the three names that a pickled array is made of."""
        match module, name:
            case ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"):
                return np.zeros(0).__reduce__()[0]
            case ("numpy", "ndarray"):
                return np.ndarray
            case ("numpy", "dtype"):
                return np.dtype
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch of CIFAR-10 needs")


def _rows_of_pickle(place: str, data: bytes) -> bytes:
    """Return the rows (class, pixels) of a pickled batch, whose MD5 was checked before; see `_ArrayUnpickler`."""
    try:
        batch = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
        labels, pixels = np.asarray(batch[b"labels"], np.uint8), np.asarray(batch[b"data"], np.uint8)
        return np.concatenate([labels[:, None], pixels], axis=1).tobytes()
    except Exception as error:  # a pickle can fail in any way
        raise ValueError(f"{place} is not a batch of CIFAR-10: {error}") from error
