"""A study's file: one SQLite database that survives ``kill -9``, a full disk, and a second process.

Finished runs are committed in chunks, each in one short transaction (write-ahead log), so a file holds all chunks that
were committed and nothing half written. ``synchronous=NORMAL`` never corrupts; only a power cut can lose the last
chunks, and they are then computed anew, bit for bit the same. Traces are raw little-endian arrays behind a checksum,
uncompressed: random mantissas shrink by little, and compressing them would take longer than computing them.

Tables: ``contexts`` (all that the runs of a sweep share, as a hash), ``runs`` (one row a run, unique in context,
method, rate and seed: an identical run is never stored twice), ``layouts`` (dtype, fields and shapes of the arrays),
``studies`` (their settings as JSON), ``facts`` (what was computed about a problem, as JSON).
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import numpy as np

from surefoot.study._archive import Key, Record
from surefoot.study._runs import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Floats

APPLICATION_ID = 0x53_46_4F_54
"""``SFOT`` in the header of every store: what tells it from other SQLite files."""

BUSY_SECONDS = 60.0

_COLUMNS = f"method, lr, seed, status, diverged_at, violations, {', '.join(FINAL_FIELDS)}, layout, checksum, data"


class StoreError(RuntimeError):
    """A study's file cannot be used: foreign, corrupt, read-only, or the disk is full."""


class StudyEntry(NamedTuple):
    """One study of a file."""

    number: int
    context: str
    settings: dict[str, Any]
    created: str


def _create(connection: sqlite3.Connection) -> None:
    finals = ", ".join(f"{name} REAL" for name in FINAL_FIELDS)
    for statement in (
        "CREATE TABLE contexts (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE)",
        "CREATE TABLE layouts (id INTEGER PRIMARY KEY, layout TEXT NOT NULL UNIQUE)",
        f"""CREATE TABLE runs (
            id INTEGER PRIMARY KEY, context INTEGER NOT NULL REFERENCES contexts, method TEXT NOT NULL,
            lr REAL NOT NULL, seed INTEGER NOT NULL, status TEXT NOT NULL, diverged_at INTEGER NOT NULL,
            violations INTEGER NOT NULL, {finals}, layout INTEGER NOT NULL REFERENCES layouts,
            checksum INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (context, method, lr, seed))""",
        """CREATE TABLE studies (
            id INTEGER PRIMARY KEY, context INTEGER NOT NULL REFERENCES contexts, settings TEXT NOT NULL,
            created TEXT NOT NULL, started REAL NOT NULL, UNIQUE (context, settings))""",
        """CREATE TABLE facts (
            problem TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (problem, name))""",
    ):
        connection.execute(statement)


MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_create]
"""Entry k takes a file from schema version k to k + 1, inside one transaction with all others that are due."""


class Store:
    """An open study file. Use :meth:`read` or :meth:`write`, in a ``with`` statement."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def write(cls, path: str | os.PathLike[str]) -> Self:
        """Open a file for reading and writing, and create it if it does not exist.

        A file that is not a store, or a damaged one, is refused and left as it is.
        """
        path = Path(path)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"store {str(path)!r}: the folder {str(path.parent)!r} does not exist")
        _refuse_foreign(path)
        store = cls(path, _connect(path, "rwc"))
        with store._closed_on_error(), _explained(path):
            store._connection.execute("PRAGMA synchronous = NORMAL")
            store._migrate()
            _write_ahead(store._connection)
            damage = store._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise StoreError(f"{path}: the file is damaged ({damage}); it was left as it is")
        return store

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing file for reading; also from a medium that cannot be written."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"store {str(path)!r} does not exist")
        _refuse_foreign(path)
        # Whoever can write leaves no files of the write-ahead log behind when closing; others cannot even create them.
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        alone = not writable and not Path(f"{path}-wal").exists()
        store = cls(path, _connect(path, "rw" if writable else "ro&immutable=1" if alone else "ro"))
        with store._closed_on_error(), _explained(path):
            store._connection.execute("PRAGMA query_only = ON")
            version = store._version()
        if version < len(MIGRATIONS):
            store.close()
            return cls.write(path)
        return store

    def close(self) -> None:
        """Close the file; what was committed is on it."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(self, context: str, settings: dict[str, Any]) -> None:
        """Note a study that is about to run; the same settings are noted once, with the time of the last start."""
        text = json.dumps(settings, sort_keys=True)
        with self._transaction() as connection:
            number = self._context(connection, context)
            connection.execute(
                "INSERT INTO studies (context, settings, created, started) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (context, settings) DO UPDATE SET started = excluded.started",
                (number, text, datetime.now(UTC).isoformat(timespec="seconds"), time.time()),
            )

    def studies(self) -> list[StudyEntry]:
        """The studies of the file, the last started one at the end."""
        with _explained(self.path):
            rows = self._connection.execute(
                "SELECT studies.id, hash, settings, created FROM studies JOIN contexts ON contexts.id = context "
                "ORDER BY started, studies.id"
            )
            return [StudyEntry(number, context, json.loads(text), created) for number, context, text, created in rows]

    def done(self, context: str) -> set[Key]:
        """Keys of the runs that are in the file."""
        with _explained(self.path):
            rows = self._connection.execute(
                "SELECT method, lr, seed FROM runs WHERE context = (SELECT id FROM contexts WHERE hash = ?)", (context,)
            ).fetchall()
        return {Key(*row) for row in rows}

    def add(self, context: str, records: Iterable[Record]) -> None:
        """Commit finished runs in one transaction; runs that are there already stay as they are."""
        with self._transaction() as connection:
            number = self._context(connection, context)
            layouts: dict[Any, int] = {}
            rows = []
            for run in records:
                layout = run.steps.shape, run.epochs.shape
                if layout not in layouts:
                    layouts[layout] = _number(connection, "layouts", "layout", _layout(*layout))
                data = run.steps.astype("<f8", copy=False).tobytes() + run.epochs.astype("<f8", copy=False).tobytes()
                rows.append(
                    (number, *run.key, run.status, run.diverged_at, run.violations, *run.final, layouts[layout],
                     zlib.crc32(data), data)
                )  # fmt: skip
            connection.executemany(
                f"INSERT INTO runs (context, {_COLUMNS}) VALUES ({', '.join('?' * (10 + len(FINAL_FIELDS)))})"
                " ON CONFLICT (context, method, lr, seed) DO NOTHING",
                rows,
            )

    def records(self, context: str) -> Iterator[Record]:
        """The finished runs with their traces, each checked against its checksum."""
        with _explained(self.path):
            layouts = {
                number: _Layout(text) for number, text in self._connection.execute("SELECT id, layout FROM layouts")
            }
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM runs WHERE context = (SELECT id FROM contexts WHERE hash = ?) ORDER BY id",
                (context,),
            )
            for method, lr, seed, status, diverged_at, violations, *final, layout, checksum, data in rows:
                key = Key(method, lr, seed)
                if zlib.crc32(data) != checksum:
                    raise StoreError(f"{self.path}: the traces of {method}, lr={lr}, seed={seed} are damaged")
                steps, epochs = layouts[layout].arrays(data)
                # SQLite has no NaN, it keeps NULL.
                numbers = tuple(np.nan if value is None else value for value in final)
                yield Record(key, status, diverged_at, violations, numbers, steps, epochs)

    def facts(self, problem: str) -> dict[str, Any]:
        """What was computed about a problem."""
        with _explained(self.path):
            rows = self._connection.execute("SELECT name, value FROM facts WHERE problem = ?", (problem,))
            return {name: json.loads(value) for name, value in rows}

    def remember(self, problem: str, name: str, value: Any) -> None:
        """Keep a fact about a problem, or replace it."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO facts VALUES (?, ?, ?) ON CONFLICT (problem, name) DO UPDATE SET value = excluded.value",
                (problem, name, json.dumps(value)),
            )

    def _context(self, connection: sqlite3.Connection, context: str) -> int:
        return _number(connection, "contexts", "hash", context)

    def _version(self) -> int:
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self.path}: the file has schema version {version}, this surefoot knows up to {len(MIGRATIONS)}; "
                "open it with the newer surefoot that wrote it"
            )
        return version

    def _migrate(self) -> None:
        if self._version() == len(MIGRATIONS):
            return
        with self._transaction() as connection:
            version = self._version()  # another process may have been faster
            for migration in MIGRATIONS[version:]:
                migration(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with _explained(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk rolls back on its own
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


@dataclass(frozen=True)
class FileArchive:
    """Runs and facts in a study's file, which is opened only while something is read or written."""

    path: Path
    context: str
    problem: str

    def records(self) -> Iterator[Record]:
        """All finished runs."""
        with Store.read(self.path) as store:
            yield from store.records(self.context)

    def facts(self) -> dict[str, Any]:
        """What was computed about the problem."""
        with Store.read(self.path) as store:
            return store.facts(self.problem)

    def remember(self, name: str, value: Any) -> None:
        """Keep one more fact."""
        with Store.write(self.path) as store:
            store.remember(self.problem, name, value)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    with _explained(path):
        uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _refuse_foreign(path: Path) -> None:
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
        raise StoreError(f"{path}: not a surefoot study (an SQLite database of another program); it was left as it is")


def _write_ahead(connection: sqlite3.Connection) -> None:
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


def _number(connection: sqlite3.Connection, table: str, column: str, value: str) -> int:
    """The number of a text in one of the tables that hold each text once."""
    connection.execute(f"INSERT INTO {table} ({column}) VALUES (?) ON CONFLICT DO NOTHING", (value,))
    return int(connection.execute(f"SELECT id FROM {table} WHERE {column} = ?", (value,)).fetchone()[0])


def _layout(steps: tuple[int, ...], epochs: tuple[int, ...]) -> str:
    return json.dumps({"dtype": "<f8", "steps": [STEP_FIELDS, steps], "epochs": [EPOCH_FIELDS, epochs]})


class _Layout:
    """How the arrays of a run lie in its bytes."""

    def __init__(self, text: str) -> None:
        layout = json.loads(text)
        (step_names, self.steps), (epoch_names, self.epochs) = layout["steps"], layout["epochs"]
        self.dtype = layout["dtype"]
        self.split = math.prod(self.steps)
        # Rows in today's order of fields, should it ever change.
        self.step_order = [step_names.index(name) for name in STEP_FIELDS]
        self.epoch_order = [epoch_names.index(name) for name in EPOCH_FIELDS]
        self.sorted = tuple(step_names) == STEP_FIELDS and tuple(epoch_names) == EPOCH_FIELDS

    def arrays(self, data: bytes) -> tuple[Floats, Floats]:
        values = np.frombuffer(data, self.dtype)
        steps, epochs = values[: self.split].reshape(self.steps), values[self.split :].reshape(self.epochs)
        return (steps, epochs) if self.sorted else (steps[self.step_order], epochs[self.epoch_order])


_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "reading or writing failed (disk full or gone?)",
    sqlite3.SQLITE_READONLY: "the file or its folder cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened (permissions?)",
    sqlite3.SQLITE_PERM: "the file cannot be opened (permissions?)",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is damaged",
    sqlite3.SQLITE_BUSY: f"another process has kept the file locked for {BUSY_SECONDS:g} s",
}


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say in words what SQLite reports; every finished run that was committed stays in the file."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise StoreError(f"{path}: {_REASONS[sqlite3.SQLITE_CORRUPT]} ({error}); it was left as it is") from error
    except sqlite3.Error as error:
        # The low byte is the kind of error, the rest its details.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        reason = _REASONS.get(code, "SQLite reports an error")
        raise StoreError(f"{path}: {reason} ({error}); finished runs that were committed are kept") from error
