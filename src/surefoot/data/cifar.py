"""CIFAR-10: from its published archives or an unpacked folder into one file that is mapped into memory."""

import os
from functools import partial
from pathlib import Path

import numpy as np

from surefoot._files import replacing
from surefoot.data import cache
from surefoot.data.catalog import Split, check_split
from surefoot.data.cifar_batches import (
    ARCHIVES,
    FOLDERS,
    IMAGE_SHAPE,
    RELEASE,
    ROW_BYTES,
    check_md5,
    located,
    read_batches,
)
from surefoot.data.images import Images

URL_VARIABLE = "SUREFOOT_CIFAR_URL"
URL = "https://www.cs.toronto.edu/~kriz"
SUBFOLDER = "cifar10"
PREPARED = "cifar-10.bin"
"""The file of all batches, one after the other in the binary layout."""

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)


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
    there = cache.find(PREPARED, SUBFOLDER)
    if path is None:
        return there or _prepare(_source() or _downloaded(base_url, progress))
    given = Path(path).expanduser()
    source = located(given, RELEASE)
    if source is None:
        kind = "has no CIFAR-10 in it" if given.exists() else "does not exist"
        raise FileNotFoundError(
            f"path is {str(given)!r}, which {kind}: give one of the archives {' or '.join(ARCHIVES)}, "
            f"or a folder with one of {', '.join((*FOLDERS, *ARCHIVES))}"
        )
    if there is None:
        return _prepare(source)
    for _ in read_batches(source, RELEASE):  # only checked: batches with these checksums are in the prepared file
        pass
    return there


def found() -> Path | None:
    """Return what is in the data folders: the prepared file, or an archive or an unpacked folder to make it from."""
    return cache.find(PREPARED, SUBFOLDER) or _source()


def _source() -> Path | None:
    """Return an archive or an unpacked folder in the data folders."""
    places = (place for folder in cache.folders() for place in (folder, folder / SUBFOLDER))
    return next((source for place in places if (source := located(place, RELEASE)) is not None), None)


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
        for name, rows in read_batches(source, RELEASE):
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
        raise cache.ChecksumError(
            f"{path} has {size} bytes, must have {len(RELEASE.names) * RELEASE.batch_bytes}{hint}"
        )
    rows = np.memmap(
        path, np.uint8, "r", offset=first * RELEASE.batch_bytes, shape=(len(names) * RELEASE.rows, ROW_BYTES)
    ).view(np.ndarray)
    if check:
        for index, name in enumerate(names):
            batch = rows[index * RELEASE.rows : (index + 1) * RELEASE.rows]
            check_md5(f"{path}, {name},", batch.data, RELEASE.binary_md5[name])
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
