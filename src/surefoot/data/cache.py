"""The folders of data files. pooch downloads into them, checks and caches."""

import os
from pathlib import Path

DATA_VARIABLE = "SUREFOOT_DATA"
BUNDLED = Path(__file__).parent / "files"
"""The compressed files inside the package."""


class DownloadError(OSError):
    """A file could not be downloaded; the message says from where, why, and where to put it by hand."""


def folders() -> list[Path]:
    """The folders searched for data, in order: ``$SUREFOOT_DATA`` if set, then the user's cache folder.

    The latter is ``$XDG_CACHE_HOME/surefoot``, or ``~/.cache/surefoot`` if that variable is not set.

    >>> folders()[-1].name
    'surefoot'
    """
    chosen = os.environ.get(DATA_VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "surefoot")
    return [folder.expanduser() for folder in ([Path(chosen), cache] if chosen else [cache])]


def download(url: str, *, sha256: str) -> Path:
    """The file of ``url`` in the first of :func:`folders`, downloaded if it is not there; pooch logs the download.

    Raises:
        DownloadError: It is not there, and the server does not give it or the folder cannot be written to.
        ValueError: What arrived has another checksum; nothing is kept of it.
    """
    import pooch

    folder, name = folders()[0], url.rpartition("/")[2]
    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", name, folder, downloader=pooch.HTTPDownloader(timeout=30)))
    except OSError as error:  # those of requests, too
        raise DownloadError(
            f"could not download {url} to {folder}: {error}. Get this file by other means and put it at "
            f"{folder / name}, or set {DATA_VARIABLE} to a folder that has it or can be written to"
        ) from error
