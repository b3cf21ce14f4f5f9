"""The store of studies and searches: one SQLite file, which survives ``kill -9``, a full disk, and a second process.

Finished runs are committed as they come, in short transactions. Traces are raw little-endian arrays, uncompressed:
random mantissas shrink by little. Every run, study and fact has a checksum over all that it holds: a damaged file gives
an error, never a wrong number.

Tables: ``runs`` (unique in context, method, rate and seed; the context is a hash of all that the runs of a sweep
share), ``studies`` (their settings as JSON), ``facts`` (what was computed about a problem, as JSON). What others add to
the database, such as a view or statistics, is left alone. Unfinished runs are files in a folder of their own (see
:class:`~surefoot.runs.States`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import numpy as np

from surefoot.runs._types import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Key, Trace

APPLICATION_ID = 0x53_46_4F_54
"""``SFOT`` in the header of every store: what tells it from other SQLite files."""
SCHEMA = 5
"""The version of the tables; a file of another one is refused."""

_BUSY_SECONDS = 60.0
_RUN_COLUMNS = ("context", "method", "lr", "seed", "status", "diverged_at", "violations", *FINAL_FIELDS, "kept", "data")
_TABLES = f"""
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, context TEXT NOT NULL, method TEXT NOT NULL, lr REAL NOT NULL, seed INTEGER NOT NULL,
    status TEXT NOT NULL, diverged_at INTEGER NOT NULL, violations INTEGER NOT NULL,
    {", ".join(f"{name} REAL" for name in FINAL_FIELDS)}, kept INTEGER NOT NULL, data BLOB NOT NULL,
    checksum BLOB NOT NULL, UNIQUE (context, method, lr, seed));
CREATE TABLE studies (
    context TEXT NOT NULL, settings TEXT NOT NULL, created TEXT NOT NULL, started INTEGER NOT NULL,
    checksum BLOB NOT NULL, UNIQUE (context, settings));
CREATE TABLE facts (
    problem TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, checksum BLOB NOT NULL,
    PRIMARY KEY (problem, name));
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA};
"""


class StoreError(RuntimeError):
    """A store cannot be used: foreign, damaged, of another version, read-only, or the disk is full."""


class StudyEntry(NamedTuple):
    """One study of a store."""

    started: int
    """Counts the studies as they were started."""
    context: str
    settings: dict[str, Any]
    created: str


class Store:
    """An open store. Use :meth:`read` or :meth:`write`, in a ``with`` statement."""

    def __init__(self, path: Path | None, connection: sqlite3.Connection, states: Path | None = None) -> None:
        self.path = path
        self.states = states
        """The folder of unfinished runs."""
        self._connection = connection

    @classmethod
    def write(cls, path: str | os.PathLike[str] | None = None, *, states: str | os.PathLike[str] | None = None) -> Self:
        """Open a store for reading and writing, and create it if it does not exist.

        Args:
            path: The file; without one, the store is in memory.
            states: The folder of unfinished runs; ``PATH.states`` by default.
        """
        if path is None:
            store = cls(None, sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
            store._connection.executescript(_TABLES)
            return store
        path = Path(path)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"store {str(path)!r}: the folder {str(path.parent)!r} does not exist")
        folder = Path(f"{path.absolute()}.states" if states is None else states).absolute()
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"states must be a folder for unfinished runs, {str(folder)!r} is a file")
        if path.exists() and not _is_writable(path):
            raise StoreError(f"{str(path)!r} cannot be used: the file or its folder cannot be written")
        return cls._opened(path, "rwc", folder)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing store for reading; also from a folder that cannot be written."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"store {str(path)!r} does not exist")
        # A file that can be written is opened so, to roll back what a kill has left.
        return cls._opened(path, "rw" if _is_writable(path) else "ro", Path(f"{path.absolute()}.states"))

    @classmethod
    def _opened(cls, path: Path, mode: str, states: Path) -> Self:
        """Open a file, in a mode of SQLite's URIs; one that is not a store is left as it is."""
        if path.exists() and not path.is_file():
            kind = "folder" if path.is_dir() else "device or pipe"
            raise StoreError(f"{str(path)!r}: a store must be a file, this is a {kind}")
        uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
        try:
            connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"{str(path)!r} cannot be opened: {error}") from error
        store = cls(path, connection, states)
        try:
            with store._explained():
                kind, version, tables = (
                    connection.execute(query).fetchone()[0]
                    for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
                )
                if (kind, version, tables) == (0, 0, 0):
                    if mode != "rwc":  # another process is just creating it
                        store.close()
                        return cls.write()
                    connection.execute("PRAGMA synchronous = NORMAL")
                    with store._transaction():
                        if not connection.execute("PRAGMA user_version").fetchone()[0]:  # no other process was faster
                            for statement in _TABLES.split(";\n"):
                                connection.execute(statement)
                elif kind != APPLICATION_ID:
                    raise StoreError(f"{store.name}: not a surefoot study, but a database of another program")
                elif version != SCHEMA:
                    raise StoreError(
                        f"{store.name}: the file has schema version {version}, this surefoot reads and writes version "
                        f"{SCHEMA}; open it with the surefoot that wrote it, or give this study a file of its own"
                    )
                if mode == "rwc":
                    connection.execute("PRAGMA synchronous = NORMAL")
                    report = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                    if report != "ok":  # runs could be missing; readers only see what has its checksum
                        raise store._damaged(str(report))
                else:
                    connection.execute("PRAGMA query_only = ON")
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close the store; what was committed is on the disk."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> bytes:
        """The content of a store in memory, so that results without a file can be copied and sent."""
        if self.path is not None:
            raise TypeError(f"an open store of a file cannot be pickled, got {self.name}")
        return self._connection.serialize()

    def __setstate__(self, content: bytes) -> None:
        self.path = self.states = None
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.deserialize(content)

    @property
    def name(self) -> str:
        """What the store is called in messages."""
        return ":memory:" if self.path is None else repr(str(self.path))[1:-1]  # bytes that are no text are escaped

    @contextmanager
    def locked(self, context: str) -> Iterator[None]:
        """Keep the runs of a context to this process; another one waits until this one is done, or dead."""
        if self.states is None:
            yield
            return
        from filelock import FileLock, Timeout

        path = self.states / f"{context[:12]}.lock"
        lock, is_waiting = FileLock(path), False
        while not lock.is_locked:
            try:
                self.states.mkdir(parents=True, exist_ok=True)
                lock.acquire(timeout=0.2 if is_waiting else 0)
            except Timeout:
                if not is_waiting:
                    message = "%s: another process computes the same runs; this one waits for it"
                    logging.getLogger("surefoot").warning(message, self.name)
                is_waiting = True
            except FileNotFoundError:
                continue  # another process has just removed the folder
            except OSError as error:
                raise StoreError(f"{self.name}: cannot lock {str(path)!r}: {error.strerror or error}") from error
        try:
            for part in self.states.glob(f".{context[:12]}-*.part"):  # what a killed process was writing
                part.unlink(missing_ok=True)
            yield
        finally:
            path.unlink(missing_ok=True)  # whoever waits sees that this file has no name any more, and makes its own
            lock.release()
            with suppress(OSError):  # unfinished runs are in it
                self.states.rmdir()

    def register(self, context: str, settings: dict[str, Any]) -> None:
        """Note a study that is about to run; the same settings are noted once, and become the last ones started."""
        text = json.dumps(settings, sort_keys=True)
        with self._transaction() as connection:
            query = "SELECT created FROM studies WHERE context = ? AND settings = ?"
            row = connection.execute(query, (context, text)).fetchone()
            created = row[0] if row else datetime.now(UTC).isoformat(timespec="seconds")
            started = 1 + connection.execute("SELECT coalesce(max(started), 0) FROM studies").fetchone()[0]
            values = context, text, created, started
            connection.execute("INSERT OR REPLACE INTO studies VALUES (?, ?, ?, ?, ?)", (*values, _checksum(*values)))

    def studies(self) -> list[StudyEntry]:
        """The studies of the store, the last started one at the end."""
        rows = self._checked("SELECT context, settings, created, started, checksum FROM studies ORDER BY started")
        return [StudyEntry(started, context, json.loads(text), created) for context, text, created, started in rows]

    def delete(self, study: StudyEntry) -> None:
        """Remove a study, with its runs if no other study has them, and its unfinished ones."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM studies WHERE started = ?", (study.started,))
            is_last = study.context not in [entry.context for entry in self.studies()]
            if is_last:
                connection.execute("DELETE FROM runs WHERE context = ?", (study.context,))
        for path in self.unfinished(study.context) if is_last else ():
            path.unlink(missing_ok=True)
        if self.states is not None:
            with suppress(OSError):
                self.states.rmdir()
        self._connection.execute("VACUUM")

    def unfinished(self, context: str = "") -> list[Path]:
        """The files of unfinished runs, of one context or of all."""
        return [] if self.states is None else sorted(self.states.glob(f"{context[:12] or '*'}-*.state"))

    def done(self, context: str) -> set[Key]:
        """Keys of the runs that are in the store."""
        with self._explained():
            rows = self._connection.execute("SELECT method, lr, seed FROM runs WHERE context = ?", (context,))
            return {Key(*row) for row in rows}

    def add(self, context: str, traces: Iterable[Trace]) -> None:
        """Commit finished runs in one transaction; runs that are there already stay."""
        rows = []
        for trace in traces:
            final = (None if math.isnan(trace.final[name]) else float(trace.final[name]) for name in FINAL_FIELDS)
            about = context, *trace.key, trace.status, trace.diverged_at, trace.violations, *final
            values = *about, len(trace.steps["loss"]), _data_of(trace)
            rows.append((*values, _checksum(*values)))
        columns = (*_RUN_COLUMNS, "checksum")
        statement = f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        with self._transaction() as connection:
            connection.executemany(f"{statement} ON CONFLICT DO NOTHING", rows)

    def traces(self, context: str, key: Key | None = None) -> Iterator[Trace]:
        """The finished runs, or one of them, with their traces."""
        condition, arguments = ("", ()) if key is None else (" AND method = ? AND lr = ? AND seed = ?", tuple(key))
        query = f"SELECT {', '.join(_RUN_COLUMNS)}, checksum FROM runs WHERE context = ?{condition} ORDER BY id"
        for _, *values in self._checked(query, context, *arguments):
            yield _trace_of(*values)

    def facts(self, problem: str) -> dict[str, Any]:
        """What was computed about a problem."""
        rows = self._checked("SELECT problem, name, value, checksum FROM facts WHERE problem = ?", problem)
        return {name: json.loads(value) for _, name, value in rows}

    def remember(self, problem: str, name: str, value: Any) -> None:
        """Keep a fact about a problem, or replace it."""
        values = problem, name, json.dumps(value)
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)", (*values, _checksum(*values)))

    def _checked(self, query: str, *arguments: Any) -> Iterator[list[Any]]:
        """The rows of a query whose last column is the checksum of the others."""
        with self._explained():
            for *values, checksum in self._connection.execute(query, arguments):
                if checksum != _checksum(*values):
                    about = ", ".join(str(value) for value in values[:4])[:200]
                    raise self._damaged(f"the row of {about} is not what was written")
                yield values

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"{self.name}: the file is damaged: {what}; it was left as it is. Use a copy, or a new file")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with self._explained():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk rolls back on its own
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say which file SQLite reports on; every finished run that was committed stays in it."""
        try:
            yield
        except UnicodeDecodeError as error:  # Python cannot read SQLite's message, which quotes damaged text
            raise self._damaged("its tables cannot be read") from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the low byte is the kind of error
            if code == sqlite3.SQLITE_NOTADB:
                raise StoreError(f"{self.name}: not a surefoot study ({error}); it was left as it is") from error
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):  # our own statements are right
                raise self._damaged(str(error)) from error
            raise StoreError(f"{self.name}: {error}; finished runs that were committed are kept") from error


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _checksum(*values: Any) -> bytes:
    """A checksum over all that a row holds."""
    checksum = hashlib.blake2b(digest_size=12)
    for value in values:
        if isinstance(value, float):
            value = value + 0.0  # SQLite has no −0
        content = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogateescape")
        checksum.update(f"{len(content)}:".encode() + content)
    return checksum.digest()


def _data_of(trace: Trace) -> bytes:
    """The arrays of a run as raw little-endian numbers, one field after the other; NaN where nothing was measured."""
    nothing = np.full(len(trace.epochs["train_loss"]), np.nan)
    arrays = [trace.steps[name] for name in STEP_FIELDS]
    arrays += [trace.epochs[name] if len(trace.epochs[name]) else nothing for name in EPOCH_FIELDS]
    return b"".join(np.ascontiguousarray(array, "<f8").data for array in arrays)


def _trace_of(method: str, lr: float, seed: int, status: str, diverged_at: int, violations: int, *values: Any) -> Trace:
    """The run that a row of ``runs`` holds."""
    *final, kept, data = values
    numbers, split = np.frombuffer(data, "<f8"), len(STEP_FIELDS) * kept
    return Trace(
        Key(method, lr, seed),
        status,
        diverged_at,
        dict(zip(STEP_FIELDS, numbers[:split].reshape(-1, kept), strict=True)),
        dict(zip(EPOCH_FIELDS, numbers[split:].reshape(len(EPOCH_FIELDS), -1), strict=True)),
        {name: np.nan if value is None else value for name, value in zip(FINAL_FIELDS, final, strict=True)},
        violations,
    )
