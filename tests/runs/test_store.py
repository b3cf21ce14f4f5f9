"""The study's file: what is kept, and what a damaged, foreign, old, read-only or full one does."""

import os
import pickle
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.processes import Program

from surefoot.runs import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Key, Record, States, Store, Trace
from surefoot.study import StoreError

BOTH = pytest.mark.parametrize("open_store", [Store.write, Store.read])


def make(lr, seed=0, steps=20, method="sgd"):
    random = np.random.default_rng(seed)
    return Trace(
        Key(method, lr, seed),
        "finished",
        -1,
        dict(zip(STEP_FIELDS, random.random((6, steps)), strict=True)),
        dict(zip(EPOCH_FIELDS, random.random((2, 3)), strict=True)),
        dict(zip(FINAL_FIELDS, (0.5, np.inf, 0.25), strict=True)),
    )


def fill(path, *records, context="c"):
    with Store.write(path) as store:
        store.add(context, records)


def stored(path, context="c"):
    with Store.read(path) as store:
        return list(store.traces(context))


def assert_same(found, expected):
    assert (found[:3], found.final, found.violations) == (expected[:3], expected.final, expected.violations)
    for ours, theirs in ((found.steps, expected.steps), (found.epochs, expected.epochs)):
        assert {name: row.tobytes() for name, row in ours.items()} == {k: row.tobytes() for k, row in theirs.items()}


def test_runs_of_any_length_come_back_bit_for_bit(tmp_path):
    runs = make(0.1, steps=3), make(1e-300, seed=7, steps=5)
    fill(tmp_path / "s.db", *runs)
    for found, expected in zip(stored(tmp_path / "s.db"), runs, strict=True):
        assert_same(found, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_a_run_is_kept_once_and_never_replaced(tmp_path):
    fill(tmp_path / "s.db", make(0.1))
    fill(tmp_path / "s.db", make(0.1)._replace(status="diverged"), make(0.2))
    assert [run.status for run in stored(tmp_path / "s.db")] == ["finished", "finished"]


def test_facts_are_kept_and_replaced(tmp_path):
    with Store.write(tmp_path / "s.db") as store:
        store.remember("p", "optimum", {"value": 0.1})
        store.remember("p", "optimum", {"value": 0.2, "at": [1e-17]})
    with Store.read(tmp_path / "s.db") as store:
        assert store.facts("p") == {"optimum": {"value": 0.2, "at": [1e-17]}}


def test_the_same_study_is_noted_once_and_moves_to_the_end(tmp_path):
    with Store.write(tmp_path / "s.db") as store:
        for name in ("a", "b", "a"):
            store.register("c", {"name": name})
        assert [entry.settings["name"] for entry in store.studies()] == ["b", "a"]


def test_an_empty_file_is_a_new_store(tmp_path):
    """What a process leaves that is killed while it creates one."""
    (tmp_path / "s.db").touch()
    assert stored(tmp_path / "s.db") == []
    fill(tmp_path / "s.db", make(0.1))
    assert len(stored(tmp_path / "s.db")) == 1


def test_what_does_not_exist_is_named_and_not_created(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere' does not exist"):
        Store.write(tmp_path / "nowhere" / "s.db")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Store.read(tmp_path / "s.db")
    assert not list(tmp_path.iterdir())


@BOTH
def test_what_is_no_file_is_refused_at_once(tmp_path, open_store):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="a store must be a file, this is a device or pipe"):
        open_store(tmp_path / "pipe")
    with pytest.raises(StoreError, match="a store must be a file, this is a folder"):
        open_store(tmp_path)


def test_a_file_where_the_states_would_be_is_named(tmp_path):
    (tmp_path / "s.db.states").write_text("notes")
    with pytest.raises(StoreError, match=r"states must be a folder for unfinished runs, '.*s\.db\.states' is a file"):
        Store.write(tmp_path / "s.db")


def test_a_path_that_is_no_text_works(tmp_path):
    path = Path(os.fsdecode(bytes(tmp_path) + b"/\xff.db"))
    fill(path, make(0.1))
    assert_same(stored(path)[0], make(0.1))
    path.write_bytes(b"hello")
    with pytest.raises(StoreError, match=r"udcff\.db: not a surefoot study") as raised:
        Store.read(path)
    str(raised.value).encode()


def test_what_others_add_to_the_database_is_left_alone(tmp_path):
    fill(tmp_path / "s.db", make(0.1))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute("ANALYZE")
        connection.execute("CREATE VIEW best AS SELECT method, lr, last_loss FROM runs")
        connection.commit()
    fill(tmp_path / "s.db", make(0.2))
    assert len(stored(tmp_path / "s.db")) == 2


def another_schema(path):
    fill(path, make(0.1))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 3")


def another_program(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (id)")
        connection.commit()


@BOTH
@pytest.mark.parametrize(
    ("make_file", "message"),
    [
        (another_schema, "schema version 3, this surefoot reads and writes version 5"),
        (another_program, "not a surefoot study, but a database of another program"),
        (lambda path: path.write_bytes(b"hello"), "not a surefoot study"),
        (lambda path: path.write_bytes(b"problem = 3\n" * 100), "not a surefoot study"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), "not a surefoot study"),
    ],
)
def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path, open_store, make_file, message):
    path = tmp_path / "s.db"
    make_file(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=message):
        open_store(path)
    assert path.read_bytes() == before
    assert [other.name for other in tmp_path.iterdir()] == ["s.db"]


def test_a_store_without_a_path_is_in_memory():
    with Store.write() as store:
        store.add("c", [make(0.1)])
        copy = pickle.loads(pickle.dumps(store))
        assert_same(next(copy.traces("c")), make(0.1))


def test_a_lock_keeps_others_waiting_until_it_is_released(tmp_path, caplog):
    order = []

    def follow():
        with Store.write(tmp_path / "s.db") as store, store.locked("c"):
            order.append("second")

    with Store.write(tmp_path / "s.db") as store, store.locked("c"):
        thread = threading.Thread(target=follow)
        thread.start()
        thread.join(0.5)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]
    assert "another process computes the same runs; this one waits for it" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_a_study_that_is_deleted_takes_its_runs_and_states_with_it(tmp_path):
    with Store.write(tmp_path / "s.db") as store:
        for context in ("a", "b"):
            store.register(context, {"name": context})
            store.add(context, [make(0.1)])
            States(str(store.states), context).save(Record(Key("sgd", 0.2, 0), 20, np.ones(3)), {"x": 1.0})
        store.delete(store.studies()[0])
        assert [entry.settings["name"] for entry in store.studies()] == ["b"]
        assert (store.done("a"), len(store.done("b")), len(store.unfinished())) == (set(), 1, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:100] + bytes(4096 - 100) + content[4096:],
        lambda content: content[:4096] + bytes(len(content) - 4096),
    ],
    ids=["half", "no schema", "zeros"],
)
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path, change):
    path = tmp_path / "s.db"
    fill(path, *(make(0.1 * k, seed=k, steps=300) for k in range(1, 20)))
    path.write_bytes(change(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="damaged"):
        Store.write(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("flips", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_flipped_bits_never_change_a_number(tmp_path, flips):
    runs = [make(0.1 * k, seed=k) for k in range(1, 4)]
    fill(tmp_path / "s.db", *runs)
    content, random, found = (tmp_path / "s.db").read_bytes(), np.random.default_rng(5), 0
    for _ in range(flips):
        flipped = bytearray(content)
        flipped[random.integers(len(content))] ^= 1 << random.integers(8)
        (tmp_path / "s.db").write_bytes(flipped)
        try:
            with Store.write(tmp_path / "s.db") as store:
                now = list(store.traces("c"))
        except StoreError:
            found += 1
        else:
            for run in now:  # where its key in an index was hit, a run is not found
                assert_same(run, next(expected for expected in runs if expected.key == run.key))
    assert 0 < found < flips


def test_an_error_inside_a_chunk_keeps_the_chunks_before(tmp_path):
    def broken():
        yield make(0.2)
        raise KeyboardInterrupt

    with Store.write(tmp_path / "s.db") as store:
        store.add("c", [make(0.1)])
        with pytest.raises(KeyboardInterrupt):
            store.add("c", broken())
        store.add("c", [make(0.3)])
    assert [run.key.lr for run in stored(tmp_path / "s.db")] == [0.1, 0.3]


def test_a_full_database_says_so_and_keeps_the_runs_before(tmp_path):
    with Store.write(tmp_path / "s.db") as store:
        store.add("c", [make(0.1)])
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(StoreError, match=r"disk is full; finished runs that were committed are kept"):
            store.add("c", [make(0.2, steps=5000)])
    assert [run.key.lr for run in stored(tmp_path / "s.db")] == [0.1]


def test_a_read_only_file_can_be_read_and_says_that_it_cannot_be_written():
    """As another user, because permissions do not hold for root."""
    program = """
import os, sys
from surefoot.runs import Store
from surefoot.study import StoreError
if os.geteuid() == 0:
    os.setuid(65534)
with Store.read(sys.argv[1]) as store:
    print(len(store.done("c")))
try:
    Store.write(sys.argv[1])
except StoreError as error:
    print(error)
"""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "s.db")
        fill(path, make(0.1))
        path.chmod(0o444)
        path.parent.chmod(0o555)
        with Program(program, path) as process:
            out, _ = process.communicate(timeout=60)
        path.parent.chmod(0o755)
    assert out.startswith("1\n")
    assert "cannot be written" in out
