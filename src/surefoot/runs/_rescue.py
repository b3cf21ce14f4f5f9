"""What can be saved of a damaged study file."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from surefoot.runs._connection import StoreError, decoded
from surefoot.runs._schema import (
    APPLICATION_ID,
    MIGRATIONS,
    RUN_COLUMNS,
    STUDY_QUERY,
    run_query,
    seal,
    trace_of,
)
from surefoot.runs._store import Store

_PAGE = 4096
"""Bytes of a page of every store."""

_CONTEXTS = ("contexts", "hash")
_TABLES: dict[str, tuple[str, str, dict[int, tuple[str, str]]]] = {
    "run": ("runs", run_query(), {0: _CONTEXTS, 1 + len(RUN_COLUMNS): ("layouts", "layout")}),
    "study": ("studies", STUDY_QUERY, {0: _CONTEXTS, 1: ("studies", "settings")}),
    "fact": ("facts", "problem, name, value FROM facts", {}),
}
"""The kinds of rows: their table, what their seal covers, and where else some of that is written."""


class Rescued(NamedTuple):
    """What a new file holds of a damaged one."""

    runs: int
    studies: int
    facts: int
    lost: tuple[str, ...]
    """Rows that were found and are damaged."""


def rescue(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> Rescued:
    """Copy all that is sound in a damaged study file to a new one; the damaged one is left as it is.

    A row is sound if its seal is right: what is copied has the numbers that were written. Run the same study with the
    new file to compute what is missing. Runs that are not finished are copied, too.

    >>> import pathlib, tempfile
    >>> from surefoot.study import Study
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> study = Study("linear-regression", methods=["sgd"], lrs=[0.01, 0.1], seeds=1, epochs=1, batch_size=5)
    >>> _ = study.run(folder / "study.db")
    >>> rescue(folder / "study.db", folder / "new.db").runs
    2
    """
    path, to = Path(path), Path(to)
    if not path.exists():
        raise FileNotFoundError(f"store {str(path)!r} does not exist")
    if to.exists():
        raise FileExistsError(f"to must be a file that does not exist yet, got {str(to)!r}")
    with tempfile.TemporaryDirectory(prefix="surefoot-rescue-", dir=to.parent) as folder:
        attempts = [_read(content, Path(folder, "copy.db")) for content in _attempts(path, Path(folder))]
    best = max(attempts, key=_Rows.__len__)
    unfinished = Store.folder_of(path)
    if not len(best) and not unfinished.is_dir():
        raise StoreError(f"{path}: nothing in it can be read")
    with Store.write(to) as store:
        for context, settings, created, started in best.sound["study"].values():
            store.register(context, json.loads(settings), created, started)
        for values in best.sound["run"].values():
            store.add(values[0], [trace_of(values)])
        for problem, name, value in best.sound["fact"].values():
            store.remember(problem, name, json.loads(value))
    if unfinished.is_dir():
        shutil.copytree(unfinished, Store.folder_of(to), dirs_exist_ok=True)
    runs, studies, facts = (len(best.sound[kind]) for kind in ("run", "study", "fact"))
    return Rescued(runs, studies, facts, tuple(best.lost))


class _Rows:
    """Sound rows of a file, by kind and number; a row that cannot be read at all is not among the lost ones."""

    def __init__(self) -> None:
        self.sound: dict[str, dict[int, Sequence[Any]]] = {kind: {} for kind in _TABLES}
        self.lost: list[str] = []

    def __len__(self) -> int:
        return sum(map(len, self.sound.values()))

    def take(self, kind: str, number: int, row_seal: bytes, values: list[Any], others: dict[int, set[str]]) -> None:
        """Keep a row whose seal is right; ``others`` may stand at some of its places.

        What many rows refer to is written in two places, a table and its index: one that is sound is enough.
        """
        choices = [[value, *sorted(others.get(k, set()) - {value})] for k, value in enumerate(values)]
        for row in itertools.product(*choices):
            if row_seal == seal(kind, *row):
                self.sound[kind][number] = row
                return
        name = ", ".join(str(value) for value in values[1:4]) if kind == "run" else str(number)
        self.lost.append(f"{kind} {name}")


def _attempts(path: Path, folder: Path) -> Iterator[bytes]:
    """The file with the fixed fields of its header as they must be, and with the first page of a new store."""
    content = bytearray(_checkpointed(path, folder))
    content += bytes(-len(content) % _PAGE)
    if len(content) < _PAGE:
        content += bytes(_PAGE)
    pages = len(content) // _PAGE
    fields = {0: b"SQLite format 3\0", 16: struct.pack(">HBBBBBB", _PAGE, 1, 1, 0, 64, 32, 32)}
    fields |= {28: struct.pack(">IIIII", pages, 0, 0, 0, 4), 52: struct.pack(">II", 0, 1), 92: bytes(content[24:28])}
    fields |= {60: struct.pack(">III", len(MIGRATIONS), 0, APPLICATION_ID)}
    for place, value in fields.items():
        content[place : place + len(value)] = value
    yield bytes(content)
    with Store.write(folder / "new.db"):
        pass
    content[100:_PAGE] = (folder / "new.db").read_bytes()[100:_PAGE]
    yield bytes(content)


def _checkpointed(path: Path, folder: Path) -> bytes:
    """The content of a file, with what a killed process left in the write-ahead log beside it."""
    log = Path(f"{path}-wal")
    if log.exists():
        copy = folder / "logged.db"
        copy.write_bytes(path.read_bytes())
        Path(f"{copy}-wal").write_bytes(log.read_bytes())
        with suppress(sqlite3.Error), closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return copy.read_bytes()
    return path.read_bytes()


def _read(content: bytes, copy: Path) -> _Rows:
    copy.write_bytes(content)
    rows = _Rows()
    with closing(sqlite3.connect(f"file:{quote(str(copy.absolute()))}?immutable=1", uri=True)) as connection:
        connection.text_factory = decoded
        for kind, (table, query, places) in _TABLES.items():
            others = {place: _texts(connection, *where) for place, where in places.items()}
            for number, row_seal, *values in _each(connection, table, query):
                rows.take(kind, number, row_seal, values, others)
    return rows


def _texts(connection: sqlite3.Connection, table: str, column: str) -> set[str]:
    """The texts that a column of a table and its index hold."""
    texts: set[str] = set()
    for where in ("NOT INDEXED", f"INDEXED BY sqlite_autoindex_{table}_1"):
        with suppress(sqlite3.Error):
            for (value,) in connection.execute(f"SELECT {column} FROM {table} {where}"):
                texts |= {value} if isinstance(value, str) else set()
    return texts


def _each(connection: sqlite3.Connection, table: str, query: str) -> Iterator[Sequence[Any]]:
    """The rows of a table that can be read, one by one: a damaged page hides no others."""
    last = 0
    for where in ("", f" INDEXED BY sqlite_autoindex_{table}_1"):
        with suppress(sqlite3.Error, TypeError):
            last = max(last, int(connection.execute(f"SELECT max(rowid) FROM {table}{where}").fetchone()[0]))
    for place in range(1, min(last, 10**6) + 1):
        with suppress(sqlite3.Error):
            yield from connection.execute(
                f"SELECT {table}.rowid, {table}.seal, {query} WHERE {table}.rowid = ?", (place,)
            ).fetchall()
