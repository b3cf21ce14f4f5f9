"""The store of studies and searches: one SQLite file, which survives ``kill -9``, a full disk, and a second process.

Finished runs are committed in chunks, each in one short transaction (write-ahead log), so a file holds all chunks that
were committed and nothing half written. ``synchronous=NORMAL`` never corrupts; only a power cut can lose the last
chunks, and they are then computed anew, bit for bit the same. Traces are raw little-endian arrays, uncompressed: random
mantissas shrink by little, and compressing them would take longer than computing them. Every row has a seal, a checksum
over all that it says: a damaged file gives an error, never a wrong number.

Tables: ``contexts`` (all that the runs of a sweep share, as a hash), ``runs`` (one row a run, unique in context,
method, rate and seed: an identical run is never stored twice), ``layouts`` (dtype, fields and shapes of the arrays),
``studies`` (their settings as JSON), ``facts`` (what was computed about a problem, as JSON), ``claims`` (who computes
which runs just now). Runs that are not finished are files in the folder ``STORE.runs`` beside it, one each.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from surefoot.runs._claims import LEASE, is_alive
from surefoot.runs._connection import ADVICE, StoreError, connect, copied, explained, refuse_foreign, write_ahead
from surefoot.runs._schema import (
    APPLICATION_ID,
    MIGRATIONS,
    RUN_COLUMNS,
    STUDY_QUERY,
    claim_of,
    data_of,
    expected_tables,
    run_query,
    seal,
    stored,
    tables,
    trace_of,
)
from surefoot.runs._types import FINAL_FIELDS, Key, Trace


class StudyEntry(NamedTuple):
    """One study of a file."""

    number: int
    context: str
    settings: dict[str, Any]
    created: str


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
        refuse_foreign(path)
        store = cls(path, connect(path, "rwc"))
        with ExitStack() as opened, explained(path):
            opened.callback(store.close)
            store._connection.execute("PRAGMA synchronous = NORMAL")
            store._migrate()
            write_ahead(store._connection)
            store._check()
            opened.pop_all()
        return store

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing file for reading; also from a medium that cannot be written."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"store {str(path)!r} does not exist")
        refuse_foreign(path)
        # Whoever can write leaves no files of the write-ahead log behind when closing; others cannot even create them.
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        alone = not writable and not Path(f"{path}-wal").exists()
        store = cls(path, connect(path, "rw" if writable else "ro&immutable=1" if alone else "ro"))
        with ExitStack() as opened, explained(path):
            opened.callback(store.close)
            if store._version() < len(MIGRATIONS):
                if writable:
                    store.close()
                    return cls.write(path)
                store._connection = copied(store._connection)  # an older file that must stay as it is
                store._migrate()
            store._connection.execute("PRAGMA query_only = ON")
            store._check()
            opened.pop_all()
        return store

    def close(self) -> None:
        """Close the file; what was committed is on it."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(
        self, context: str, settings: dict[str, Any], created: str | None = None, started: float | None = None
    ) -> None:
        """Note a study that is about to run; the same settings are noted once, with the time of the last start.

        ``created`` and ``started`` are those of another file that has it; by default it is now.
        """
        text = json.dumps(settings, sort_keys=True)
        started = time.time() if started is None else started
        with self._transaction() as connection:
            number = _number(connection, "contexts", "hash", context)
            query = "SELECT created FROM studies WHERE context = ? AND settings = ?"
            row = connection.execute(query, (number, text)).fetchone()
            created = row[0] if row else created or datetime.now(UTC).isoformat(timespec="seconds")
            connection.execute(
                "INSERT INTO studies (context, settings, created, started, seal) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (context, settings) DO UPDATE SET started = excluded.started, seal = excluded.seal",
                (number, text, created, started, seal("study", context, text, created, started)),
            )

    def studies(self) -> list[StudyEntry]:
        """The studies of the file, the last started one at the end."""
        with explained(self.path):
            query = f"SELECT studies.id, seal, {STUDY_QUERY} ORDER BY started, studies.id"
            rows = self._connection.execute(query).fetchall()
            for number, row_seal, *values in rows:
                if row_seal != seal("study", *values):
                    raise self.damaged(f"the settings of study {number} are not those that were written")
            return [
                StudyEntry(number, context, json.loads(settings), created)
                for number, _, context, settings, created, _ in rows
            ]

    def done(self, context: str) -> set[Key]:
        """Keys of the runs that are in the file."""
        with explained(self.path):
            rows = self._connection.execute(
                "SELECT method, lr, seed FROM runs WHERE context = (SELECT id FROM contexts WHERE hash = ?)", (context,)
            ).fetchall()
        return {Key(*row) for row in rows}

    def add(self, context: str, traces: Iterable[Trace]) -> None:
        """Commit finished runs in one transaction, which ends the claims to them; runs that are there already stay."""
        with self._transaction() as connection:
            number = _number(connection, "contexts", "hash", context)
            layouts: dict[str, int] = {}
            rows = []
            for trace in traces:
                layout, data = data_of(trace)
                if layout not in layouts:
                    layouts[layout] = _number(connection, "layouts", "layout", layout)
                final = (stored(trace.final[name]) for name in FINAL_FIELDS)
                values = (*trace.key, trace.status, trace.diverged_at, trace.violations, *final)
                rows.append((number, *values, layouts[layout], data, seal("run", context, *values, layout, data)))
            columns = ("context", *RUN_COLUMNS, "layout", "data", "seal")
            connection.executemany(
                f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
                " ON CONFLICT (context, method, lr, seed) DO NOTHING",
                rows,
            )
            connection.executemany("DELETE FROM claims WHERE run = ?", [(claim_of(context, row[1:4]),) for row in rows])

    def traces(self, context: str, key: Key | None = None) -> Iterator[Trace]:
        """The finished runs, or one of them, with their traces, each checked against its seal."""
        condition, arguments = ("", ()) if key is None else (" AND method = ? AND lr = ? AND seed = ?", tuple(key))
        query = f"SELECT {run_query(', seal')} WHERE contexts.hash = ?{condition} ORDER BY runs.id"
        with explained(self.path):
            rows = self._connection.execute(query, (context, *arguments))
            for *values, row_seal in rows:
                if row_seal != seal("run", *values):
                    _, method, lr, seed, *_ = values
                    raise self.damaged(f"the traces of {method}, lr={lr}, seed={seed} are damaged", whole=False)
                yield trace_of(values)

    @staticmethod
    def folder_of(path: Path) -> Path:
        """The folder of a store's unfinished runs."""
        return Path(f"{path.absolute()}.runs")

    def facts(self, problem: str) -> dict[str, Any]:
        """What was computed about a problem."""
        with explained(self.path):
            query = "SELECT problem, name, value, seal FROM facts WHERE problem = ?"
            rows = self._connection.execute(query, (problem,)).fetchall()
            for *values, row_seal in rows:
                if row_seal != seal("fact", *values):
                    raise self.damaged(f"the fact {values[1]!r} is not what was written")
            return {name: json.loads(value) for _, name, value, _ in rows}

    def remember(self, problem: str, name: str, value: Any) -> None:
        """Keep a fact about a problem, or replace it."""
        text = json.dumps(value)
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO facts (problem, name, value, seal) VALUES (?, ?, ?, ?) ON CONFLICT (problem, name) "
                "DO UPDATE SET value = excluded.value, seal = excluded.seal",
                (problem, name, text, seal("fact", problem, name, text)),
            )

    def claim(self, context: str, keys: Iterable[Key], owner: str) -> bool:
        """Claim runs for an owner: all of them, or none if one is stored already or claimed by somebody alive."""
        keys = list(keys)
        with self._transaction() as connection:
            if not self.done(context).isdisjoint(keys) or len(self.free(context, keys, owner)) < len(keys):
                return False
            connection.execute(
                "INSERT INTO owners (name, until) VALUES (?, ?) ON CONFLICT (name) "
                "DO UPDATE SET until = excluded.until",
                (owner, time.time() + LEASE),
            )
            (number,) = connection.execute("SELECT id FROM owners WHERE name = ?", (owner,)).fetchone()
            rows = [(claim_of(context, key), number) for key in keys]
            connection.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?)", rows)
        return True

    def free(self, context: str, keys: Iterable[Key], owner: str) -> list[Key]:
        """The runs among ``keys`` that can be claimed now."""
        query = "SELECT run, name, until FROM claims JOIN owners ON owners.id = claims.owner WHERE name != ?"
        with explained(self.path):
            rows, now = self._connection.execute(query, (owner,)).fetchall(), time.time()
        owners = {(name, until) for _, name, until in rows}
        living = {(name, until) for name, until in owners if is_alive(name, until, now)}
        busy = {run for run, name, until in rows if (name, until) in living}
        return [key for key in keys if claim_of(context, key) not in busy]

    def unclaim(self, context: str, keys: Iterable[Key], owner: str) -> None:
        """End the claims of an owner to some runs."""
        query = "DELETE FROM claims WHERE run = ? AND owner = (SELECT id FROM owners WHERE name = ?)"
        with self._transaction() as connection:
            connection.executemany(query, [(claim_of(context, key), owner) for key in keys])

    def renew(self, owner: str) -> None:
        """Let the claims of an owner hold on."""
        with self._transaction() as connection:
            connection.execute("UPDATE owners SET until = ? WHERE name = ?", (time.time() + LEASE, owner))

    def release(self, owner: str) -> None:
        """End all claims of an owner, and of those that are dead."""
        with self._transaction() as connection:
            rows, now = connection.execute("SELECT id, name, until FROM owners").fetchall(), time.time()
            ended = [(number,) for number, name, until in rows if name == owner or not is_alive(name, until, now)]
            connection.executemany("DELETE FROM claims WHERE owner = ?", ended)
            connection.executemany("DELETE FROM owners WHERE id = ?", ended)

    def largest_row(self) -> int:
        """The most bytes that SQLite takes for one run."""
        return self._connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)

    def damaged(self, what: str, *, whole: bool = True) -> StoreError:
        """The error to raise about damage."""
        words = f"the file is damaged: {what}" if whole else what
        return StoreError(f"{self.path}: {words}; {ADVICE.format(path=str(self.path))}")

    def _check(self) -> None:
        """Refuse a file whose structure is damaged: rows could be missing, or found in the wrong place."""
        state = _state(self.path)
        if state in _sound:
            return
        if tables(self._connection) != expected_tables(tuple(MIGRATIONS)):
            raise self.damaged("its tables are not described as they were")
        report = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if report != "ok":
            raise self.damaged(str(report))
        _sound.clear()
        _sound.add(state)

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
        with explained(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk rolls back on its own
                    connection.execute("ROLLBACK")
                raise


_sound: set[tuple[Any, ...]] = set()
"""The state of the file that was last found sound, so that it is not read again and again."""


def _state(path: Path) -> tuple[Any, ...]:
    """What changes whenever a file does."""
    state: list[Any] = [str(path.absolute()), len(MIGRATIONS)]
    for name in (path, Path(f"{path}-wal")):
        with suppress(OSError):
            status = name.stat()
            state += [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]
    return tuple(state)


def _number(connection: sqlite3.Connection, table: str, column: str, value: str) -> int:
    """The number of a text in a table that holds each text once; a new text is inserted."""
    connection.execute(f"INSERT INTO {table} ({column}) VALUES (?) ON CONFLICT DO NOTHING", (value,))
    return int(connection.execute(f"SELECT id FROM {table} WHERE {column} = ?", (value,)).fetchone()[0])
