"""Two hundred kills: of studies, searches and networks, alone and two processes at once on one store.

A process that has imported everything forks the victims, so that a kill costs no start of Python.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from surefoot.study import Result

sys.path.insert(0, str(Path(__file__).parent))

HERE = str(Path(__file__).parent)
ZYGOTE = f"""
import os, sys, traceback
sys.path.insert(0, {HERE!r})
import test_many_kills as jobs
from surefoot.runs import _bench
_bench._SAVE_SECONDS, _bench._SAVE_SHARE = 0.02, 0.5
print("ready", flush=True)
for line in sys.stdin:
    kind, path = line.split()
    child = os.fork()
    if child == 0:
        try:
            jobs.JOBS[kind](path)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(child, flush=True)
"""


def study(path=None):
    from surefoot.study import Study

    sweep = Study(
        "linear-regression", problem_options={"d": 500}, methods=["sps", "ngn"],
        lrs=np.geomspace(1e-3, 1e2, 20).tolist(), seeds=4, epochs=25, batch_size=5, every=10,
    )  # fmt: skip
    return sweep.run(path, processes=1)


def network(path=None):
    from network_cases import make_study

    return make_study(methods=["ngn", "adamw"], lrs=[0.01], epochs=20, batch_size=2).run(path, processes=1)


def search(path=None):
    from surefoot.problems import LinearRegression
    from surefoot.search import ProblemRun, tune

    return tune(ProblemRun(LinearRegression(d=200), "ngn", batch_size=5), np.geomspace(1e-3, 1e2, 9), 2000, store=path)


def searched_study(path=None):
    from network_cases import make_study

    from surefoot.search import tune

    return tune(make_study(methods=["ngn"], lrs=[0.01, 0.1, 1.0], epochs=15, batch_size=2), store=path)


JOBS = {"study": study, "network": network, "search": search, "searched": searched_study}


class Zygote:
    """Forks processes that do a job."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", ZYGOTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout.readline() == "ready\n"

    def start(self, kind, path):
        self._process.stdin.write(f"{kind} {path}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=60)


def running(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    return False


def wait_for(pid):
    deadline = time.monotonic() + 300
    while running(pid):
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.005)


def kill(pid):
    """Without warning; True if it was still at work."""
    alive = running(pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_for(pid)
    return alive


def answer(kind, result):
    if kind in ("search", "searched"):
        return result.lr, result.loss, result.bound, result.steps, str(result.table)
    data = result.dataset
    return {name: data[name].values.tobytes() for name in data.data_vars if data[name].dtype.kind != "U"}


def check_end(kind, path, whole):
    """The same bits as without a kill, and nothing left behind."""
    assert answer(kind, JOBS[kind](path)) == whole
    beside = sorted(other.name for other in path.parent.iterdir())
    if kind == "search":
        assert beside == [path.name]
        assert sorted(file.name for file in path.iterdir()) == ["runs.db", "runs.db.runs"]
        assert not list(path.rglob("*.part"))
        return
    assert beside == ([path.name] if kind != "searched" else [path.name, f"{path.name}.runs"])
    assert kind == "searched" or (Result.load(path).dataset.status != "missing").all()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("SELECT count(*) FROM claims").fetchone() == (0,)
    connection.close()


def kill_often(zygote, kind, path, whole, seconds, kills, draw, together):
    """Kill processes at random moments, then let one go to the end; how many were at work when they were killed."""
    hit = 0
    for _ in range(kills):
        pids = [zygote.start(kind, path) for _ in range(2 if together else 1)]
        time.sleep(draw.uniform(0.0, 0.8) * seconds)
        hit += kill(pids[0])
        for other in pids[1:]:
            if draw.random() < 0.5:
                time.sleep(draw.uniform(0.0, 0.3) * seconds)
                kill(other)
            else:
                wait_for(other)
    check_end(kind, path, whole)
    return hit


def run_kills(tmp_path, plan, seed):
    """``plan``: (kind, stores, kills of each, two processes at once)."""
    zygote, draw, total = Zygote(), random.Random(seed), {}
    try:
        for kind in dict.fromkeys(row[0] for row in plan):
            begin = time.perf_counter()
            whole = answer(kind, JOBS[kind]())
            seconds = time.perf_counter() - begin
            for number, (_, stores, kills, together) in enumerate(row for row in plan if row[0] == kind):
                for store in range(stores):
                    folder = tmp_path / f"{kind}-{number}-{store}"
                    folder.mkdir()
                    hit = kill_often(zygote, kind, folder / "s.db", whole, seconds, kills, draw, together)
                    done, struck = total.get(kind, (0, 0))
                    total[kind] = done + kills, struck + hit
    finally:
        zygote.close()
    return total


def test_a_few_kills(tmp_path):
    total = run_kills(tmp_path, [("study", 1, 2, True), ("network", 1, 2, True), ("search", 1, 2, True)], seed=1)
    assert sum(kills for kills, _ in total.values()) == 6


@pytest.mark.slow
def test_two_hundred_kills(tmp_path):
    plan = [
        ("study", 10, 4, False), ("study", 8, 3, True),
        ("network", 10, 4, False), ("network", 8, 3, True),
        ("search", 6, 4, False), ("search", 4, 3, True),
        ("searched", 6, 4, False), ("searched", 4, 3, True),
    ]  # fmt: skip
    total = run_kills(tmp_path, plan, seed=0)
    print(f"kills, and how many hit a process at work: {total}")
    assert sum(kills for kills, _ in total.values()) == 200
    assert sum(struck for _, struck in total.values()) > 100
