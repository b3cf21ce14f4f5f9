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

from surefoot.runs._types import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Key, Trace

APPLICATION_ID = 0x53_46_4F_54
"""``SFOT`` in the header of every store: what tells it from other SQLite files."""

RUN_COLUMNS = ("method", "lr", "seed", "status", "diverged_at", "violations", *FINAL_FIELDS)
"""What is kept of a run beside its arrays."""


def seal(kind: str, *values: Any) -> bytes:
    """A checksum over all that a row says; ids of other rows are replaced by what those say.

    >>> seal("fact", "p", "optimum", "0.1") == seal("fact", "p", "optimum", "0.3")
    False
    """
    checksum = hashlib.blake2b(kind.encode(), digest_size=12)
    for value in values:
        content = _bytes(value)
        checksum.update(f"{type(value).__name__}{len(content)}:".encode() + content)
    return checksum.digest()


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
    """Give rows their seals, except runs whose old checksum (of the arrays only) is wrong; add the tables of claims."""
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
    # Both tables are small, because every claim is a commit.
    connection.execute("CREATE TABLE owners (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, until REAL NOT NULL)")
    connection.execute("CREATE TABLE claims (run INTEGER PRIMARY KEY, owner INTEGER NOT NULL REFERENCES owners)")


def _add_begun(connection: sqlite3.Connection) -> None:
    """Add a table that nobody uses: versions on the way to 0.2 had it, and their stores are read."""
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
    """What to ``SELECT`` of runs: all that a run's seal covers, in its order."""
    columns = ", ".join(f"runs.{name}" for name in RUN_COLUMNS)
    return (
        f"contexts.hash, {columns}, layouts.layout, data{more} FROM runs "
        "LEFT JOIN contexts ON contexts.id = runs.context LEFT JOIN layouts ON layouts.id = runs.layout"
    )


STUDY_QUERY = (
    "contexts.hash, settings, created, started FROM studies LEFT JOIN contexts ON contexts.id = studies.context"
)
"""What to ``SELECT`` of studies: all that a study's seal covers, in its order."""

MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_create, _seal_rows, _add_begun]
"""Entry k takes a file from schema version k to k + 1, inside one transaction with all others that are due."""


def tables(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """All tables and indices of a file, as it describes them."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    return connection.execute(query).fetchall()


@lru_cache(maxsize=8)
def expected_tables(migrations: tuple[Callable[[sqlite3.Connection], None], ...]) -> list[tuple[Any, ...]]:
    """What :func:`tables` returns for a sound file."""
    with sqlite3.connect(":memory:") as connection:
        for migration in migrations:
            migration(connection)
        expected = tables(connection)
    connection.close()
    return expected


# Runs as rows: arrays are raw little-endian numbers, one field after the other, and a layout says how they lie.


def data_of(trace: Trace) -> tuple[str, bytes]:
    """The layout of a run's arrays, and their bytes; what was not measured is NaN there."""
    epochs = len(trace.epochs["train_loss"])
    layout = _layout_of(len(trace.steps["loss"]), epochs)
    losses = (trace.epochs[name] for name in EPOCH_FIELDS)
    rows = [
        *(trace.steps[name] for name in STEP_FIELDS),
        *(row if len(row) else np.full(epochs, np.nan) for row in losses),
    ]
    return layout, b"".join(np.ascontiguousarray(row, "<f8").data for row in rows)


@lru_cache(maxsize=64)
def _layout_of(steps: int, epochs: int) -> str:
    fields = {"steps": [STEP_FIELDS, (len(STEP_FIELDS), steps)], "epochs": [EPOCH_FIELDS, (len(EPOCH_FIELDS), epochs)]}
    return json.dumps({"dtype": "<f8", **fields})


def trace_of(values: Sequence[Any]) -> Trace:
    """The run that a row holds, whose seal is right: what :func:`run_query` selects."""
    _, method, lr, seed, status, diverged_at, violations, *final, layout, data = values
    dtype, step_fields, steps, epoch_fields, epochs = _parsed_layout(layout)
    numbers, split = np.frombuffer(data, dtype), math.prod(steps)
    return Trace(
        Key(method, lr, seed),
        status,
        diverged_at,
        dict(zip(step_fields, numbers[:split].reshape(steps), strict=True)),
        dict(zip(epoch_fields, numbers[split:].reshape(epochs), strict=True)),
        {name: np.nan if value is None else value for name, value in zip(FINAL_FIELDS, final, strict=True)},
        violations,
    )


@lru_cache(maxsize=64)
def _parsed_layout(text: str) -> tuple[str, Sequence[str], Sequence[int], Sequence[str], Sequence[int]]:
    """Type of the numbers; names and shape of the steps' fields, and of the epochs'."""
    layout = json.loads(text)
    return layout["dtype"], *layout["steps"], *layout["epochs"]
