"""The folders of data files, and the way a file gets there: downloaded whole, checked, put in place at once.

Not with pooch, which follows redirections away from https, takes a login page for the file where no checksum is known
(most of the collection has none), and has no limits of size and time.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from surefoot._base.files import replacing, write_whole
from surefoot._base.progress import Report, reporter

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from importlib.resources.abc import Traversable

DATA_VARIABLE = "SUREFOOT_DATA"
URL_VARIABLE = "SUREFOOT_LIBSVM_URL"
LIBSVM_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
SUBFOLDER = "libsvm"
RECORD_SUFFIX = ".sha256"
LIMIT_BYTES = 4 << 30
"""No file of the collection is as large; what is larger is refused."""
LIMIT_SECONDS = 6 * 3600.0
"""A download that takes longer is given up."""
_CHUNK_BYTES = 1 << 18
_PATIENCE_SECONDS = 2.0
_HERE = ("127.0.0.1", "::1", "localhost")


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


def bundled(file: str) -> "Traversable":
    """Return the compressed file inside the package."""
    return resources.files("surefoot.data") / "files" / f"{file}.xz"


def find(file: str, subfolder: str = SUBFOLDER) -> Path | None:
    """Return the first ``FOLDER/file`` or ``FOLDER/subfolder/file`` that exists, None if there is none."""
    candidates = (path for folder in folders() for path in (folder / file, folder / subfolder / file))
    return next((path for path in candidates if path.is_file()), None)


def target(file: str, subfolder: str = SUBFOLDER) -> Path:
    """Return where a download of ``file`` goes: below the first of `folders` that can be written to, made if missing.

    Raises:
        PermissionError: None of them can be written to.
    """
    for folder in folders():
        below = folder / subfolder
        try:
            below.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(below, os.W_OK):
            return below / file
    raise PermissionError(
        f"no folder to store {file} in: cannot write to {' or '.join(map(str, folders()))}; "
        f"set {DATA_VARIABLE} to a folder that can be written to"
    )


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, pinned: str | None = None) -> None:
    """Check a file against a pinned checksum, or else against the one recorded beside it when it was downloaded.

    A file with neither was put there by its user, and is taken as it is.

    Raises:
        ChecksumError: The file is not what it was.
    """
    record = path.with_name(path.name + RECORD_SUFFIX)
    if pinned is not None:
        expected, origin = pinned, "the published file has"
    elif record.is_file():
        expected, origin = (record.read_text().split() or [""])[0], f"{record.name} beside it says"
    else:
        return
    if (actual := sha256_of_file(path)) != expected:
        raise ChecksumError(
            f"{path} has SHA-256 {actual}, but {origin} {expected!r}: the file was changed or damaged. "
            f"Delete it (and {record.name}, if there) to download it again"
        )


def origin(path: Path) -> str | None:
    """Return the address that a file was downloaded from; None if it is not recorded beside it."""
    record = path.with_name(path.name + RECORD_SUFFIX)
    lines = record.read_text().splitlines() if record.is_file() else []
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), None)


def address(path: str, base_url: str | None = None, *, variable: str = URL_VARIABLE, site: str = LIBSVM_URL) -> str:
    """Return the address of a file of a site, or of its mirror, given as argument or in an environment variable."""
    base = base_url or os.environ.get(variable) or site
    if not _is_allowed(base):
        raise ValueError(f"base_url must start with https:// (or be http:// on this machine), got {base!r}")
    return f"{base.rstrip('/')}/{path}"


def _is_allowed(url: str) -> bool:
    """Whether nobody on the way can change what arrives: https, or a server on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _HERE)


def download(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    progress: bool = True,
    timeout: float = 30.0,
    limit_bytes: int = LIMIT_BYTES,
    limit_seconds: float = LIMIT_SECONDS,
) -> None:
    """Download ``url`` to ``path``: complete and checked, or not at all.

    The bytes go to a file of a unique name in the same folder, which takes its final name at the end; so several
    processes may download the same file at once, and none ever sees half of it.

    Args:
        url: What to fetch, over https (http only from this machine); redirections must keep to that.
        path: The file to make or replace; its folder is created.
        sha256: The checksum it must have. If None, the one it has is recorded in ``path`` + ".sha256" for `verify`,
            with the address for `origin`.
        progress: Show a progress bar on standard error: at once on a terminal, else if it takes over two seconds.
        timeout: Seconds to wait for the server at any one time.
        limit_bytes: What is larger is refused, at once if the server announces it.
        limit_seconds: What takes longer altogether is given up.

    Raises:
        DownloadError: No connection, an answer other than the file, fewer bytes than announced, or over a limit.
        ChecksumError: The file is not the one with ``sha256``.
    """
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "the download") as file:
        for chunk in _received(url, path, progress, timeout, limit_bytes, limit_seconds):
            digest.update(chunk)
            file.write(chunk)
        actual = digest.hexdigest()
        if sha256 is None:  # recorded in the format of the command ``sha256sum``, which knows comments
            write_whole(path.with_name(path.name + RECORD_SUFFIX), f"{actual}  {path.name}\n# {url}\n", "a checksum")
        elif actual != sha256:
            raise ChecksumError(f"{url} has SHA-256 {actual}, but the published file has {sha256}; nothing was stored")


def _received(
    url: str, path: Path, progress: bool, timeout: float, limit_bytes: int, limit_seconds: float
) -> Iterator[bytes]:
    """Yield the bytes of the answer; every failure of the network, and any other answer, is a DownloadError."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Redirections(HTTPRedirectHandler):
        def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            if not _is_allowed(newurl):
                raise OSError(f"the server redirects to {newurl!r}, which is not https")
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    try:
        if not _is_allowed(url):
            raise OSError("the address is not https")
        opener = build_opener(Redirections)
        with opener.open(Request(url, headers={"User-Agent": "surefoot"}), timeout=timeout) as response:
            yield from _checked_chunks(response, path.name, progress, limit_bytes, limit_seconds)
    except (OSError, HTTPException) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        if isinstance(error, HTTPError):
            error.close()
            reason = f"the server answers {error.code} {error.reason}"
        raise DownloadError(
            f"could not download {url}: {reason}. Without a connection, get this file by other means and put it at "
            f"{path}, or set {DATA_VARIABLE} to a folder that has it as {path.name} or {path.parent.name}/{path.name}"
        ) from error


def _checked_chunks(
    response: "HTTPResponse", name: str, progress: bool, limit_bytes: int, limit_seconds: float
) -> Iterator[bytes]:
    """Yield the body; raise OSError if it is a web page, shorter than announced, or over a limit."""
    announced, received, started = response.length, 0, time.monotonic()
    if announced is not None and announced > limit_bytes:
        raise OSError(f"the file has {announced:,} bytes, and at most {limit_bytes:,} are taken")
    with ExitStack() as stack:
        tell: Report | None = None
        while chunk := response.read1(_CHUNK_BYTES):
            if received == 0 and chunk.lstrip().startswith(b"<"):
                raise OSError("the answer is a web page, not data (a login page of this network?)")
            received += len(chunk)
            elapsed = time.monotonic() - started
            if received > limit_bytes:
                raise OSError(f"the file has more than {limit_bytes:,} bytes, the most that are taken")
            if elapsed > limit_seconds:
                raise OSError(f"it took more than {limit_seconds:g} seconds, and {received:,} bytes had arrived")
            if progress and tell is None and (sys.stderr.isatty() or elapsed > _PATIENCE_SECONDS):
                total = None if announced is None else announced // 1000
                tell = stack.enter_context(reporter(True, total=total, unit="kB", about=name))
            if tell is not None:
                tell(received // 1000)
            yield chunk
    if announced is not None and received != announced:
        raise OSError(f"only {received} of {announced} bytes arrived")
    if received == 0:
        raise OSError("the answer is empty")
