"""The six batches of CIFAR-10, read from what its authors publish: never extracted, never unpickled at will."""

import gzip
import hashlib
import io
import lzma
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from surefoot.data.cache import ChecksumError

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


def located(path: Path, release: Release) -> Path | None:
    """Return the archive, or the folder with the batches, that ``path`` is or holds; None if there is none."""
    if path.is_file():
        return path
    files = [name + suffix for name in release.names for suffix in (".bin", "")]
    for folder in (path, *(path / name for name in FOLDERS)):
        if any((folder / file).is_file() for file in files):
            return folder
    return next((path / name for name in ARCHIVES if (path / name).is_file()), None)


def read_batches(source: Path, release: Release) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the checked bytes (binary layout) of every batch, in the order in which the source has them.

    Args:
        source: A folder or a tar archive, in the binary or in the Python layout.
        release: What the batches must be.

    Raises:
        FileNotFoundError: A batch is missing.
        ValueError: The archive is damaged, or has a member that would leave the folder it is extracted to.
        ChecksumError: A batch is not what was published.
    """
    missing = set(release.names)
    for place, file, data in _archive_files(source, release) if source.is_file() else _folder_files(source, release):
        name = file.removesuffix(".bin")
        missing.discard(name)
        yield name, _published(place, data, name, file.endswith(".bin"), release)
    if missing:
        raise FileNotFoundError(
            f"{source} has no {min(missing)}.bin (binary layout) and no {min(missing)} (Python layout)"
        )


def check_md5(place: str, data: "bytes | memoryview", expected: str) -> None:
    """Raise ChecksumError if the data do not have the MD5."""
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ChecksumError(f"{place} has MD5 {found}, but the published one has {expected}: it was changed or damaged")


def _folder_files(folder: Path, release: Release) -> Iterator[tuple[str, str, bytes]]:
    for name in release.names:
        for file in (name + ".bin", name):
            path = folder / file
            if path.is_file():
                _check_size(str(path), path.stat().st_size, file, release)
                yield str(path), file, path.read_bytes()
                break


def _archive_files(path: Path, release: Release) -> Iterator[tuple[str, str, bytes]]:
    """Yield the batches among the members of an archive, by name. Nothing is extracted, so no name can leave a folder.

    An archive with a name that would do so is refused all the same: its authors did not make it.
    """
    wanted = {name + suffix for name in release.names for suffix in (".bin", "")}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts:
                    raise ValueError(f"{path} has a member {member.name!r} outside its own folder; it is not CIFAR-10")
                if name.name not in wanted:
                    continue
                place = f"{path}, member {member.name!r},"
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    raise ValueError(f"{place} is not a file; this is not CIFAR-10")
                _check_size(place, member.size, name.name, release)
                yield place, name.name, content.read()
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path} is not a tar archive, or damaged, or not complete: {error}") from error


def _check_size(place: str, size: int, file: str, release: Release) -> None:
    """Refuse what cannot be a batch before it fills the memory."""
    if file.endswith(".bin") and size != release.batch_bytes:
        raise ChecksumError(f"{place} has {size} bytes, but the published one has {release.batch_bytes}")
    if size > 2 * release.batch_bytes:  # the pickles are a little larger: they name their images
        raise ChecksumError(f"{place} has {size} bytes, far more than the published one")


def _published(place: str, data: bytes, name: str, binary: bool, release: Release) -> bytes:
    """Return a batch in the binary layout, or raise ChecksumError."""
    if not binary:
        check_md5(place, data, release.python_md5[name])
        data = _rows_of_pickle(place, data)
    check_md5(place, data, release.binary_md5[name])
    return data


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
