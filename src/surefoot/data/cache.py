"""The folders of data files, and the way a file gets there: downloaded by pooch, which checks and caches it."""

import logging
import os
import sys
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

DATA_VARIABLE = "SUREFOOT_DATA"


class DownloadError(OSError):
    """A file could not be downloaded; the message says from where, why, and where to put it by hand."""


class ChecksumError(ValueError):
    """A file does not have the checksum it should have."""


def folders() -> list[Path]:
    """Return the folders searched for data, in order: ``$SUREFOOT_DATA`` if set, then the user's cache folder.

    The latter is ``$XDG_CACHE_HOME/surefoot``, or ``~/.cache/surefoot`` if that variable is not set.

    Example:
        >>> folders()[-1].name
        'surefoot'
    """
    chosen = os.environ.get(DATA_VARIABLE)
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"  # a relative one is to be ignored, says XDG
    return [*([Path(chosen).expanduser()] if chosen else []), cache / "surefoot"]


def bundled(file: str) -> Traversable:
    """Return the compressed file inside the package."""
    return resources.files("surefoot.data") / "files" / f"{file}.xz"


def download(url: str, *, sha256: str, progress: bool = True) -> Path:
    """Return the file of ``url`` in the first of `folders` that can be written to, downloaded if it is not there.

    Args:
        url: What to fetch.
        sha256: The checksum it must have, downloaded now or before.
        progress: Say on standard error what is downloaded.

    Raises:
        DownloadError: It is not there, and the server cannot be reached or does not give it.
        ChecksumError: What arrived is another file; nothing is kept of it.
        PermissionError: None of the folders can be written to.
    """
    import pooch
    from requests import RequestException

    name = url.rpartition("/")[2]
    writable = next((folder for folder in folders() if _is_writable(folder)), None)
    if writable is None:
        raise PermissionError(
            f"no folder to store {name} in: cannot write to {' or '.join(map(str, folders()))}; "
            f"set {DATA_VARIABLE} to a folder that can be written to"
        )
    if progress and not (writable / name).is_file():
        print(f"downloading {url} to {writable}", file=sys.stderr)
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        stored = pooch.retrieve(url, f"sha256:{sha256}", name, writable, downloader=pooch.HTTPDownloader(timeout=30))
    except ValueError as error:
        raise ChecksumError(f"{url} has not the published SHA-256 {sha256}; nothing was stored: {error}") from error
    except (RequestException, OSError) as error:
        raise DownloadError(
            f"could not download {url}: {error}. Without a connection, get this file by other means and put it at "
            f"{writable / name}, or set {DATA_VARIABLE} to a folder that has it"
        ) from error
    return Path(stored)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
