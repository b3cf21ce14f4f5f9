"""Connections to a study's file, with SQLite's errors explained in words."""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from surefoot.runs._schema import APPLICATION_ID

BUSY_SECONDS = 60.0

ADVICE = "it was left as it is. surefoot.study.rescue({path!r}, NEW) copies all that is sound to a new file"
"""Ends every message about damage."""


class StoreError(RuntimeError):
    """A study's file cannot be used: foreign, corrupt, read-only, or the disk is full."""


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a file; ``mode`` is that of SQLite's URIs."""
    with explained(path):
        uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        connection.text_factory = decoded
        return connection


def decoded(content: bytes) -> str:
    """Decode text of a file that may be damaged: bytes that are no text must not hide from the seal."""
    return content.decode("utf-8", "surrogateescape")


def copied(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy a file's content into memory, and close the file."""
    memory = sqlite3.connect(":memory:", isolation_level=None)
    memory.text_factory = decoded
    connection.backup(memory)
    connection.close()
    return memory


def refuse_foreign(path: Path) -> None:
    """Look at the first bytes before SQLite does: whatever is not a store is never opened for writing."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not header:
        return  # what a process leaves that was killed while it created a store
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise StoreError(f"{path}: not a surefoot study (no SQLite database); it was left as it is")
    if struct.unpack(">I", header[68:72])[0] != APPLICATION_ID:
        raise StoreError(
            f"{path}: not a surefoot study (an SQLite database of another program); it was left as it is. If it is one "
            "with a damaged header, surefoot.study.rescue can read it"
        )


def write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite does not wait for its locks here, so wait ourselves."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "reading or writing failed (disk full or gone?)",
    sqlite3.SQLITE_READONLY: "the file or its folder cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened (permissions?)",
    sqlite3.SQLITE_PERM: "the file cannot be opened (permissions?)",
    sqlite3.SQLITE_BUSY: f"another process has kept the file locked for {BUSY_SECONDS:g} s",
}


_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Our own statements are right: one that makes no sense to SQLite does not fit what it reads."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say in words what SQLite reports; every finished run that was committed stays in the file."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the kind of error, the rest its details.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGE:
            raise StoreError(f"{path}: the file is damaged ({error}); {ADVICE.format(path=str(path))}") from error
        reason = _REASONS.get(code, "SQLite reports an error")
        raise StoreError(f"{path}: {reason} ({error}); finished runs that were committed are kept") from error
