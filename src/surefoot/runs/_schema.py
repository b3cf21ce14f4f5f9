"""The tables of a store, how older files become like them, the seal that every row has, and runs as rows."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from surefoot.runs._types import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Floats, Key, Record

APPLICATION_ID = 0x53_46_4F_54
"""``SFOT`` in the header of every store: what tells it from other SQLite files."""

RUN_COLUMNS = ("method", "lr", "seed", "status", "diverged_at", "violations", *FINAL_FIELDS)
"""What is kept of a run beside its arrays."""


def seal(kind: str, *values: Any) -> bytes:
    """A checksum over all that a row says; ids of other rows are replaced by what those say.

    >>> seal("fact", "p", "optimum", "0.1") == seal("fact", "p", "optimum", "0.3")
    False
    """
    found = hashlib.blake2b(kind.encode(), digest_size=12)
    for value in values:
        content = _bytes(value)
        found.update(f"{type(value).__name__}{len(content)}:".encode() + content)
    return found.digest()


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return struct.pack("<d", value + 0.0)  # SQLite has no −0
    return str(value).encode("utf-8", "surrogateescape")


def stored(value: float) -> float | None:
    """A number as SQLite keeps it: it has no NaN, but NULL."""
    return None if math.isnan(value) else float(value)


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


def _seal_rows(connection: sqlite3.Connection) -> None:
    """Every row gets a seal; a run whose old checksum, which knew the arrays only, is wrong gets none. Claims."""
    for table in ("runs", "studies", "facts"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN seal BLOB")
    rows = connection.execute(f"SELECT runs.id, checksum, {run_query()}").fetchall()
    for number, checksum, *values in rows:
        if zlib.crc32(values[-1]) == checksum:
            connection.execute("UPDATE runs SET seal = ? WHERE id = ?", (seal("run", *values), number))
    for number, *values in connection.execute(f"SELECT studies.id, {STUDY_QUERY}").fetchall():
        connection.execute("UPDATE studies SET seal = ? WHERE id = ?", (seal("study", *values), number))
    for number, *values in connection.execute("SELECT rowid, problem, name, value FROM facts").fetchall():
        connection.execute("UPDATE facts SET seal = ? WHERE rowid = ?", (seal("fact", *values), number))
    connection.execute("ALTER TABLE runs DROP COLUMN checksum")
    # Both small: every claim is a commit.
    connection.execute("CREATE TABLE owners (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, until REAL NOT NULL)")
    connection.execute("CREATE TABLE claims (run INTEGER PRIMARY KEY, owner INTEGER NOT NULL REFERENCES owners)")


def _add_begun(connection: sqlite3.Connection) -> None:
    """A table that nobody uses: versions on the way to 0.2 had it, and their stores are read."""
    connection.execute(
        """CREATE TABLE begun (
            id INTEGER PRIMARY KEY, context INTEGER NOT NULL REFERENCES contexts, method TEXT NOT NULL,
            lr REAL NOT NULL, seed INTEGER NOT NULL, about TEXT NOT NULL, data BLOB NOT NULL, seal BLOB NOT NULL,
            UNIQUE (context, method, lr, seed))"""
    )


def claim_of(context: str, key: Sequence[Any]) -> int:
    """The number that a run is claimed under."""
    return int.from_bytes(seal("claim", context, *key)[:8], "little", signed=True)


def run_query(more: str = "") -> str:
    """What a run's seal covers, in this order: ``SELECT`` this."""
    columns = ", ".join(f"runs.{name}" for name in RUN_COLUMNS)
    return (
        f"contexts.hash, {columns}, layouts.layout, data{more} FROM runs "
        "LEFT JOIN contexts ON contexts.id = runs.context LEFT JOIN layouts ON layouts.id = runs.layout"
    )


STUDY_QUERY = (
    "contexts.hash, settings, created, started FROM studies LEFT JOIN contexts ON contexts.id = studies.context"
)
"""What a study's seal covers, in this order: ``SELECT`` this."""

MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_create, _seal_rows, _add_begun]
"""Entry k takes a file from schema version k to k + 1, inside one transaction with all others that are due."""


def tables(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """All tables and indices of a file, as it describes them."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    return connection.execute(query).fetchall()


def expected_tables(migrations: list[Callable[[sqlite3.Connection], None]]) -> list[tuple[Any, ...]]:
    """What :func:`tables` tells about a sound file."""
    return _expected(tuple(migrations))


@lru_cache(maxsize=8)
def _expected(migrations: tuple[Callable[[sqlite3.Connection], None], ...]) -> list[tuple[Any, ...]]:
    with sqlite3.connect(":memory:") as connection:
        for migration in migrations:
            migration(connection)
        found = tables(connection)
    connection.close()
    return found


# Runs as rows: arrays are raw little-endian numbers, and a layout says how they lie.


def layout_of(steps: tuple[int, ...], epochs: tuple[int, ...]) -> str:
    """How arrays of these shapes lie in the bytes of a run, as text."""
    return json.dumps({"dtype": "<f8", "steps": [STEP_FIELDS, steps], "epochs": [EPOCH_FIELDS, epochs]})


def record_of(values: Sequence[Any]) -> Record:
    """The run that a row holds, whose seal is right: what :func:`run_query` selects."""
    _, method, lr, seed, status, diverged_at, violations, *final, layout, data = values
    steps, epochs = _layout(layout).arrays(data)
    numbers = tuple(np.nan if value is None else value for value in final)
    return Record(Key(method, lr, seed), status, diverged_at, violations, numbers, steps, epochs)


@lru_cache(maxsize=64)
def _layout(text: str) -> _Layout:
    return _Layout(text)


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
