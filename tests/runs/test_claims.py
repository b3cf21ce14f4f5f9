"""Several processes on one store, claims of the dead, runs that are too large, and stores of version 0.1."""

import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.processes import Program
from tests.runs.network_cases import make_study
from tests.study.test_sweep import PROGRAM, SWEEP

from surefoot.runs import RunFiles, _claims
from surefoot.runs._bench import Bench
from surefoot.runs._claims import LEASE, is_alive, owner
from surefoot.runs._engine import Chunks
from surefoot.runs._store import Store
from surefoot.runs._types import Key
from surefoot.study import Result, Study

OLD = Path(__file__).parent / "data" / "store-0.1.sqlite"
KEYS = [Key("sgd", 0.1, 0), Key("sgd", 0.2, 0)]


def owner_of(host, pid, start="0"):
    return json.dumps({"host": host, "pid": pid, "start": start, "id": "a"})


# Claims.


def test_a_run_that_somebody_computes_is_not_free(tmp_path):
    with Store.write(tmp_path / "s.db") as store, owner(store.renew) as one, owner(store.renew) as other:
        assert store.claim("c", KEYS[:1], one)
        assert store.free("c", KEYS, other) == KEYS[1:]
        assert store.free("c", KEYS, one) == KEYS
        assert not store.claim("c", KEYS, other)  # all or none
        assert store.free("c", KEYS[1:], one) == KEYS[1:]
        assert store.claim("other", KEYS, other)
        store.release(one)
        assert store.claim("c", KEYS, other)


def test_the_claim_of_an_owner_that_has_ended_is_free(tmp_path):
    with Store.write(tmp_path / "s.db") as store:
        with owner(store.renew) as one:
            assert store.claim("c", KEYS, one)
        assert store.free("c", KEYS, "me") == KEYS


def test_the_claim_of_a_dead_process_of_this_machine_ends_at_once(tmp_path):
    program = (
        "import os, sys; from surefoot.runs._claims import owner; from surefoot.runs._types import Key\n"
        "from surefoot.runs._store import Store\n"
        "with Store.write(sys.argv[1]) as store, owner(store.renew) as name:\n"
        f"    store.claim('c', [Key(*key) for key in {[tuple(key) for key in KEYS]!r}], name)\n"
        "    print('claimed', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, tmp_path / "s.db"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "claimed\n"
        with Store.write(tmp_path / "s.db") as store:
            assert store.free("c", KEYS, "me") == []
            process.kill()
            deadline = time.monotonic() + 30
            while store.free("c", KEYS, "me") != KEYS and time.monotonic() < deadline:
                time.sleep(0.01)  # a zombie until it is waited for, which counts as dead
            assert store.claim("c", KEYS, "me")


@pytest.mark.parametrize(
    ("owner", "until", "alive"),
    [
        (owner_of("elsewhere", 1), LEASE / 2, True),
        (owner_of("elsewhere", 1), -1.0, False),
        (owner_of("elsewhere", 1), 1e9, False),
        ("{", LEASE / 2, False),
        ("[]", LEASE / 2, False),
    ],
    ids=["elsewhere", "expired", "for ever", "damaged", "no owner"],
)
def test_claims_of_other_machines_expire(owner, until, alive):
    now = time.time()
    assert is_alive(owner, now + until, now) == alive


def test_another_process_with_the_same_number_is_not_the_owner():
    now, host = time.time(), _claims._host()
    parent = os.getppid()
    assert is_alive(owner_of(host, parent, _claims._start(parent)), now + 1, now)
    assert not is_alive(owner_of(host, parent, "another time"), now + 1, now)
    assert socket.gethostname() in host


def test_claims_are_renewed_while_their_owner_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(_claims, "LEASE", 0.2)
    renewed = []
    with owner(renewed.append) as name:
        deadline = time.monotonic() + 20
        while len(renewed) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert renewed[:3] == [name] * 3


COUNTED = """
from surefoot.runs._engine import Chunks
count, do = 0, Chunks.do
def counted(self, pieces, stop=None):
    global count
    count += len(pieces)
    return do(self, pieces, stop)
Chunks.do = counted
"""


def test_two_processes_compute_every_run_once(tmp_path, assert_same_bits):
    program = COUNTED + PROGRAM + "\nprint(count)"
    pair = [Program(program, tmp_path / "s.db") for _ in range(2)]
    counts = []
    for process in pair:
        with process:
            counts.append(int(process.communicate(timeout=300)[0].split()[-1]))
    assert sum(counts) == 640
    assert_same_bits(Result.load(tmp_path / "s.db").dataset, Study("linear-regression", **SWEEP).run().dataset)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.db"]
    with Store.read(tmp_path / "s.db") as store:
        assert store._connection.execute("SELECT count(*) FROM claims").fetchone() == (0,)


def test_runs_of_somebody_else_are_waited_for(tmp_path, monkeypatch, assert_same_bits):
    """Of four runs two are claimed; their owner dies without a word, and they are computed then."""
    study = make_study()
    keys = [Key(study._seen.identities[run.method.name], run.lr, run.seed) for run in study.runs]
    looks = []
    with Store.write(tmp_path / "s.db") as store:
        now, other = time.time(), owner_of("elsewhere", 1)
        assert store.claim(study._context(), keys[:2], other)
        store._connection.execute("UPDATE owners SET until = ?", (now + 3.0,))
    do = Bench.do
    monkeypatch.setattr(Bench, "do", lambda *told: (looks.append(time.time()), do(*told))[1])
    begin = time.time()
    result = study.run(tmp_path / "s.db", processes=1)
    assert len(looks) == 4
    assert max(looks) > now + 3.0 > begin
    assert_same_bits(result.dataset, make_study().run(processes=1).dataset)


def test_files_of_a_run_that_somebody_else_computes_stay(tmp_path):
    """What a process removes belongs to its own runs."""
    study = make_study()
    folder = tmp_path / "s.db.runs"
    folder.mkdir()
    files, run = RunFiles(str(folder), study._context(), study._seen.identities), study.runs[0]
    theirs = files.path(Key(run.method.name, run.lr, run.seed))
    part = theirs.with_name(f".{theirs.name}.xyz.part")
    part.write_bytes(b"half")
    key = files.stored(Key(run.method.name, run.lr, run.seed))
    others = make_study(lrs=study.lrs[1:])
    with Store.write(tmp_path / "s.db") as store:
        assert store.claim(study._context(), [key], owner_of("elsewhere", 1))
    others.run(tmp_path / "s.db", processes=1)
    assert part.exists()


# Runs that do not fit.


def test_a_run_that_the_store_cannot_hold_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "largest_row", lambda self: 65536 + 10_000)
    monkeypatch.setattr(Chunks, "do", lambda *_: pytest.fail("a step was taken"))
    settings = {"methods": ["sgd"], "lrs": [0.1], "seeds": 1, "epochs": 100, "batch_size": 5}
    study = Study("linear-regression", **settings)
    with pytest.raises(ValueError, match=r"every must be at least 6 to store runs of 1000 steps.*got every=1"):
        study.run(tmp_path / "s.db")
    assert study.plan(tmp_path / "s.db").done == 0
    monkeypatch.undo()
    monkeypatch.setattr(Store, "largest_row", lambda self: 65536 + 10_000)
    Study("linear-regression", **settings, every=6).run(tmp_path / "s.db")


def test_the_limit_is_sqlite_s(tmp_path):
    with Store.write(tmp_path / "s.db") as store:
        assert store.largest_row() == store._connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) >= 10**8


# Stores of version 0.1: four runs.


def old_study():
    settings = {"methods": ["sgd", "sps"], "lrs": [0.01, 10.0], "seeds": 1, "epochs": 2, "batch_size": 10}
    return Study("linear-regression", **settings)


@pytest.fixture
def old(tmp_path):
    shutil.copy(OLD, tmp_path / "old.db")
    return tmp_path / "old.db"


def test_a_store_of_0_1_is_read_and_exported(old, tmp_path):
    result = Result.load(old)
    expected = old_study().run().dataset
    np.testing.assert_allclose(result.dataset.loss, expected.loss, rtol=1e-12)
    assert (result.dataset.status == "finished").all()
    result.to_netcdf(tmp_path / "old.nc")
    assert (tmp_path / "old.nc").stat().st_size > 0


def test_a_store_of_0_1_is_read_where_it_cannot_be_written(old, monkeypatch):
    before = old.read_bytes()
    old.chmod(stat.S_IRUSR)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # also for root
    assert (Result.load(old).dataset.status == "finished").all()
    assert old.read_bytes() == before


def test_runs_of_0_1_are_used_on_request_only(old, monkeypatch):
    study = old_study()
    assert study.plan(old).done == 0
    assert study.adopt(old) == 4
    assert study.plan(old).done == 4
    monkeypatch.setattr(Chunks, "do", lambda *_: pytest.fail("a step was taken"))
    adopted = study.run(old).dataset
    np.testing.assert_array_equal(adopted.loss, Result.load(old).dataset.loss)


def test_what_is_not_the_same_study_is_not_adopted(old, tmp_path):
    other = Study("linear-regression", methods=["sgd"], lrs=[0.01], seeds=1, epochs=3, batch_size=10)
    with pytest.raises(ValueError, match="holds no other study with these settings: they differ in epochs"):
        other.adopt(old)
    with pytest.raises(ValueError, match=r"study 0 of .* is another one: epochs differ"):
        other.adopt(old, study=0)
    with pytest.raises(ValueError, match="study must be a position below 1"):
        other.adopt(old, study=5)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        other.adopt(tmp_path / "none.db")


def test_what_an_earlier_version_has_begun_to_search_is_left_alone_and_said(tmp_path, caplog):
    from surefoot.search import tune

    study = old_study()
    folder = tmp_path / f"s.db.search-{study._context()[:12]}"
    folder.mkdir()
    (folder / "search.json").write_text("{}")
    with caplog.at_level("WARNING", "surefoot"):
        tune(study, store=tmp_path / "s.db")
    assert f"{folder} holds runs that an earlier surefoot has begun" in caplog.text
    assert [path.name for path in folder.iterdir()] == ["search.json"]


def test_a_search_folder_of_0_1_is_refused_by_name(tmp_path):
    from surefoot.problems import LinearRegression
    from surefoot.search import ProblemRun, tune

    folder = tmp_path / "search"
    folder.mkdir()
    (folder / "search.json").write_text('{"format": 1, "horizon": 50, "methods": {"": ""}, "schedule": ""}')
    with pytest.raises(ValueError, match=r"is of surefoot 0\.1"):
        tune(ProblemRun(LinearRegression(), "sgd", batch_size=5), [0.1, 1.0], 50, store=folder)
